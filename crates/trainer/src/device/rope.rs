//! Rotary position embeddings in the Hugging Face convention: the two halves of a head rotate
//! against each other (not neighbouring pairs).

use burn::tensor::{Device, Tensor, TensorData};
use lm::LmConfig;

/// Cosines and sines of the first positions, each `[positions, head_dim]`.
#[derive(Clone, Debug)]
pub(super) struct RopeTable {
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl RopeTable {
    /// Angles of positions `0..count`.
    pub(super) fn new(config: &LmConfig, count: usize, device: &Device) -> Self {
        let frequencies = config.rope.frequencies(config.max_context());
        let angles = (0..count).flat_map(|position| {
            frequencies
                .iter()
                .chain(&frequencies)
                .map(move |f| position as f64 * f)
        });
        let (cos, sin): (Vec<f32>, Vec<f32>) =
            angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
        let shape = [count, config.head_dim];
        Self {
            cos: Tensor::from_data(TensorData::new(cos, shape), device),
            sin: Tensor::from_data(TensorData::new(sin, shape), device),
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
