//! The learners of all adapters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use online::Learner;

use super::{SEED, Saved};
use crate::models::Models;
use crate::options::{LearnOptions, MAX_ADAPTERS};

/// The learners: a single one that switches between all adapters, or one per target if all weights
/// are trained.
pub(super) struct Learners {
    pub(super) options: LearnOptions,
    /// Maximum bytes of the examples that each learner replays.
    replay_bytes: usize,
    pub(super) models: Arc<Models>,
    /// Folder of saved weights or adapters.
    saved: Option<PathBuf>,
    by_name: BTreeMap<String, Learner>,
    /// Names of adapters in use.
    names: Vec<String>,
}

impl Learners {
    pub(super) fn new(
        options: LearnOptions,
        replay_bytes: usize,
        models: Arc<Models>,
        saved: &Saved,
    ) -> Self {
        Self {
            options,
            replay_bytes,
            models,
            saved: saved.learnt.clone(),
            by_name: BTreeMap::new(),
            names: Vec::new(),
        }
    }

    /// The adapter that learns in place of `wanted`: that of its target, if there are too many.
    pub(super) fn name(&mut self, wanted: String) -> String {
        let known = self.names.contains(&wanted);
        match (
            known || self.names.len() < MAX_ADAPTERS,
            wanted.split_once('/'),
        ) {
            (false, Some((target, _))) => target.to_owned(),
            _ => wanted,
        }
    }

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
            let (checkpoint, terms) = (self.models.drafter.checkpoint()?, config.terms()?);
            let mut learner = Learner::new(&checkpoint, terms, config, SEED)?;
            learner.limit_replay(self.replay_bytes)?;
            let folder = self.saved.as_ref().map(|saved| saved.join(folder(&key)));
            if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
                let what = || format!("what `{name}` learnt");
                learner.load(&folder).with_context(what)?;
            }
            self.by_name.insert(key.clone(), learner);
        }
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        let learner = self.by_name.get_mut(&key).context("a learner just made")?;
        learner.turn_to(name)?;
        Ok(learner)
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.by_name.remove(&self.key(name));
    }

    /// Writes each learner into a folder of its own. Returns the names of adapters in use.
    pub(super) fn save(&mut self, root: &Path) -> Result<Vec<String>> {
        let base = self.models.drafter.path.display().to_string();
        for (key, learner) in &mut self.by_name {
            learner.save(&root.join(folder(key)), &base)?;
        }
        Ok(self.names.clone())
    }
}

/// Folder of a learner inside the saved state.
pub(super) fn folder(key: &str) -> String {
    match key {
        "" => "adapters".to_owned(),
        key => online::file_name(key),
    }
}
