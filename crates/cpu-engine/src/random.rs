//! Random weights as fast as memory takes them, for timing shapes without a checkpoint.

use std::borrow::Cow;
use std::collections::HashMap;

use lm::{LmConfig, LmError, constant_start, expected_tensors};

use crate::weights::TensorSource;

/// Bound of the uniform weights: their deviation is 0.02, as after initialisation.
const BOUND: f32 = 0.034_641;

/// Uniform projections and embeddings that bf16 holds, as those of most checkpoints, unit norms, zero
/// biases.
pub(crate) struct RandomWeights {
    /// Position in the architecture and number of values.
    tensors: HashMap<String, (u64, usize)>,
    config: LmConfig,
    seed: u64,
}

impl RandomWeights {
    pub(crate) fn new(config: &LmConfig, seed: u64) -> Self {
        let tensors = expected_tensors(config)
            .into_iter()
            .zip(0..)
            .map(|((name, shape), i)| (name, (i, shape.iter().product())))
            .collect();
        Self {
            tensors,
            config: config.clone(),
            seed,
        }
    }
}

impl TensorSource for RandomWeights {
    fn values(&self, name: &str) -> Result<Cow<'_, [f32]>, LmError> {
        let Some(&(index, len)) = self.tensors.get(name) else {
            return Err(LmError::MissingTensor {
                path: "(random weights)".into(),
                tensor: name.to_owned(),
            });
        };
        let values = if let Some(value) = constant_start(&self.config, name) {
            vec![value; len]
        } else {
            let mut state = self.seed ^ (index << 32);
            std::iter::repeat_with(|| {
                // SplitMix64; the upper half of the output is enough for a weight.
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let weight = ((z >> 32) as i32 as f32) * (BOUND / 2_147_483_648.0);
                half::bf16::from_f32(weight).to_f32()
            })
            .take(len)
            .collect()
        };
        Ok(Cow::Owned(values))
    }
}
