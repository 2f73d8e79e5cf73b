//! `experiment.json`: the record of the experiment that a run's folder belongs to.

use std::collections::HashSet;

use results::RunRecord;

use crate::files::{create_folder, write_json};
use crate::state::{self, CellState};
use crate::{Checks, JobSpec, JobsError, RunRoot};

/// The record of a run and its jobs.
pub type RootRecord = RunRecord<JobSpec>;

impl RunRoot {
    /// The record in the folder; `None` if there is none.
    ///
    /// # Errors
    /// As [`RunRecord::read`].
    pub fn read_record(&self) -> Result<Option<RootRecord>, JobsError> {
        Ok(RootRecord::read(self.path())?)
    }

    /// Makes the folder that of this experiment, after a check of all its jobs: a page has what all
    /// of them have written. If something is refused, nothing is written. Returns the states of
    /// `jobs`, which are all of the record's or some of them.
    ///
    /// # Errors
    /// Two jobs of one name; a folder with other files, or of another experiment, or with a cell
    /// that this program must not continue: see [`state::inspect`].
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
        // In this order: a process that claims the folder in between writes its record first.
        let unused = self.is_unused()?;
        let before = self.read_record()?;
        match &before {
            Some(old) if old.name != record.name => {
                return Err(JobsError::OtherExperiment {
                    path: self.path().to_path_buf(),
                    found: old.name.clone(),
                    expected: record.name.clone(),
                });
            }
            None if !unused => {
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
        for job in &record.jobs {
            state::inspect(self, job, checks)?;
        }
        if before.as_ref() != Some(record) {
            create_folder(self.path())?;
            write_json(&self.record(), record)?;
        }
        Ok(states)
    }
}
