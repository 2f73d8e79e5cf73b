//! All jobs of an experiment, in order.

use std::collections::BTreeMap;

use crate::job::Job;
use crate::summary::Experiment;

mod filter;

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
    pub(crate) learn: LearnPlaces,
}

/// Files and lines of the keys of `learn`: by the job's hash, the arm's index, and the key without
/// `learn.`.
pub(crate) type LearnPlaces = BTreeMap<String, Vec<BTreeMap<String, String>>>;

impl Plan {
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

    /// File and line that give an arm of a job its value of a key such as `learn.blocks`, be it in
    /// the arm, a sweep, the grid, a `[[when]]`, the stage or `[learn]`; `None` for a default.
    pub fn learn_place(&self, job: &Job, arm: usize, key: &str) -> Option<&str> {
        let key = key.strip_prefix("learn.")?;
        let place = self.learn.get(&job.hash)?.get(arm)?.get(key)?;
        Some(place)
    }
}
