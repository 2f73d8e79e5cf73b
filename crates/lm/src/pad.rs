//! Cost padding: blocks and inner columns that cost as much as real ones and change nothing.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::checkpoint::HostTensor;
use crate::init::{INIT_STD, normal};
use crate::names::{block_tensors, constant_start};
use crate::{Checkpoint, in_layer};

/// Seed of the padding weights; the block's index selects the stream.
const PAD_SEED: u64 = 0x9ad;

impl Checkpoint {
    /// The same function with `extra` more blocks after the last one. They have normal weights with
    /// standard deviation 0.02, unit norms, zero biases, and zeros in the two projections that
    /// write to the residual stream (`o_proj`, `down_proj`).
    ///
    /// A padded model replaces a larger one in measurements of step times (the paper's drafter step
    /// takes 0.07 of a target step, Table 8). Every padding block has its own memory, is multiplied
    /// like any other and has its own part of the KV cache. Logits equal the unpadded model's bit
    /// for bit, because a padding block adds only sums of products with zero to the residual
    /// stream.
    ///
    /// Padding is nested: the first blocks of a longer padding are those of a shorter one.
    #[must_use]
    pub fn pad_layers(mut self, extra: usize) -> Self {
        let first = self.config.num_layers;
        self.config.num_layers += extra;
        for layer in first..self.config.num_layers {
            let mut rng = ChaCha8Rng::seed_from_u64(PAD_SEED);
            rng.set_stream(layer as u64);
            for (part, shape) in block_tensors(&self.config) {
                let count = shape.iter().product();
                let data = match constant_start(&self.config, part) {
                    Some(value) => vec![value; count],
                    None if part.ends_with("o_proj.weight")
                        || part.ends_with("down_proj.weight") =>
                    {
                        vec![0.0; count]
                    }
                    None => normal(&mut rng, INIT_STD, count),
                };
                self.tensors
                    .insert(in_layer(layer, part), HostTensor { shape, data });
            }
        }
        self
    }

    /// The same function with `extra` more inner columns in every MLP, with normal weights of
    /// standard deviation 0.02 into them and zeros out of them.
    ///
    /// A model of many narrow blocks spends most of its time outside matrix products, where scoring
    /// five tokens costs five times as much as one. A wide model spends it reading weights, as the
    /// large models do that it replaces. Logits equal the unpadded model's bit for bit in f32 and
    /// bf16, because a padding column adds a product with zero. With quantised weights it could
    /// share the scale of a group with real columns.
    #[must_use]
    pub fn pad_width(mut self, extra: usize) -> Self {
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        self.config.intermediate_size += extra;
        for layer in 0..self.config.num_layers {
            let mut rng = ChaCha8Rng::seed_from_u64(PAD_SEED);
            rng.set_stream(u64::from(u32::MAX) + layer as u64);
            for part in ["mlp.gate_proj.bias", "mlp.up_proj.bias"] {
                if let Some(tensor) = self.tensors.get_mut(&in_layer(layer, part)) {
                    tensor.shape[0] += extra;
                    tensor.data.resize(tensor.data.len() + extra, 0.0);
                }
            }
            for part in ["mlp.gate_proj.weight", "mlp.up_proj.weight"] {
                let idle = normal(&mut rng, INIT_STD, extra * hidden);
                if let Some(tensor) = self.tensors.get_mut(&in_layer(layer, part)) {
                    tensor.shape[0] += extra;
                    tensor.data.extend(idle);
                }
            }
            let down = in_layer(layer, "mlp.down_proj.weight");
            if let Some(tensor) = self.tensors.get_mut(&down) {
                let mut wide = Vec::with_capacity(hidden * (inner + extra));
                for row in tensor.data.chunks_exact(inner) {
                    wide.extend_from_slice(row);
                    wide.resize(wide.len() + extra, 0.0);
                }
                tensor.shape[1] += extra;
                tensor.data = wide;
            }
        }
        self
    }
}
