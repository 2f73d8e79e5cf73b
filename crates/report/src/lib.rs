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
//! - [`spec`]: the description of a page. [`paper`]: the paper's numbers as data.
//! - [`root`], [`estimates`], [`streams`], [`curves`]: rows in memory, values with intervals, series.
//! - [`quoted`]: other pages that show tables of these.
//! - [`positions`]: acceptance by position in the draft.
//! - `names`: words for names of experiments and metrics.
//! - [`tables`], [`figures`], [`page`]: the parts of a page. [`render`]: its formats.

mod beside;
pub mod curves;
mod error;
pub mod estimates;
pub mod figure;
pub mod figures;
pub mod model;
mod names;
pub mod page;
pub mod paper;
pub mod positions;
mod quote;
pub mod render;
pub mod root;
pub mod spec;
pub mod streams;
pub mod tables;
mod write;

pub use error::ReportError;
pub use page::{Built, build};
pub use paper::{PaperData, load as load_paper};
pub use quote::{Ask, quoted, quotes};
pub use spec::{Experiment, check_metrics};
pub use write::{Difference, REPORT_DIR, ReportSummary, compare, write_report};
