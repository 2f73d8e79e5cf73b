//! The learners of all adapters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use online::{Generation, Learner, SavedState};

use super::SEED;
use crate::error::{Result, ServeError};
use crate::models::Models;
use crate::options::{LearnOptions, MAX_ADAPTERS};

/// The learners: a single one that switches between all adapters, or one per target if all weights
/// are trained.
pub(super) struct Learners {
    pub(super) options: LearnOptions,
    /// Maximum bytes of the examples that each learner replays.
    replay_bytes: usize,
    pub(super) models: Arc<Models>,
    /// The state that holds saved weights or adapters.
    state: Option<PathBuf>,
    by_name: BTreeMap<String, Learner>,
    /// Names of adapters in use.
    names: BTreeSet<String>,
}

impl Learners {
    pub(super) fn new(
        options: LearnOptions,
        replay_bytes: usize,
        models: Arc<Models>,
        state: Option<PathBuf>,
    ) -> Self {
        Self {
            options,
            replay_bytes,
            models,
            state,
            by_name: BTreeMap::new(),
            names: BTreeSet::new(),
        }
    }

    /// The adapter that learns in place of `wanted`: that of its target, if there are too many.
    pub(super) fn name(&mut self, wanted: String) -> String {
        let known = self.names.contains(&wanted);
        let name = match wanted.split_once('/') {
            Some((target, _)) if !known && self.names.len() >= MAX_ADAPTERS => target.to_owned(),
            _ => wanted,
        };
        self.names.insert(name.clone());
        name
    }

    /// Key of the learner of an adapter: its name if weights are trained; empty for the one learner
    /// of all adapters.
    pub(super) fn key(&self, name: &str) -> String {
        match self.options.rank {
            0 => name.to_owned(),
            _ => String::new(),
        }
    }

    /// The learner of an adapter, switched to it.
    pub(super) fn of(&mut self, name: &str) -> Result<&mut Learner> {
        let key = self.key(name);
        if !self.by_name.contains_key(&key) {
            let config = self.options.config(self.models.drafter.config());
            let checkpoint = self.models.drafter.checkpoint()?;
            let mut learner = Learner::new(&checkpoint, config, SEED)?;
            learner.limit_replay(self.replay_bytes)?;
            let saved = self.state.as_deref().map(SavedState::open).transpose()?;
            if let Some(saved) = saved.flatten() {
                // Weights are found by their name; adapters are all read at once.
                learner.turn_to(&key)?;
                let names = saved.names()?;
                if key.is_empty() && !names.is_empty() || names.contains(&key) {
                    let loaded = learner.load(&saved.learnt());
                    loaded.map_err(ServeError::of(format!("what `{name}` learnt")))?;
                }
            }
            self.by_name.insert(key.clone(), learner);
        }
        self.names.insert(name.to_owned());
        let learner = self.by_name.get_mut(&key);
        let learner = learner.ok_or_else(|| ServeError::said("a learner just made"))?;
        learner.turn_to(name)?;
        Ok(learner)
    }

    /// Writes all learners.
    pub(super) fn save(&mut self, to: &Generation<'_>) -> Result<()> {
        let mut all = self.by_name.values_mut();
        Ok(all.try_for_each(|learner| to.weights(learner))?)
    }
}
