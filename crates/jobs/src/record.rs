//! `experiment.json`: what a run's folder is a run of.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::files::{create_folder, read_if_there};
use crate::state::{self, CellState};
use crate::{Checks, JobSpec, JobsError, RunRoot, write_atomically};

/// Version of `experiment.json`.
pub const RECORD_SCHEMA: u32 = 1;

/// The experiment of a run and all of its jobs, whichever of them a command runs.
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
    /// What others read from the file, as further keys: the merged experiment, what pages are made
    /// from.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// Keys of a record's own.
const KEYS: [&str; 4] = ["schema", "name", "hash", "jobs"];

impl RootRecord {
    /// The record of an experiment. Of `others`, keys that the record has itself are left out.
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
    /// The record in the folder, or nothing where there is none.
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

    /// Makes the folder this experiment's, after a look at every one of `jobs`, some or all of the
    /// record's, and at what they start from; nothing is written where something is refused. Returns where each of `jobs`
    /// stands.
    ///
    /// # Errors
    /// A folder of something else, another experiment's, or with a cell that this program must not
    /// go on with: see [`state::inspect`].
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
        // What a job starts from need not be one of them.
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
