//! `experiment.json`: the record of the experiment that a run's folder belongs to.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::files::{create_folder, read_if_there};
use crate::state::{self, CellState};
use crate::{Checks, JobSpec, JobsError, RunRoot, write_atomically};

/// Version of `experiment.json`.
pub const RECORD_SCHEMA: u32 = 1;

/// The experiment of a run with all of its jobs, also those that the present command does not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RootRecord {
    /// [`RECORD_SCHEMA`].
    pub schema: u32,
    /// Name of the experiment.
    pub name: String,
    /// Hash of the experiment's file with everything it includes.
    pub hash: String,
    /// Every job, in order.
    pub jobs: Vec<JobSpec>,
    /// Further keys, which other programs read: the merged experiment, and data for the pages.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// Keys of the record itself.
const KEYS: [&str; 4] = ["schema", "name", "hash", "jobs"];

impl RootRecord {
    /// The record of an experiment. Keys of `others` that the record has itself are left out.
    pub fn new(name: &str, hash: &str, jobs: Vec<JobSpec>, others: Map<String, Value>) -> Self {
        let own = |key: &str| KEYS.contains(&key);
        Self {
            schema: RECORD_SCHEMA,
            name: name.to_owned(),
            hash: hash.to_owned(),
            jobs,
            others: others.into_iter().filter(|(key, _)| !own(key)).collect(),
        }
    }
}

impl RunRoot {
    /// The record in the folder; `None` if there is none.
    ///
    /// # Errors
    /// [`JobsError::Malformed`], [`JobsError::OtherVersion`], [`JobsError::Io`].
    pub fn read_record(&self) -> Result<Option<RootRecord>, JobsError> {
        #[derive(Deserialize)]
        struct SchemaOnly {
            schema: u32,
        }
        let path = self.record();
        let Some(text) = read_if_there(&path)? else {
            return Ok(None);
        };
        let malformed = |e: serde_json::Error| JobsError::json(&path, &e);
        let head: SchemaOnly = serde_json::from_str(&text).map_err(malformed)?;
        if head.schema != RECORD_SCHEMA {
            return Err(JobsError::OtherVersion {
                path,
                found: format!("layout {}", head.schema),
                expected: format!("layout {RECORD_SCHEMA}"),
            });
        }
        Ok(Some(serde_json::from_str(&text).map_err(malformed)?))
    }

    /// Makes the folder that of this experiment, after a check of `jobs` (all of the record's or
    /// some of them) and of the jobs that they need. If something is refused, nothing is written.
    /// Returns the states of `jobs`.
    ///
    /// # Errors
    /// A folder with other files, or of another experiment, or with a cell that this program must
    /// not continue: see [`state::inspect`].
    pub fn claim(
        &self,
        record: &RootRecord,
        jobs: &[JobSpec],
        checks: &Checks,
    ) -> Result<Vec<CellState>, JobsError> {
        let mut names = HashSet::new();
        if let Some(twice) = record.jobs.iter().find(|job| !names.insert(&job.id)) {
            return Err(JobsError::TwoJobs {
                id: twice.id.clone(),
            });
        }
        let before = self.read_record()?;
        match &before {
            Some(old) if old.name != record.name => {
                return Err(JobsError::OtherExperiment {
                    path: self.path().to_path_buf(),
                    found: old.name.clone(),
                    expected: record.name.clone(),
                });
            }
            None if !self.is_unused()? => {
                return Err(JobsError::NotARun {
                    path: self.path().to_path_buf(),
                });
            }
            _ => {}
        }
        let states = jobs
            .iter()
            .map(|job| state::inspect(self, job, checks))
            .collect::<Result<Vec<_>, _>>()?;
        // A needed job is not always one of `jobs`.
        for need in jobs.iter().filter_map(|job| job.needs.as_ref()) {
            state::needed(self, need, checks)?;
        }
        if before.as_ref() != Some(record) {
            create_folder(self.path())?;
            let path = self.record();
            let mut text =
                serde_json::to_string_pretty(record).map_err(|e| JobsError::json(&path, &e))?;
            text.push('\n');
            write_atomically(&path, text.as_bytes())?;
        }
        Ok(states)
    }
}
