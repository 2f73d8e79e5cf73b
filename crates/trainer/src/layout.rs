//! All parameters of a model in one vector, and where each of them lies.

use std::ops::Range;

use lm::{Checkpoint, HostTensor, LmConfig, LmError, expected_tensors};

/// Where the parameters of one block lie in the flat vector.
#[derive(Clone, Debug)]
pub(crate) struct BlockLayout {
    pub(crate) attn_norm: Range<usize>,
    /// `[q + 2 kv, d]`: query, key and value rows.
    pub(crate) qkv: Range<usize>,
    /// `[d, q]`
    pub(crate) out: Range<usize>,
    /// `[q + 2 kv]`
    pub(crate) qkv_bias: Option<Range<usize>>,
    pub(crate) mlp_norm: Range<usize>,
    /// `[2 f, d]`: gate rows, then up rows.
    pub(crate) gate_up: Range<usize>,
    /// `[d, f]`
    pub(crate) down: Range<usize>,
}

/// Where everything lies: the tensors in the order of [`expected_tensors`], one after the other, so
/// that matrices that read the same input are one matrix.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) config: LmConfig,
    /// `[vocab, d]`
    pub(crate) embedding: Range<usize>,
    pub(crate) blocks: Vec<BlockLayout>,
    pub(crate) norm: Range<usize>,
    /// `[vocab, d]`; the embedding when tied.
    pub(crate) head: Range<usize>,
    pub(crate) len: usize,
}

impl Layout {
    pub(crate) fn new(config: &LmConfig) -> Self {
        let mut len = 0;
        let mut take = |count: usize| {
            len += count;
            len - count..len
        };
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let (q, kv) = (config.q_width(), config.kv_width());
        let embedding = take(config.vocab_size * d);
        let blocks = (0..config.num_layers)
            .map(|_| BlockLayout {
                attn_norm: take(d),
                qkv: take((q + 2 * kv) * d),
                out: take(d * q),
                qkv_bias: config.qkv_bias.then(|| take(q + 2 * kv)),
                mlp_norm: take(d),
                gate_up: take(2 * f * d),
                down: take(d * f),
            })
            .collect();
        let norm = take(d);
        let head = if config.tie_word_embeddings {
            embedding.clone()
        } else {
            take(config.vocab_size * d)
        };
        Self {
            config: config.clone(),
            embedding,
            blocks,
            norm,
            head,
            len,
        }
    }

    /// The flat vector of a checkpoint.
    pub(crate) fn flatten(&self, checkpoint: &Checkpoint) -> Result<Vec<f32>, LmError> {
        let mut flat = Vec::with_capacity(self.len);
        for (name, _) in expected_tensors(&self.config) {
            flat.extend_from_slice(&checkpoint.tensor(&name)?.data);
        }
        Ok(flat)
    }

    /// Writes a flat vector over a checkpoint of the same shape.
    pub(crate) fn write(&self, flat: &[f32], checkpoint: &mut Checkpoint) {
        let mut rest = flat;
        for (name, shape) in expected_tensors(&self.config) {
            let (data, after) = rest.split_at(shape.iter().product());
            rest = after;
            if let Some(tensor) = checkpoint.tensors.get_mut(&name) {
                tensor.data.copy_from_slice(data);
            }
        }
    }

    /// The checkpoint of a flat vector.
    pub(crate) fn unflatten(&self, flat: &[f32]) -> Checkpoint {
        let mut rest = flat;
        let tensors = expected_tensors(&self.config)
            .into_iter()
            .map(|(name, shape)| {
                let (data, after) = rest.split_at(shape.iter().product());
                rest = after;
                let data = data.to_vec();
                (name, HostTensor { shape, data })
            })
            .collect();
        Checkpoint {
            config: self.config.clone(),
            tensors,
        }
    }
}
