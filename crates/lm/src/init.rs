//! Fresh weights for pretraining and for benchmarks.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::checkpoint::HostTensor;
use crate::names::{constant_start, expected_tensors};
use crate::source::{RowBuffer, TensorSource};
use crate::{Checkpoint, LmConfig, LmError};

/// Standard deviation of freshly drawn projection weights.
pub(crate) const INIT_STD: f32 = 0.02;

/// A randomly initialised model: normal weights with standard deviation 0.02 (residual output
/// projections are scaled down by `sqrt(2 * layers)`), unit norms, zero biases. The same seed gives
/// the same weights on every machine.
pub fn random_checkpoint(config: &LmConfig, seed: u64) -> Checkpoint {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let residual = INIT_STD / (2.0 * config.num_layers as f32).sqrt();
    let tensors: BTreeMap<_, _> = expected_tensors(config)
        .into_iter()
        .map(|(name, shape)| {
            let count = shape.iter().product();
            let data = match constant_start(config, &name) {
                Some(value) => vec![value; count],
                None => {
                    let ends_branch =
                        name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
                    let deviation = if ends_branch { residual } else { INIT_STD };
                    normal(&mut rng, deviation, count)
                }
            };
            (name, HostTensor { shape, data })
        })
        .collect();
    Checkpoint {
        config: config.clone(),
        tensors,
    }
}

/// Normal numbers with mean zero and standard deviation `std`. They are drawn by Box-Muller on the
/// portable generator, since the float path of `rand` itself is not pinned across versions.
pub fn normal(rng: &mut ChaCha8Rng, std: f32, count: usize) -> Vec<f32> {
    use rand::Rng;
    let mut uniform = || (f64::from(rng.next_u32()) + 0.5) / 4_294_967_296.0;
    (0..count)
        .map(|_| {
            let radius = (-2.0 * uniform().ln()).sqrt();
            let angle = 2.0 * std::f64::consts::PI * uniform();
            (radius * angle.cos()) as f32 * std
        })
        .collect()
}

/// Bound of uniform weights whose standard deviation is [`INIT_STD`].
const BOUND: f32 = 0.034_641;

/// Random weights for timing shapes. Rows are computed when they are read, and no others are in
/// memory. Projections and embeddings are uniform with standard deviation 0.02, in numbers that
/// bf16 holds exactly, like those of most checkpoints; norms are unit, biases zero. The same seed
/// gives the same weights.
#[derive(Clone, Debug)]
pub struct RandomWeights {
    config: LmConfig,
    /// Index in the architecture and shape, by name.
    tensors: HashMap<String, (u64, Vec<usize>)>,
    seed: u64,
}

impl RandomWeights {
    /// The weights of a model in the shape of `config`.
    pub fn new(config: &LmConfig, seed: u64) -> Self {
        let tensors = expected_tensors(config).into_iter().zip(0..);
        Self {
            config: config.clone(),
            tensors: tensors
                .map(|((name, shape), i)| (name, (i, shape)))
                .collect(),
            seed,
        }
    }
}

impl TensorSource for RandomWeights {
    fn config(&self) -> &LmConfig {
        &self.config
    }

    fn rows<'a>(
        &'a self,
        name: &str,
        rows: Range<usize>,
        buffer: &'a mut RowBuffer,
    ) -> Result<&'a [f32], LmError> {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let Some((index, shape)) = self.tensors.get(name) else {
            return Err(LmError::missing("(random weights)", name));
        };
        let width: usize = shape.iter().skip(1).product();
        let values = &mut buffer.own;
        values.clear();
        if let Some(value) = constant_start(&self.config, name) {
            values.resize(rows.len() * width, value);
            return Ok(values);
        }
        let before = ((rows.start * width) as u64).wrapping_mul(STEP);
        let mut state = (self.seed ^ (index << 32)).wrapping_add(before);
        values.extend((0..rows.len() * width).map(|_| {
            // SplitMix64; the upper half of its output suffices for a weight.
            state = state.wrapping_add(STEP);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let weight = ((z >> 32) as i32 as f32) * (BOUND / 2_147_483_648.0);
            half::bf16::from_f32(weight).to_f32()
        }));
        Ok(values)
    }

    fn is_bf16(&self, name: &str) -> Option<bool> {
        self.tensors.contains_key(name).then_some(true)
    }
}
