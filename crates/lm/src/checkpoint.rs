//! A model in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use crate::names::{HEAD, expected_tensors};
use crate::{LmConfig, LmError, StoredCheckpoint};

/// A tensor on the host, row-major, in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Values, `shape.product()` of them.
    pub data: Vec<f32>,
}

/// Number of parts of a [whole number](HostTensor::whole).
const PARTS: usize = 4;

impl HostTensor {
    /// A whole number in four parts of 16 bits, the lowest first, which f32 holds exactly.
    pub fn whole(n: u64) -> Self {
        let part = |i: usize| f32::from((n >> (16 * i)) as u16);
        Self {
            shape: vec![PARTS],
            data: (0..PARTS).map(part).collect(),
        }
    }

    /// The number of a tensor that [`whole`](Self::whole) made; `None` for one of another size.
    pub fn to_whole(&self) -> Option<u64> {
        let parts: &[f32; PARTS] = self.data.as_slice().try_into().ok()?;
        let parts = parts.iter().enumerate();
        Some(parts.map(|(i, x)| (*x as u64 & 0xffff) << (16 * i)).sum())
    }
}

/// Storage type of a written checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    /// Four bytes per weight, exact.
    F32,
    /// Two bytes per weight: bf16, rounded to nearest even.
    Bf16,
    /// Two bytes per weight: half precision, rounded to nearest even. Values beyond 65504 become
    /// that number.
    F16,
}

/// A model in memory. Files, engines and trainers all convert from and to this form. Tensors have
/// Hugging Face names; exactly those that the configuration implies are present.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Shape of the model.
    pub config: LmConfig,
    /// Weights by Hugging Face name.
    pub tensors: BTreeMap<String, HostTensor>,
}

impl Checkpoint {
    /// Reads a model folder into memory, in f32, through [`StoredCheckpoint`].
    ///
    /// # Errors
    /// Those of [`StoredCheckpoint::open`].
    pub fn load(folder: &Path) -> Result<Self, LmError> {
        Self::of(&StoredCheckpoint::open(folder)?)
    }

    /// Checks that exactly the tensors that the configuration implies are there, with the right
    /// shapes.
    pub fn check(&self, origin: &Path) -> Result<(), LmError> {
        check_tensors(&self.tensors, &expected_tensors(&self.config), origin)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`LmError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&HostTensor, LmError> {
        let found = self.tensors.get(name);
        found.ok_or_else(|| LmError::missing("(checkpoint in memory)", name))
    }

    /// The output head `[vocab_size, hidden_size]`: its own tensor or the tied embedding.
    pub fn head(&self) -> Result<&HostTensor, LmError> {
        let name = if self.config.tie_word_embeddings {
            crate::names::EMBEDDING
        } else {
            HEAD
        };
        self.tensor(name)
    }
}

/// Checks that exactly these tensors are there, with these shapes.
pub(crate) fn check_tensors(
    tensors: &BTreeMap<String, HostTensor>,
    expected: &[(String, Vec<usize>)],
    origin: &Path,
) -> Result<(), LmError> {
    for (name, shape) in expected {
        let found = tensors.get(name);
        let tensor = found.ok_or_else(|| LmError::missing(origin, name))?;
        if tensor.shape != *shape || tensor.data.len() != shape.iter().product::<usize>() {
            return Err(LmError::Shape {
                path: origin.to_owned(),
                tensor: name.clone(),
                found: tensor.shape.clone(),
                expected: shape.clone(),
            });
        }
    }
    if tensors.len() == expected.len() {
        return Ok(());
    }
    let known: BTreeSet<_> = expected.iter().map(|(name, _)| name).collect();
    let first = tensors.keys().find(|name| !known.contains(name));
    Err(LmError::LeftoverTensors {
        path: origin.to_owned(),
        count: tensors.len() - expected.len(),
        first: first.cloned().unwrap_or_default(),
    })
}

/// Rows of a tensor in memory: entries of the outermost dimension, or single values of a vector.
pub(crate) fn rows_of<'a>(
    tensors: &'a BTreeMap<String, HostTensor>,
    name: &str,
    rows: Range<usize>,
    origin: &str,
) -> Result<&'a [f32], LmError> {
    let missing = || LmError::missing(origin, format!("{name}, rows {rows:?}"));
    let HostTensor { shape, data } = tensors.get(name).ok_or_else(missing)?;
    let width: usize = shape.iter().skip(1).product();
    data.get(rows.start * width..rows.end * width)
        .ok_or_else(missing)
}
