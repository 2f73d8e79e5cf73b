//! Acceptance heads, trained on answers by Algorithm 4 of the paper, one per adapter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use adaptive_draft::{Head, HeadConfig, HeadReport, HeadTrainer, SCALARS};
use online::{Generation, SavedState};

use super::SEED;
use crate::error::{Result, ServeError};
use crate::models::Models;
use crate::options::Options;

/// Maximum number of examples in the buffer R.
const BUFFER: usize = 4096;

/// The acceptance heads of all adapters.
pub(super) struct Heads {
    /// Number of features that a head reads.
    features: usize,
    /// The state that holds saved heads.
    state: Option<PathBuf>,
    by_name: BTreeMap<String, HeadTrainer>,
}

impl Heads {
    /// Heads that continue from those in the state of `options`, read when first used.
    pub(super) fn new(models: &Models, options: &Options) -> Self {
        Self {
            features: models.drafter.config().hidden_size + SCALARS,
            state: options.state.clone(),
            by_name: BTreeMap::new(),
        }
    }

    /// The head of an adapter and the number of its training steps; `None` if it was never trained.
    pub(super) fn known(&mut self, name: &str) -> Result<Option<(Arc<Head>, u64)>> {
        if !self.by_name.contains_key(name) {
            let Some(saved) = self.saved(name)? else {
                return Ok(None);
            };
            self.by_name.insert(name.to_owned(), saved);
        }
        let trainer = self.by_name.get(name);
        let known = trainer.map(|own| (Arc::new(own.head().clone()), own.steps()));
        Ok(known)
    }

    /// One training step on a batch drawn from R. Returns the head after it.
    pub(super) fn step(&mut self, name: &str) -> Result<Option<(Arc<Head>, u64, HeadReport)>> {
        let trainer = self.of(name)?;
        let report = trainer.step_on_buffer()?;
        let head = || Arc::new(trainer.head().clone());
        Ok(report.map(|report| (head(), trainer.steps(), report)))
    }

    /// Writes the heads that were used since the start.
    pub(super) fn save(&self, to: &Generation<'_>) -> Result<()> {
        let mut all = self.by_name.iter();
        Ok(all.try_for_each(|(name, trainer)| to.head(name, trainer))?)
    }

    fn config() -> HeadConfig {
        HeadConfig {
            buffer: BUFFER,
            ..HeadConfig::default()
        }
    }

    fn saved(&self, name: &str) -> Result<Option<HeadTrainer>> {
        let saved = self.state.as_deref().map(SavedState::open).transpose()?;
        match saved.flatten() {
            Some(saved) => Ok(saved.head(name, self.features, Self::config(), SEED)?),
            None => Ok(None),
        }
    }

    /// The head of an adapter, with its buffer R.
    pub(super) fn of(&mut self, name: &str) -> Result<&mut HeadTrainer> {
        if !self.by_name.contains_key(name) {
            let config = Self::config();
            let trainer = self.saved(name)?.unwrap_or_else(|| {
                let head = Head::new(self.features, config.hidden, SEED);
                HeadTrainer::new(head, config, SEED)
            });
            self.by_name.insert(name.to_owned(), trainer);
        }
        let trainer = self.by_name.get_mut(name);
        trainer.ok_or_else(|| ServeError::said("a head just made"))
    }
}
