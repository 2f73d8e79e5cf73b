//! Fresh weights for pretraining and for benchmarks.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::checkpoint::HostTensor;
use crate::names::{constant_start, expected_tensors};
use crate::{Checkpoint, LmConfig};

/// Standard deviation of freshly drawn projection weights.
pub(crate) const INIT_STD: f32 = 0.02;

/// A randomly initialised model: normal weights with deviation 0.02 (residual output projections
/// scaled down by `sqrt(2 * layers)`), unit norms, zero biases. The same seed gives the same
/// weights on every machine.
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

/// Normal numbers around zero with deviation `std`: Box-Muller on the portable generator, since the
/// float path of `rand` itself is not pinned across versions.
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
