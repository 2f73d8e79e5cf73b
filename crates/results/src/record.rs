//! `experiment.json`: the record of the experiment in a run's folder.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ArmInfo, ResultsError};

/// File name of the record in a root folder.
pub const EXPERIMENT_FILE: &str = "experiment.json";

/// Version of `experiment.json`. A reader refuses another one.
pub const RECORD_SCHEMA: u32 = 1;

/// The experiment of a run with all of its jobs. Jobs, the page and the paper's numbers have the
/// types of the crates that read them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord<Job = Value, Page = Value, Paper = Value> {
    /// [`RECORD_SCHEMA`].
    pub schema: u32,
    /// Name of the experiment.
    pub name: String,
    /// SHA-256 of the experiment file with everything it includes.
    pub hash: String,
    /// Every job, in order.
    pub jobs: Vec<Job>,
    /// Arms in table order.
    pub arms: Vec<ArmInfo>,
    /// Axes of the grid in order, each with its name and its values.
    pub axes: Value,
    /// Cells of every stage in order of the plan.
    pub cells: Vec<CellSpec>,
    /// The drafter and all targets.
    pub models: Value,
    /// The paper's numbers, read from the file that the report section names.
    pub paper_data: Option<Paper>,
    /// Settings of the page.
    pub report: Page,
    /// Stages in the file's order.
    pub stages: Vec<StageSpec>,
    /// Title of the page; `None` for the name.
    pub title: Option<String>,
}

/// One stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSpec {
    /// Its name, which is that of its folder.
    pub name: String,
    /// Stage whose learnt state its cells start from.
    pub from: Option<String>,
    /// True if its cells ran alone on their machine, so that their times count.
    pub exclusive: bool,
}

/// A planned cell of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// Stage.
    pub stage: String,
    /// Its name, which is that of its folder.
    pub cell: String,
    /// All axes with their values.
    pub coordinates: Vec<(String, String)>,
}

impl<Job, Page: Default, Paper> RunRecord<Job, Page, Paper> {
    /// The record of an experiment with nothing but its jobs.
    pub fn new(name: &str, hash: &str, jobs: Vec<Job>) -> Self {
        Self {
            schema: RECORD_SCHEMA,
            name: name.to_owned(),
            hash: hash.to_owned(),
            jobs,
            arms: Vec::new(),
            axes: Value::Array(Vec::new()),
            cells: Vec::new(),
            models: Value::Null,
            paper_data: None,
            report: Page::default(),
            stages: Vec::new(),
            title: None,
        }
    }
}

impl<Job: DeserializeOwned, Page: DeserializeOwned, Paper: DeserializeOwned>
    RunRecord<Job, Page, Paper>
{
    /// The record in a root folder; `None` if there is none.
    ///
    /// # Errors
    /// [`ResultsError::Malformed`] with the line, [`ResultsError::Schema`], [`ResultsError::Io`].
    pub fn read(root: &Path) -> Result<Option<Self>, ResultsError> {
        let path = root.join(EXPERIMENT_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text, RECORD_SCHEMA).map(Some),
            Err(source) if is_absence(&source) => Ok(None),
            Err(source) => Err(ResultsError::io("read", &path, source)),
        }
    }
}

impl<Job, Page, Paper> RunRecord<Job, Page, Paper> {
    /// Title of the page.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// A stage by name.
    pub fn stage(&self, name: &str) -> Option<&StageSpec> {
        self.stages.iter().find(|stage| stage.name == name)
    }
}

fn is_absence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Parses a JSON file with a `schema`, which is checked first, so that another layout is not
/// reported as a missing key.
pub(crate) fn parse<T: DeserializeOwned>(
    path: &Path,
    text: &str,
    expected: u32,
) -> Result<T, ResultsError> {
    #[derive(Deserialize)]
    struct SchemaOnly {
        schema: u32,
    }
    let malformed = |error: serde_json::Error| ResultsError::Malformed {
        path: path.to_path_buf(),
        line: error.line(),
        what: "malformed",
        message: error.to_string(),
    };
    let SchemaOnly { schema } = serde_json::from_str(text).map_err(malformed)?;
    if schema != expected {
        return Err(ResultsError::Schema {
            path: path.to_path_buf(),
            found: schema,
            expected,
        });
    }
    serde_json::from_str(text).map_err(malformed)
}
