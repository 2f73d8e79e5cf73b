//! Sources of weights: a checkpoint in memory, files, or a generator.

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

/// A source of a model's weights. They are read a few rows at a time, so that a model is packed
/// without ever being in memory as f32. Several threads may read at once.
pub trait TensorSource: Sync {
    /// Shape of the model. The source has all of its [`expected_tensors`].
    fn config(&self) -> &LmConfig;

    /// Checks everything that can be checked without reading every value. By default there is
    /// nothing: files are checked when they are opened.
    ///
    /// # Errors
    /// Missing, leftover or misshapen tensors.
    fn check(&self) -> Result<(), LmError> {
        Ok(())
    }

    /// Rows of a tensor under its Hugging Face name, one after the other. Rows are entries of the
    /// outermost dimension, or single values of a vector.
    ///
    /// # Errors
    /// No such tensor; a file that cannot be read.
    fn rows<'a>(
        &'a self,
        name: &str,
        rows: Range<usize>,
        buffer: &'a mut RowBuffer,
    ) -> Result<&'a [f32], LmError>;

    /// True if bf16 holds every value of a tensor; `None` if that is unknown without reading it.
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
    /// Reads all of a source into memory, in f32, for training.
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
