//! The resumable state of a training run: weights in f32, both moments, the step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lm::{
    AdamW, Checkpoint, HostTensor, LmConfig, Moments, StoredType, read_safetensors,
    write_safetensors,
};

use crate::error::{PretrainError, Result};

const STEP: &str = "step";
const FIRST: &str = "first.00000";
const SECOND: &str = "second.00000";

/// State from which a run resumes.
pub struct Saved {
    /// Weights.
    pub checkpoint: Checkpoint,
    /// Moments of all weights, if there are any yet.
    pub moments: Option<Moments>,
    /// Number of steps taken.
    pub step: u64,
}

fn file(out: &Path) -> PathBuf {
    out.join("state.safetensors")
}

/// Writes the state as one file, through a temporary file. A kill at any moment leaves the previous
/// state or the new one, never a mixture.
///
/// # Errors
/// A file that cannot be written.
pub fn save(out: &Path, checkpoint: &Checkpoint, optimizer: &AdamW) -> Result<()> {
    let mut tensors: BTreeMap<String, HostTensor> = checkpoint
        .tensors
        .iter()
        .map(|(name, t)| (format!("weight.{name}"), t.clone()))
        .collect();
    if let Some(moments) = optimizer.moments() {
        for (name, data) in [(FIRST, &moments.first), (SECOND, &moments.second)] {
            let tensor = HostTensor {
                shape: vec![data.len()],
                data: data.clone(),
            };
            tensors.insert(name.to_owned(), tensor);
        }
    }
    tensors.insert(STEP.into(), HostTensor::whole(optimizer.steps()));
    Ok(write_safetensors(&file(out), &tensors, StoredType::F32)?)
}

/// Reads the state, if there is one.
///
/// # Errors
/// A state that cannot be read, is cut short or belongs to another model.
pub fn load(out: &Path, config: &LmConfig) -> Result<Option<Saved>> {
    let path = file(out);
    if !path.exists() {
        return Ok(None);
    }
    let mut tensors = read_safetensors(&path)?;
    let step = tensors.remove(STEP).and_then(|t| t.to_whole());
    let Some(step) = step else {
        return Err(PretrainError::NoStep(path));
    };
    let mut take = |name: &str| tensors.remove(name).map(|t| t.data);
    let moments = take(FIRST).zip(take(SECOND));
    let moments = moments.map(|(first, second)| Moments { first, second });
    let weights = tensors
        .into_iter()
        .filter_map(|(name, t)| Some((name.strip_prefix("weight.")?.to_owned(), t)))
        .collect();
    let checkpoint = Checkpoint {
        config: config.clone(),
        tensors: weights,
    };
    let place = "the saved state belongs to another model; use another --out";
    checkpoint
        .check(&path)
        .map_err(|error| PretrainError::within(place, error))?;
    Ok(Some(Saved {
        checkpoint,
        moments,
        step,
    }))
}

/// Path of the weights from before the phase against loops.
fn before(out: &Path) -> PathBuf {
    out.join("before.safetensors")
}

/// Saves the weights from before the phase against loops.
pub fn save_before(out: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let tensors = &checkpoint.tensors;
    Ok(write_safetensors(&before(out), tensors, StoredType::F32)?)
}

/// Reads the weights from before the phase against loops.
///
/// # Errors
/// No weights were saved, or they belong to another model.
pub fn load_before(out: &Path, config: &LmConfig) -> Result<Checkpoint> {
    let path = before(out);
    let tensors = read_safetensors(&path)?;
    let config = config.clone();
    let checkpoint = Checkpoint { config, tensors };
    checkpoint.check(&path)?;
    Ok(checkpoint)
}

/// Removes the state of a finished run.
pub fn remove(out: &Path) -> Result<()> {
    for path in [file(out), before(out)] {
        if path.exists() {
            std::fs::remove_file(&path).map_err(PretrainError::io(&path))?;
        }
    }
    Ok(())
}
