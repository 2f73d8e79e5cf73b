//! Acceptance heads, trained on answers by Algorithm 4 of the paper, one per adapter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use adaptive_draft::{Head, HeadConfig, HeadReport, HeadTrainer, SCALARS};
use online::{Generation, SavedState};

use super::SEED;
use crate::error::Result;
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
        let known = self.found(name)?;
        Ok(known.map(|own| (Arc::new(own.head().clone()), own.steps())))
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

    /// The head of an adapter, read from the saved state at its first use; `None` if there is none.
    fn found(&mut self, name: &str) -> Result<Option<&mut HeadTrainer>> {
        if !self.by_name.contains_key(name) {
            let saved = self.state.as_deref().map(SavedState::open).transpose()?;
            if let Some(saved) = saved.flatten()
                && let Some(own) = saved.head(name, self.features, Self::config(), SEED)?
            {
                self.by_name.insert(name.to_owned(), own);
            }
        }
        Ok(self.by_name.get_mut(name))
    }

    /// The head of an adapter, with its buffer R.
    pub(super) fn of(&mut self, name: &str) -> Result<&mut HeadTrainer> {
        self.found(name)?;
        let (features, config) = (self.features, Self::config());
        let fresh = || HeadTrainer::new(Head::new(features, config.hidden, SEED), config, SEED);
        Ok(self.by_name.entry(name.to_owned()).or_insert_with(fresh))
    }
}
