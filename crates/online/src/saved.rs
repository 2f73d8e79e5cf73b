//! A drafter with its learnt state, read from its files as a whole model, for export to other
//! programs.

use lm::{Adapter, Checkpoint};

use super::error::{OnlineError, Result};
use super::state::weights::{load_last, load_mean, updates};
use super::state::{LearntPart, SavedState};

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
    /// The last adapter, if one was trained. If `mean` is true, `weights` were not made with it.
    pub adapter: Option<Adapter>,
}

impl SavedDrafter {
    /// Reads what was learnt under one of the [names](SavedState::names) of a state, over the
    /// weights `base` that it began with.
    ///
    /// # Errors
    /// Files that are missing, malformed or of another drafter.
    pub fn read(state: &SavedState, name: &str, mut base: Checkpoint) -> Result<Self> {
        let folder = state.learnt().join(super::file_name(name));
        let (model, part) = (base.config.clone(), state.part());
        let adapter = match part.rank {
            0 => None,
            _ => Some(Adapter::load(&folder, &model)?),
        };
        let mean = load_mean(&folder, &model, None)?;
        let is_mean = mean.is_some();
        match (mean, &adapter) {
            (None, Some(adapter)) => base.merge(adapter)?,
            (None, None) => load_last(&folder, &model)?.write_over(&mut base)?,
            (Some(mean), _) => mean.write_over(&mut base)?,
        }
        Ok(Self {
            weights: base,
            part,
            mean: is_mean,
            updates: updates(&folder)?,
            adapter,
        })
    }

    /// Checks that all weights are finite, which they are not after a diverged update.
    ///
    /// # Errors
    /// The first tensor with another value.
    pub fn check_finite(&self) -> Result<()> {
        for (name, tensor) in &self.weights.tensors {
            if let Some(at) = tensor.data.iter().position(|x| !x.is_finite()) {
                return Err(OnlineError::NotFinite {
                    tensor: name.clone(),
                    value: tensor.data[at],
                    at,
                });
            }
        }
        Ok(())
    }

    /// Rounding error of a stored type relative to the learnt change: both as root mean square over
    /// the weights that changed. `None` if nothing was learnt.
    ///
    /// # Errors
    /// A base of another shape.
    pub fn rounding(&self, base: &Checkpoint, to: lm::StoredType) -> Result<Option<f64>> {
        let (mut lost, mut learnt) = (0.0, 0.0);
        for (name, tensor) in &self.weights.tensors {
            let before = base.tensor(name);
            let before = before.map_err(OnlineError::at("the drafter as it began"))?;
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
