//! All parameters of a model in one vector, and where each of them lies.

use std::collections::BTreeMap;
use std::ops::Range;

use lm::{
    Checkpoint, EMBEDDING, FINAL_NORM, HEAD, HostTensor, LmConfig, LmError, QkNorm,
    expected_tensors, in_layer,
};

/// Where the parameters of one block lie in the flat vector.
#[derive(Clone, Debug)]
pub(crate) struct BlockLayout {
    pub(crate) attn_norm: Range<usize>,
    /// `[q + 2 kv, d]`: query, key and value rows.
    pub(crate) qkv: Range<usize>,
    /// `[q + 2 kv]`
    pub(crate) qkv_bias: Option<Range<usize>>,
    /// `[head_dim]` each: norms of query and key heads.
    pub(crate) head_norms: Option<[Range<usize>; 2]>,
    /// `[d, q]`
    pub(crate) out: Range<usize>,
    /// `[d]`
    pub(crate) out_bias: Option<Range<usize>>,
    pub(crate) mlp_norm: Range<usize>,
    /// `[2 f, d]`: gate rows, then up rows.
    pub(crate) gate_up: Range<usize>,
    /// `[2 f]`
    pub(crate) gate_up_bias: Option<Range<usize>>,
    /// `[d, f]`
    pub(crate) down: Range<usize>,
    /// `[d]`
    pub(crate) down_bias: Option<Range<usize>>,
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

/// Ranges of the tensors by name.
struct Places(BTreeMap<String, Range<usize>>);

impl Places {
    /// A tensor of the architecture.
    fn find(&self, name: &str) -> Result<Range<usize>, LmError> {
        let found = self.0.get(name).cloned();
        found.ok_or_else(|| LmError::MissingTensor {
            path: "(layout of the trainer)".into(),
            tensor: name.to_owned(),
        })
    }

    /// From one tensor of a block to another.
    fn span(&self, layer: usize, from: &str, to: &str) -> Result<Range<usize>, LmError> {
        let (from, to) = (in_layer(layer, from), in_layer(layer, to));
        Ok(self.find(&from)?.start..self.find(&to)?.end)
    }

    fn block(&self, config: &LmConfig, layer: usize) -> Result<BlockLayout, LmError> {
        let one = |part: &str| self.span(layer, part, part);
        let span_if = |there: bool, from: &str, to: &str| {
            there.then(|| self.span(layer, from, to)).transpose()
        };
        let biases = config.block.biases;
        let (out, down) = ("self_attn.o_proj.bias", "mlp.down_proj.bias");
        let (gate, up) = ("mlp.gate_proj.bias", "mlp.up_proj.bias");
        Ok(BlockLayout {
            attn_norm: one("input_layernorm.weight")?,
            qkv: self.span(layer, "self_attn.q_proj.weight", "self_attn.v_proj.weight")?,
            qkv_bias: span_if(biases.qkv, "self_attn.q_proj.bias", "self_attn.v_proj.bias")?,
            head_norms: match config.block.qk_norm {
                QkNorm::Head => Some([
                    one("self_attn.q_norm.weight")?,
                    one("self_attn.k_norm.weight")?,
                ]),
                _ => None,
            },
            out: one("self_attn.o_proj.weight")?,
            out_bias: span_if(biases.out, out, out)?,
            mlp_norm: one("post_attention_layernorm.weight")?,
            gate_up: self.span(layer, "mlp.gate_proj.weight", "mlp.up_proj.weight")?,
            gate_up_bias: span_if(biases.mlp, gate, up)?,
            down: one("mlp.down_proj.weight")?,
            down_bias: span_if(biases.mlp, down, down)?,
        })
    }
}

impl Layout {
    /// The layout of a model that can be trained.
    ///
    /// # Errors
    /// [`LmError::NotTrainable`].
    pub(crate) fn new(config: &LmConfig) -> Result<Self, LmError> {
        config.check_trainable()?;
        let mut len = 0;
        let places = expected_tensors(config).into_iter().map(|(name, shape)| {
            let start = len;
            len += shape.iter().product::<usize>();
            (name, start..len)
        });
        let places = Places(places.collect());
        let embedding = places.find(EMBEDDING)?;
        let blocks = (0..config.num_layers).map(|layer| places.block(config, layer));
        Ok(Self {
            config: config.clone(),
            blocks: blocks.collect::<Result<_, _>>()?,
            norm: places.find(FINAL_NORM)?,
            head: match config.tie_word_embeddings {
                true => embedding.clone(),
                false => places.find(HEAD)?,
            },
            embedding,
            len,
        })
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
