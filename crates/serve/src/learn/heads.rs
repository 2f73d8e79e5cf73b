//! Acceptance heads, trained on answers by Algorithm 4 of the paper, one per adapter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adaptive_draft::{Example, Head, HeadConfig, HeadReport, HeadTrainer};
use anyhow::{Context, Result, bail};

use super::SEED;

/// Maximum number of examples in the buffer R.
const BUFFER: usize = 4096;

/// The acceptance heads of all adapters.
pub(super) struct Heads {
    /// Number of features that a head reads.
    features: usize,
    /// Folder of saved heads.
    saved: Option<PathBuf>,
    by_name: BTreeMap<String, HeadTrainer>,
}

impl Heads {
    /// Heads that continue from those in `saved`, read when first used. `features` is their input
    /// length.
    pub(super) fn new(features: usize, saved: Option<PathBuf>) -> Self {
        Self {
            features,
            saved,
            by_name: BTreeMap::new(),
        }
    }

    /// The head of an adapter and the number of its training steps; `None` if it was never trained.
    pub(super) fn known(&mut self, name: &str) -> Result<Option<(Arc<Head>, u64)>> {
        let here = self.by_name.contains_key(name);
        if !here && !self.file(name).is_some_and(|path| path.is_file()) {
            return Ok(None);
        }
        let trainer = self.of(name)?;
        Ok(Some((Arc::new(trainer.head().clone()), trainer.steps())))
    }

    /// Adds tokens that verification decided to the buffer R.
    pub(super) fn extend(&mut self, name: &str, head_examples: Vec<Example>) -> Result<()> {
        self.of(name)?.extend(head_examples);
        Ok(())
    }

    /// One training step on a batch drawn from R. Returns the head after it.
    pub(super) fn step(&mut self, name: &str) -> Result<Option<(Arc<Head>, u64, HeadReport)>> {
        let trainer = self.of(name)?;
        let report = trainer.step_on_buffer()?;
        let head = || Arc::new(trainer.head().clone());
        Ok(report.map(|report| (head(), trainer.steps(), report)))
    }

    /// Writes the heads that were used since the start.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        for (name, trainer) in &self.by_name {
            trainer.save(&folder.join(file_of(name)))?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.saved.as_ref()?.join(file_of(name)))
    }

    fn of(&mut self, name: &str) -> Result<&mut HeadTrainer> {
        if !self.by_name.contains_key(name) {
            let config = HeadConfig {
                buffer: BUFFER,
                ..HeadConfig::default()
            };
            let trainer = match self.file(name).filter(|path| path.is_file()) {
                Some(path) => {
                    let trainer = HeadTrainer::load(&path, config, SEED)?;
                    if trainer.head().features() != self.features {
                        bail!("{}: belongs to another drafter", path.display());
                    }
                    trainer
                }
                None => {
                    let head = Head::new(self.features, config.hidden, SEED);
                    HeadTrainer::new(head, config, SEED)
                }
            };
            self.by_name.insert(name.to_owned(), trainer);
        }
        self.by_name.get_mut(name).context("a head just made")
    }
}

fn file_of(name: &str) -> String {
    format!("{}.safetensors", online::file_name(name))
}
