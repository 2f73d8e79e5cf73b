//! Rotary position embeddings in the Hugging Face convention: the two halves of a head rotate
//! against each other (not neighbouring pairs).

use burn::tensor::{Device, Tensor, TensorData};
use lm::LmConfig;
use lm::host::RotaryTable;

/// Cosines and sines of the first positions, each `[positions, head_dim]`.
#[derive(Clone, Debug)]
pub(super) struct RopeTable {
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl RopeTable {
    /// Angles of positions `0..count`.
    pub(super) fn new(config: &LmConfig, count: usize, device: &Device) -> Self {
        let table = RotaryTable::of_positions(&config.rope, config.max_context(), count);
        // Both halves of a head have the same angles.
        let twice = |half: &[f32]| -> Tensor<2> {
            let rows = half.chunks_exact(config.head_dim / 2);
            let both: Vec<f32> = rows.flat_map(|row| [row, row].concat()).collect();
            Tensor::from_data(TensorData::new(both, [count, config.head_dim]), device)
        };
        Self {
            cos: twice(table.cos()),
            sin: twice(table.sin()),
        }
    }

    /// Rotates `x`, `[batch, heads, positions, head_dim]`.
    pub(super) fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let half = x.dims()[3] / 2;
        let first = x.clone().narrow(3, 0, half);
        let second = x.clone().narrow(3, half, half);
        let rotated = Tensor::cat(vec![second.neg(), first], 3);
        x * self.cos.clone().unsqueeze() + rotated * self.sin.clone().unsqueeze()
    }
}
