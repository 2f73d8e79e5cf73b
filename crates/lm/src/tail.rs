//! The last blocks of a model, which are trained while everything below them is frozen.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use crate::checkpoint::{check_tensors, rows_of};
use crate::names::{EMBEDDING, HEAD, expected_tensors, in_layer};
use crate::{Checkpoint, HostTensor, LmConfig, LmError, RowBuffer, TensorSource};

/// The last blocks of a model and the norm after them. Embedding, output head and all blocks below
/// are those of the model from which it was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// Shape of the whole model.
    pub config: LmConfig,
    /// Index of the first block that it holds. The last one is the model's last.
    pub first: usize,
    /// Weights by Hugging Face name: exactly those of [`tail_tensors`].
    pub tensors: BTreeMap<String, HostTensor>,
}

/// Index of the first of the last `blocks` blocks of a model.
///
/// # Errors
/// [`LmError::Blocks`] for 0 blocks, or more than the model has.
pub fn first_of_last(config: &LmConfig, blocks: usize) -> Result<usize, LmError> {
    match config.num_layers.checked_sub(blocks) {
        Some(first) if blocks > 0 => Ok(first),
        _ => Err(LmError::Blocks {
            blocks,
            of: config.num_layers,
        }),
    }
}

/// The tensors of the blocks from `first` on and of the last norm, with their shapes in memory, in
/// the order of [`expected_tensors`].
pub fn tail_tensors(config: &LmConfig, first: usize) -> Vec<(String, Vec<usize>)> {
    let mut below: Vec<String> = (0..first).map(|layer| in_layer(layer, "")).collect();
    below.extend([EMBEDDING.to_owned(), HEAD.to_owned()]);
    let is_below = |name: &str| below.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let mut tensors = expected_tensors(config);
    tensors.retain(|(name, _)| !is_below(name));
    tensors
}

impl Tail {
    /// The last `blocks` blocks of a model in memory.
    ///
    /// # Errors
    /// [`LmError::Blocks`]; missing tensors.
    pub fn of(checkpoint: &Checkpoint, blocks: usize) -> Result<Self, LmError> {
        let config = checkpoint.config.clone();
        let first = first_of_last(&config, blocks)?;
        let named = tail_tensors(&config, first).into_iter();
        let tensors = named
            .map(|(name, _)| Ok((name.clone(), checkpoint.tensor(&name)?.clone())))
            .collect::<Result<_, LmError>>()?;
        Ok(Self {
            config,
            first,
            tensors,
        })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.config.num_layers - self.first
    }

    /// Checks that exactly its tensors are there, with the right shapes.
    ///
    /// # Errors
    /// Missing, misshapen or leftover tensors; the error names `origin`.
    pub fn check(&self, origin: &Path) -> Result<(), LmError> {
        let expected = tail_tensors(&self.config, self.first);
        check_tensors(&self.tensors, &expected, origin)
    }

    /// Writes its weights over those of the model to which it belongs.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] for a model of another shape.
    pub fn write_over(&self, checkpoint: &mut Checkpoint) -> Result<(), LmError> {
        if checkpoint.config != self.config {
            return Err(LmError::OtherModel);
        }
        for (name, tensor) in &self.tensors {
            let to = checkpoint.tensors.get_mut(name);
            to.ok_or(LmError::OtherModel)?.clone_from(tensor);
        }
        Ok(())
    }
}

/// Of the tensors that its configuration implies, only those of the tail are available.
impl TensorSource for Tail {
    fn config(&self) -> &LmConfig {
        &self.config
    }

    fn check(&self) -> Result<(), LmError> {
        self.check("(tail in memory)".as_ref())
    }

    fn rows<'a>(
        &'a self,
        name: &str,
        rows: Range<usize>,
        _: &'a mut RowBuffer,
    ) -> Result<&'a [f32], LmError> {
        rows_of(&self.tensors, name, rows, "(tail in memory)")
    }
}
