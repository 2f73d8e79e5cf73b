//! Checks of a run's requirements before its first job: models, recordings, prompts, and the data
//! of its page.

mod learning;
mod models;
mod page;
mod prompts;

use std::path::Path;

use anyhow::Result;
use experiment::{ExperimentError, Fault, Job, Plan};
use streams::DataSource;

pub(super) use self::models::Models;

/// Findings before a run.
#[derive(Debug, Default)]
pub(super) struct Found {
    faults: Vec<Fault>,
    /// Findings that do not stop a run.
    pub(super) warnings: Vec<String>,
}

impl Found {
    /// Checks the requirements of `jobs` of a plan. `data_words` are the words of a command line
    /// that name the data.
    pub(super) fn look(
        plan: &Plan,
        jobs: &[&Job],
        data: &DataSource,
        data_words: &[String],
    ) -> Result<Self> {
        let mut found = Self::default();
        found.models(plan, jobs);
        found.learning(plan, jobs);
        found.recordings(plan, jobs, data_words);
        found.prompts(plan, jobs, data)?;
        found.page(plan);
        Ok(found)
    }

    /// Refuses a run with requirements that are not met, with all of them.
    pub(super) fn refuse(self, file: &Path) -> Result<(), ExperimentError> {
        match self.faults.is_empty() {
            true => Ok(()),
            false => Err(ExperimentError::Faults {
                path: file.to_path_buf(),
                faults: self.faults,
            }),
        }
    }

    fn fault(&mut self, plan: &Plan, key: &str, message: String, hint: String) {
        self.fault_at(plan.place(key), key, message, hint);
    }

    fn fault_at(&mut self, place: Option<&str>, key: &str, message: String, hint: String) {
        let fault = Fault {
            place: place.map(str::to_owned),
            key: key.to_owned(),
            message,
            hint: Some(hint),
        };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }
}

/// The jobs of a plan that are not complete in the folder `out`.
pub(super) fn open<'a>(plan: &'a Plan, out: &Path) -> Vec<&'a Job> {
    let is_open = |job: &&Job| {
        let folder = out.join(&job.config.stage).join(&job.config.cell);
        // Errors of a folder are reported when the job is run.
        !results::is_complete(&folder).unwrap_or(false)
    };
    plan.jobs.iter().filter(is_open).collect()
}

/// `models.drafter` and `models.targets.NAME` of a job.
fn keyed(job: &Job) -> impl Iterator<Item = (String, &experiment::ModelConfig)> {
    let models = &job.config.models;
    let targets = models.targets.iter();
    std::iter::once(("models.drafter".to_owned(), &models.drafter))
        .chain(targets.map(|(name, target)| (format!("models.targets.{name}"), target)))
}
