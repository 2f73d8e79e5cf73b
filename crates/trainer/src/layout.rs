//! Layout of all parameters of a model in one flat vector.

use std::collections::BTreeMap;
use std::ops::Range;

use lm::{
    Checkpoint, EMBEDDING, FINAL_NORM, HEAD, HostTensor, Layer, LmConfig, LmError, QkNorm,
    expected_tensors, first_of_last, in_layer, tail_tensors,
};

/// Ranges of a projection, or of several with the same input, in the flat vector.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    /// `[outputs, inputs]`
    pub(crate) weight: Range<usize>,
    /// `[outputs]`
    pub(crate) bias: Option<Range<usize>>,
}

/// Ranges of one block's parameters in the flat vector.
#[derive(Clone, Debug)]
pub(crate) struct BlockLayout {
    pub(crate) attn_norm: Range<usize>,
    /// `[q + 2 kv, d]`: query, key and value rows.
    pub(crate) qkv: Linear,
    /// `[head_dim]` each: weights of the norms of query and key heads.
    pub(crate) head_norms: Option<[Range<usize>; 2]>,
    /// `[d, q]`
    pub(crate) out: Linear,
    pub(crate) mlp_norm: Range<usize>,
    /// `[2 f, d]`: gate rows, then up rows.
    pub(crate) gate_up: Linear,
    /// `[d, f]`
    pub(crate) down: Linear,
}

/// Layout of the flat vector. For a whole model, it holds the tensors in the order of
/// [`expected_tensors`], one after the other, so that matrices with the same input form one matrix.
/// For the last blocks, it holds those of [`tail_tensors`] and then the output head.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) config: LmConfig,
    /// `[vocab, d]`; `None` in a layout of the last blocks, whose input is states.
    pub(crate) embedding: Option<Range<usize>>,
    /// Index of the first block in the layout.
    pub(crate) first: usize,
    pub(crate) blocks: Vec<BlockLayout>,
    pub(crate) norm: Range<usize>,
    /// `[vocab, d]`; the embedding if they are tied.
    pub(crate) head: Range<usize>,
    /// Number of all values.
    pub(crate) len: usize,
    /// Number of trained values, which come first. In a layout of the last blocks the head is not
    /// trained.
    pub(crate) learns: usize,
    /// Names and shapes of the tensors, in their order in the vector.
    tensors: Vec<(String, Vec<usize>)>,
}

/// Ranges of the tensors by name.
struct Places(BTreeMap<String, Range<usize>>);

impl Places {
    /// Range of a tensor of the architecture.
    fn find(&self, name: &str) -> Result<Range<usize>, LmError> {
        let found = self.0.get(name).cloned();
        found.ok_or_else(|| LmError::missing("(layout of the trainer)", name))
    }

    /// Ranges from one projection of a block to the end of another.
    fn linear(&self, layer: usize, bias: bool, from: &str, to: &str) -> Result<Linear, LmError> {
        let span = |kind: &str| -> Result<Range<usize>, LmError> {
            let [from, to] = [from, to].map(|name| in_layer(layer, &format!("{name}.{kind}")));
            Ok(self.find(&from)?.start..self.find(&to)?.end)
        };
        Ok(Linear {
            weight: span("weight")?,
            bias: bias.then(|| span("bias")).transpose()?,
        })
    }

    fn block(&self, config: &LmConfig, layer: usize) -> Result<BlockLayout, LmError> {
        let one = |part: &str| self.find(&in_layer(layer, part));
        let biases = config.block.biases;
        Ok(BlockLayout {
            attn_norm: one("input_layernorm.weight")?,
            qkv: self.linear(layer, biases.qkv, "self_attn.q_proj", "self_attn.v_proj")?,
            head_norms: match config.block.qk_norm {
                QkNorm::Head => Some([
                    one("self_attn.q_norm.weight")?,
                    one("self_attn.k_norm.weight")?,
                ]),
                _ => None,
            },
            out: self.linear(layer, biases.out, "self_attn.o_proj", "self_attn.o_proj")?,
            mlp_norm: one("post_attention_layernorm.weight")?,
            gate_up: self.linear(layer, biases.mlp, "mlp.gate_proj", "mlp.up_proj")?,
            down: self.linear(layer, biases.mlp, "mlp.down_proj", "mlp.down_proj")?,
        })
    }
}

