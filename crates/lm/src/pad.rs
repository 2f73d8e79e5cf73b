//! Cost padding: inner columns that cost as much as real ones and change nothing.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::init::{INIT_STD, normal};
use crate::{Checkpoint, in_layer};

/// Seed of the padding weights; the block's index selects the stream.
const PAD_SEED: u64 = 0x9ad;

impl Checkpoint {
    /// The same function with `extra` more inner columns in every MLP, with normal weights of
    /// standard deviation 0.02 into them and zeros out of them.
    ///
    /// A padded model replaces a larger one in measurements of step times (the paper's drafter step
    /// takes 0.07 of a target step, Table 8). A model of many narrow blocks spends most of its time
    /// outside matrix products, where scoring five tokens costs five times as much as one. A wide
    /// model spends it reading weights, as the large models do that it replaces. Logits equal the
    /// unpadded model's bit for bit in f32 and bf16, because a padding column adds a product with
    /// zero. With quantised weights it could share the scale of a group with real columns.
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
