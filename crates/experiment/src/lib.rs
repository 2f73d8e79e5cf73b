//! Experiment files: their schema, and the plan of jobs made from them.
//!
//! A file is a table or figure of the paper. [`Plan::load`] merges the files that it includes,
//! applies overrides, makes the product of its grid for every stage, and gives each of these cells
//! its arms: the name of a preset and a patch of the same keys. All of it is checked before the
//! first job, and all faults are reported at once, with file, line and key.
//!
//! - [`Plan`]: the [`Job`]s in order.
//! - [`JobConfig`]: all settings that determine the tokens of a job, including each [`ArmConfig`]. Its
//!   [`hash`](JobConfig::hash) is compared with that of a results folder.
//! - [`Experiment`]: the other settings, for the report and for launchers.
//! - [`reference::markdown`]: the documentation of every key, generated from the types.
//!
//! ```
//! use experiment::{LoadOptions, Plan};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("small.toml");
//! std::fs::write(&file, r#"
//! name = "small"
//! [models]
//! drafter = "models/D"
//! targets = { L = "models/L" }
//! [grid]
//! task = ["mini-math", "mini-chat"]
//! [stage.stream]
//! prompts = { train = 100, test = 20 }
//! [[arm]]
//! preset = "L_DM+L_N-gram"
//! set = { "decode.k" = 3 }
//! "#)?;
//! let plan = Plan::load(&file, &LoadOptions::default())?;
//! assert_eq!(plan.jobs.len(), 2);
//! assert_eq!(plan.jobs[0].config.to_string(), "stream/task=mini-math,seed=1");
//! assert_eq!(plan.jobs[0].config.arms[0].decode.k, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arm;
mod build;
mod canonical;
mod check;
mod count;
mod error;
mod expand;
mod file;
mod grid;
mod job;
mod lineup;
mod load;
mod patch;
mod plan;
mod preset;
pub mod reference;
mod report;
mod report_check;
mod segments;
mod settings;
mod stage;
mod summary;
mod when;

pub use arm::{ArmConfig, SweptFrom};
pub use count::Count;
pub use error::{ExperimentError, Fault};
pub use file::OnStream;
pub use job::{Job, JobConfig, Segment};
pub use load::{LoadOptions, nearest};
pub use plan::Plan;
pub use report::{FigureName, LauncherConfig, LauncherValue, ReportConfig, ReportFormat};
pub use settings::{
    CacheOptions, CacheUse, CostsConfig, DecodeConfig, DraftSource, EXPLORE, HeadLabels,
    HeadOptions, HeadTraining, LearnConfig, Lookup, LoraSettings, ModelConfig, ModelsConfig,
    ObjectiveName, PolicyFault, PolicyName, Scope, TorchConfig, TraceConfig,
};
pub use summary::{Axis, Experiment, Stage};
