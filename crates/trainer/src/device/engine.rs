//! The Burn module as an engine for decoding.

use burn::tensor::{Device, Int, Tensor, TensorData};
use lm::{Checkpoint, DecodeEngine, LmError, check_call};

use super::{KvCache, Transformer};

/// Engine that decodes with [`Transformer`] on any device.
pub struct BurnEngine {
    model: Transformer,
    cache: KvCache,
    device: Device,
    max_len: usize,
}

impl BurnEngine {
    /// Loads the checkpoint onto `device` (without autodiff).
    ///
    /// # Errors
    /// Those of [`Transformer::from_checkpoint`].
    pub fn new(checkpoint: &Checkpoint, device: &Device, max_len: usize) -> Result<Self, LmError> {
        let model = Transformer::from_checkpoint(checkpoint, device)?;
        Ok(Self {
            model,
            cache: KvCache::default(),
            device: device.clone(),
            max_len,
        })
    }
}

impl DecodeEngine for BurnEngine {
    fn vocab_size(&self) -> usize {
        self.model.config().vocab_size
    }

    fn len(&self) -> usize {
        self.cache.len()
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn truncate(&mut self, len: usize) {
        self.cache.truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), LmError> {
        logits.clear();
        check_call(ids, self.len(), self.max_len, self.vocab_size())?;
        if ids.is_empty() {
            return Ok(());
        }
        let raw: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
        let input = Tensor::<2, Int>::from_data(TensorData::new(raw, [1, ids.len()]), &self.device);
        let hidden = self.model.hidden_cached(input, &mut self.cache);
        let width = self.model.config().hidden_size;
        let out = self.model.logits(hidden.reshape([ids.len(), width]));
        *logits = out
            .try_into_vec_as::<f32>()
            .map_err(|e| LmError::Device(e.to_string()))?;
        Ok(())
    }
}
