//! Where weights come from: a checkpoint in memory, files, or a generator.

use std::ops::Range;

use crate::checkpoint::rows_of;
use crate::names::expected_tensors;
use crate::{Checkpoint, HostTensor, LmConfig, LmError};

/// Working memory of [`TensorSource::rows`], kept between calls.
#[derive(Clone, Debug, Default)]
pub struct RowBuffer {
    pub(crate) stored: weights::RowBuffer,
    pub(crate) own: Vec<f32>,
}

/// The weights of a model, read a few rows at a time, so that a model is packed without ever being in
/// memory as f32. Threads read side by side.
pub trait TensorSource: Sync {
    /// Shape of the model; [`expected_tensors`] of it are there.
    fn config(&self) -> &LmConfig;

    /// Checks what can be checked without reading every value.
    ///
    /// # Errors
    /// Missing, leftover or misshapen tensors.
    fn check(&self) -> Result<(), LmError>;

    /// `rows` of a tensor under its Hugging Face name, one after the other: entries of the outermost
    /// dimension, single values for vectors.
    ///
    /// # Errors
    /// No such tensor; a file that cannot be read.
    fn rows<'a>(
        &'a self,
        name: &str,
        rows: Range<usize>,
        buffer: &'a mut RowBuffer,
    ) -> Result<&'a [f32], LmError>;

    /// Whether bf16 holds every value of a tensor, if that is known without reading it.
    fn is_bf16(&self, name: &str) -> Option<bool> {
        let _ = name;
        None
    }
}

impl TensorSource for Checkpoint {
    fn config(&self) -> &LmConfig {
        &self.config
    }

    fn check(&self) -> Result<(), LmError> {
        self.check("(checkpoint in memory)".as_ref())
    }

    fn rows<'a>(
        &'a self,
        name: &str,
        rows: Range<usize>,
        _: &'a mut RowBuffer,
    ) -> Result<&'a [f32], LmError> {
        rows_of(&self.tensors, name, rows, "(checkpoint in memory)")
    }
}

impl Checkpoint {
    /// Reads all of a source into memory, in f32: for models that learn.
    ///
    /// # Errors
    /// Those of the source.
    pub fn of(source: &dyn TensorSource) -> Result<Self, LmError> {
        source.check()?;
        let config = source.config().clone();
        let mut buffer = RowBuffer::default();
        let mut tensors = std::collections::BTreeMap::new();
        for (name, shape) in expected_tensors(&config) {
            let rows = shape.first().copied().unwrap_or(1);
            let data = source.rows(&name, 0..rows, &mut buffer)?.to_vec();
            tensors.insert(name, HostTensor { shape, data });
        }
        Ok(Self { config, tensors })
    }
}