impl Layout {
    /// The layout of a model that can be trained.
    pub(crate) fn new(config: &LmConfig) -> Result<Self, LmError> {
        Self::of(config, 0, expected_tensors(config), None)
    }

    /// The layout of the last `blocks` blocks of such a model.
    pub(crate) fn tail(config: &LmConfig, blocks: usize) -> Result<Self, LmError> {
        let first = first_of_last(config, blocks)?;
        let mut tensors = tail_tensors(config, first);
        let shape = vec![config.vocab_size, config.hidden_size];
        tensors.push((head_name(config).to_owned(), shape));
        Self::of(config, first, tensors, Some(head_name(config)))
    }

    /// The layout of these tensors. If `frozen` is given, it is the last one and is not trained.
    fn of(
        config: &LmConfig,
        first: usize,
        tensors: Vec<(String, Vec<usize>)>,
        frozen: Option<&str>,
    ) -> Result<Self, LmError> {
        config.check_trainable()?;
        let mut len = 0;
        let places = tensors.iter().map(|(name, shape)| {
            let start = len;
            len += shape.iter().product::<usize>();
            (name.clone(), start..len)
        });
        let places = Places(places.collect());
        let blocks = (first..config.num_layers).map(|layer| places.block(config, layer));
        Ok(Self {
            blocks: blocks.collect::<Result<_, _>>()?,
            embedding: match frozen {
                None => Some(places.find(EMBEDDING)?),
                Some(_) => None,
            },
            first,
            norm: places.find(FINAL_NORM)?,
            head: places.find(head_name(config))?,
            learns: match frozen {
                None => len,
                Some(head) => places.find(head)?.start,
            },
            len,
            config: config.clone(),
            tensors,
        })
    }

    /// Layer properties of a block of the layout.
    pub(crate) fn layer(&self, block: usize) -> Layer {
        self.config.layer(self.first + block)
    }

    /// Names, shapes and ranges of the trained tensors.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&str, &[usize], Range<usize>)> {
        let (learns, mut end) = (self.learns, 0);
        let all = self.tensors.iter().map(move |(name, shape)| {
            let start = end;
            end += shape.iter().product::<usize>();
            (name.as_str(), shape.as_slice(), start..end)
        });
        all.take_while(move |(_, _, at)| at.end <= learns)
    }

    /// Converts a checkpoint to a flat vector.
    pub(crate) fn flatten(&self, checkpoint: &Checkpoint) -> Result<Vec<f32>, LmError> {
        let mut flat = Vec::with_capacity(self.len);
        for (name, _) in &self.tensors {
            flat.extend_from_slice(&checkpoint.tensor(name)?.data);
        }
        Ok(flat)
    }

    /// Writes the trained values of a flat vector over tensors of the same names and shapes.
    pub(crate) fn write(&self, flat: &[f32], tensors: &mut BTreeMap<String, HostTensor>) {
        for (name, _, at) in self.tensors() {
            if let Some(tensor) = tensors.get_mut(name) {
                tensor.data.copy_from_slice(&flat[at]);
            }
        }
    }

    /// The trained values of a flat vector as tensors by name.
    pub(crate) fn unflatten(&self, flat: &[f32]) -> BTreeMap<String, HostTensor> {
        let tensor = |(name, shape, at): (&str, &[usize], Range<usize>)| {
            let (shape, data) = (shape.to_vec(), flat[at].to_vec());
            (name.to_owned(), HostTensor { shape, data })
        };
        self.tensors().map(tensor).collect()
    }
}

/// Name of the output head.
fn head_name(config: &LmConfig) -> &'static str {
    match config.tie_word_embeddings {
        true => EMBEDDING,
        false => HEAD,
    }
}
