//! All jobs of an experiment, in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::ExperimentError;
use crate::job::Job;
use crate::summary::Experiment;

mod filter;

/// Options from the command line.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Overrides `key=value`, in order, which take precedence over all files.
    pub overrides: Vec<String>,
    /// Files read after those that the experiment includes and before its own keys; relative to the
    /// working directory.
    pub extra_includes: Vec<PathBuf>,
}

/// The jobs of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The experiment without its jobs.
    pub experiment: Experiment,
    /// Its jobs: by stage, each stage after the one that it starts from, then in the order of the
    /// grid.
    pub jobs: Vec<Job>,
    /// Files and lines by dotted key.
    pub(crate) places: BTreeMap<String, String>,
}

impl Plan {
    /// Reads an experiment with all its includes, applies the overrides, expands grid, stages, arms
    /// and sweeps, and checks every arm of every job.
    ///
    /// # Errors
    /// Unreadable files, cycles of includes, or all faults at once, each with file, line and key.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, ExperimentError> {
        crate::build::plan(path, options)
    }

    /// File and line of a dotted key, or of the table around it; `None` for a default.
    pub fn place(&self, key: &str) -> Option<&str> {
        let mut key = key;
        loop {
            if let Some(place) = self.places.get(key) {
                return Some(place);
            }
            (key, _) = key.rsplit_once('.')?;
        }
    }

    /// True if a file or override has the dotted key itself.
    pub fn says(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }
}
