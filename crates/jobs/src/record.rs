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

    /// Claims the folder for this experiment and returns the states of `jobs`, all jobs of the
    /// record or some of them. All jobs of the record are checked first, because the report page
    /// shows all of them. If one is refused, nothing is written.
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
        // The record is read last, to find that of a process which claims the folder in between.
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
