//! Pages generated from rows, without typed numbers.
//!
//! [`write_report`] reads the root folder of an experiment (its `experiment.json` and the rows of
//! its complete cells), builds one [`Page`](model::Page), and renders it in every format asked for:
//!
//! ```text
//! ROOT/report/report.md     tables as Markdown        report.csv   every number, one a line
//!             table-ID.tex  tables for a paper        report.html  one self-contained page
//!             report.tex    a document of them        curves.svg curves.png ...  figures
//! ```
//!
//! The same rows give the same bytes, so that [`compare`] can check a published page.
//!
//! - `spec`: the description of a page. `paper`: the paper's numbers as data.
//! - `root`, `estimates`, `streams`, `curves`: rows in memory, values with intervals, series.
//! - [`quoted`]: other pages that show tables of these.
//! - `tables`, `figures`, `page`: the parts of a page. [`render`]: its formats.

mod beside;
mod curves;
mod error;
mod estimates;
mod figure;
mod figures;
pub mod model;
mod names;
mod page;
mod paper;
mod positions;
mod quote;
pub mod render;
mod root;
mod spec;
mod streams;
mod tables;
mod write;

pub use error::ReportError;
pub use page::{Built, build};
pub use paper::{PaperData, load as load_paper};
pub use quote::{Ask, quoted, quotes};
pub use spec::check_metrics;
pub use write::{Difference, ReportSummary, compare, write_report};
