//! A drafter with its learnt state, read from its files as a whole model, for export to other
//! programs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lm::{Adapter, Checkpoint};

use super::state;
use super::weights::LearntWeights;

/// The trained part of a drafter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearntPart {
    /// All of its weights.
    All,
    /// Its last blocks and the final norm.
    Blocks(usize),
    /// Low-rank matrices beside its weights, of this rank.
    Adapter(usize),
}

impl std::fmt::Display for LearntPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("all weights"),
            Self::Blocks(1) => f.write_str("the last block"),
            Self::Blocks(blocks) => write!(f, "the last {blocks} blocks"),
            Self::Adapter(rank) => write!(f, "an adapter of rank {rank}"),
        }
    }
}

/// A drafter after learning, in memory.
pub struct SavedDrafter {
    /// All weights, with an adapter merged.
    pub weights: Checkpoint,
    /// The trained part.
    pub part: LearntPart,
    /// True if the weights are the running mean, which is decoded with if there is one.
    pub mean: bool,
    /// Number of updates.
    pub updates: u64,
    /// The last adapter, if one was trained. A running mean has none.
    pub adapter: Option<Adapter>,
}

impl SavedDrafter {
    /// Folder of an arm's learnt drafter, inside a job's state folder.
    pub fn folder_of(state: &Path, arm: &str) -> PathBuf {
        state::arm_folder(state, arm).join(super::arm::LEARNT)
    }

    /// Names of the adapters in a folder that a [`Learner`](crate::Learner) wrote; `None` if it
    /// holds weights.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn adapters(folder: &Path) -> Result<Option<Vec<String>>> {
        if state::has_weights(folder) {
            return Ok(None);
        }
        let found = state::named_folders(folder)?.into_iter();
        // The adapter without a name was that of the start.
        let names = found.map(|(name, _)| name).filter(|name| !name.is_empty());
        Ok(Some(names.collect()))
    }

    /// Reads the files that a [`Learner`](crate::Learner) wrote into `folder`, over the weights
    /// that it began with: the adapter called `adapter`, or the trained weights if none is named.
    ///
    /// # Errors
    /// Files that are missing, malformed or of another drafter.
    pub fn read(folder: &Path, mut base: Checkpoint, adapter: Option<&str>) -> Result<Self> {
        let model = base.config.clone();
        if let Some(name) = adapter {
            let folder = folder.join(state::file_name(name));
            let adapter = Adapter::load(&folder, &model)?;
            let mean = state::load_mean(&folder, &model, 0)?;
            let is_mean = mean.is_some();
            match mean.and_then(LearntWeights::into_whole) {
                Some(mean) => base = mean,
                None => base.merge(&adapter)?,
            }
            return Ok(Self {
                weights: base,
                part: LearntPart::Adapter(adapter.config.rank),
                mean: is_mean,
                updates: state::updates(&folder)?,
                adapter: Some(adapter),
            });
        }
        let (weights, mean) = state::load_decoding(folder, &model)?;
        let part = match weights {
            LearntWeights::Whole(whole) => {
                base = whole;
                LearntPart::All
            }
            LearntWeights::Tail(tail) => {
                tail.write_over(&mut base)?;
                LearntPart::Blocks(tail.blocks())
            }
        };
        Ok(Self {
            weights: base,
            part,
            mean,
            updates: state::updates(folder)?,
            adapter: None,
        })
    }

    /// Checks that all weights are finite, which they are not after a diverged update.
    ///
    /// # Errors
    /// The first tensor with another value.
    pub fn check_finite(&self) -> Result<()> {
        for (name, tensor) in &self.weights.tensors {
            if let Some(at) = tensor.data.iter().position(|x| !x.is_finite()) {
                let value = tensor.data[at];
                bail!(
                    "tensor `{name}` holds {value} at {at}, which is no number\nhint: a lower rate of learning keeps numbers in bounds"
                );
            }
        }
        Ok(())
    }

    /// Rounding error of a stored type relative to the learnt change: both as root mean square over
    /// the weights. `None` if nothing was learnt.
    ///
    /// # Errors
    /// A base of another shape.
    pub fn rounding(&self, base: &Checkpoint, to: lm::StoredType) -> Result<Option<f64>> {
        let (mut lost, mut learnt) = (0.0, 0.0);
        for (name, tensor) in &self.weights.tensors {
            let before = base.tensor(name).context("the drafter as it began")?;
            for (after, before) in tensor.data.iter().zip(&before.data) {
                if after != before {
                    let square = |x: f32| f64::from(x) * f64::from(x);
                    learnt += square(after - before);
                    lost += square(to.rounded(*after) - after);
                }
            }
        }
        Ok((learnt > 0.0).then(|| (lost / learnt).sqrt()))
    }
}
