//! The random events of the loop, and the named random streams.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::LawError;
use crate::sampling::sum;

/// The only two random events of speculative decoding.
///
/// They are a trait so that tests can enumerate every outcome instead of drawing one.
pub trait Chance {
    /// True with probability `min(1, p / q)`; `p >= 0`, `q > 0`. Never true for `p = 0`.
    fn accept(&mut self, p: f64, q: f64) -> bool;

    /// An index, drawn in proportion to `weights` (non-negative, need not sum to 1).
    ///
    /// # Errors
    /// [`LawError::NoMass`] if the weights do not add up to a positive finite number.
    fn pick(&mut self, weights: &[f64]) -> Result<usize, LawError>;
}

/// Purpose of a random stream. Every purpose has its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// The drafter's samples.
    Draft = 1,
    /// Acceptance tests, and draws of residual and bonus tokens.
    Verify = 2,
    /// Plain decoding without a drafter.
    Plain = 3,
    /// Initial weights and batches of an acceptance head.
    Head = 4,
}

/// Name of the random streams of one response: root seed, prompt, sample.
///
/// A stream depends only on its name, so resuming a run at prompt 500 or leaving prompts out does
/// not change the tokens of any other prompt.
///
/// A name is used once by whatever shares an n-gram cache, a history of texts or learnt weights.
/// These depend on the draws of the first answer, which a second one under its name would repeat:
/// the second would not follow the target's probabilities given the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamName {
    /// Root seed of the run.
    pub seed: u64,
    /// Index of the prompt in the stream.
    pub prompt: u64,
    /// Index among several responses to the same prompt.
    pub sample: u32,
}

impl StreamName {
    /// The first response to prompt `prompt` under `seed`.
    pub fn new(seed: u64, prompt: u64) -> Self {
        Self {
            seed,
            prompt,
            sample: 0,
        }
    }

    /// The stream for one purpose: ChaCha8 keyed by the name, the same on all platforms.
    pub fn dice(self, purpose: Purpose) -> Dice {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&self.prompt.to_le_bytes());
        key[16..20].copy_from_slice(&self.sample.to_le_bytes());
        key[20] = purpose as u8;
        Dice(ChaCha8Rng::from_seed(key))
    }
}

/// A ChaCha8 stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Uniform in `[0, 1)` with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

impl Chance for Dice {
    fn accept(&mut self, p: f64, q: f64) -> bool {
        self.uniform() * q < p
    }

    fn pick(&mut self, weights: &[f64]) -> Result<usize, LawError> {
        let blocks = Blocks::new(weights);
        let total = sum(blocks.sums());
        if !(total > 0.0 && total.is_finite()) {
            return Err(LawError::NoMass {
                candidates: weights.len(),
            });
        }
        Ok(blocks.place(self.uniform() * total))
    }
}

/// Largest number of blocks of weights.
const BLOCKS: usize = 256;
/// Least number of weights of a block.
const BLOCK: usize = 512;

/// Weights with sums of blocks, so that a search skips most weights.
struct Blocks<'a> {
    weights: &'a [f64],
    length: usize,
    sums: [f64; BLOCKS],
}

impl<'a> Blocks<'a> {
    fn new(weights: &'a [f64]) -> Self {
        let length = weights.len().div_ceil(BLOCKS).max(BLOCK);
        let mut sums = [0.0; BLOCKS];
        for (held, block) in sums.iter_mut().zip(weights.chunks(length)) {
            *held = sum(block);
        }
        Self {
            weights,
            length,
            sums,
        }
    }

    fn sums(&self) -> &[f64] {
        &self.sums[..self.weights.len().div_ceil(self.length)]
    }

    /// The index at which the running sum of the weights, some of which are positive, first exceeds
    /// `left`. Rounding can leave a remainder of a few ulps after the last positive weight, which
    /// is then the answer.
    fn place(&self, mut left: f64) -> usize {
        let blocks = self.weights.chunks(self.length).zip(self.sums());
        for (block, (weights, &all)) in blocks.enumerate() {
            // If the remainder is within rounding of a block's end, the search continues in the
            // block.
            if left > all * (1.0 + 1e-12) {
                left -= all;
                continue;
            }
            for (index, &weight) in weights.iter().enumerate() {
                if weight > 0.0 {
                    left -= weight;
                    if left < 0.0 {
                        return block * self.length + index;
                    }
                }
            }
        }
        let last = self.weights.iter().rposition(|&weight| weight > 0.0);
        last.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_pinned_and_independent() {
        let first = |name: StreamName, purpose| name.dice(purpose).0.next_u64();
        let name = StreamName::new(7, 3);
        let values = [
            first(name, Purpose::Draft),
            first(name, Purpose::Verify),
            first(StreamName::new(7, 4), Purpose::Draft),
            first(StreamName::new(8, 3), Purpose::Draft),
            first(StreamName { sample: 1, ..name }, Purpose::Draft),
        ];
        // The first eight bytes of ChaCha8 under each key, by another implementation.
        let pinned: [u64; 5] = [
            0x4b12_6e74_6307_27cd,
            0xf312_f5b0_d38c_02d1,
            0x7d17_c69f_ec28_84fc,
            0xc9e7_caa4_1932_d935,
            0x37e4_53f5_2f9b_a6eb,
        ];
        assert_eq!(values, pinned);
    }

    #[test]
    fn picks_follow_the_weights() {
        let mut dice = StreamName::new(1, 0).dice(Purpose::Plain);
        let mut counts = [0u32; 4];
        for _ in 0..20_000 {
            counts[dice.pick(&[1.0, 0.0, 3.0, 0.0]).unwrap()] += 1;
        }
        assert_eq!((counts[1], counts[3]), (0, 0));
        assert!((f64::from(counts[0]) - 5000.0).abs() < 300.0, "{counts:?}");
    }

    #[test]
    fn places_in_long_rows_are_those_of_the_running_sum() {
        for length in [1, 511, 512, 513, 2000, 5000, 200_000] {
            // Integers, so that no sum is rounded; a third of them, and whole blocks, are zero.
            let weight = |i: usize| match (i % 3, i / 700 % 2) {
                (0, _) | (_, 1) => 0.0,
                _ => (i % 7 + 1) as f64,
            };
            let mut weights: Vec<f64> = (0..length).map(weight).collect();
            weights[length / 2] = 1.0;
            let total: f64 = weights.iter().sum();
            let mut at = 0;
            let mut below = weights[0];
            let blocks = Blocks::new(&weights);
            for left in (0..total as usize).step_by(1 + length / 5001) {
                while below <= left as f64 {
                    at += 1;
                    below += weights[at];
                }
                assert_eq!(blocks.place(left as f64), at, "{length} {left}");
            }
            let last = weights.iter().rposition(|&w| w > 0.0);
            assert_eq!(Some(blocks.place(total * 1.001)), last);
        }
    }

    #[test]
    fn acceptance_follows_the_ratio() {
        let mut dice = StreamName::new(2, 0).dice(Purpose::Verify);
        let accepted = (0..20_000).filter(|_| dice.accept(0.1, 0.4)).count();
        assert!((accepted as f64 - 5000.0).abs() < 300.0, "{accepted}");
        assert!((0..1000).all(|_| dice.accept(0.4, 0.4) && !dice.accept(0.0, 0.4)));
    }

    #[test]
    fn no_mass_is_an_error() {
        let mut dice = StreamName::new(1, 0).dice(Purpose::Plain);
        assert!(dice.pick(&[0.0, 0.0]).is_err());
        assert!(dice.pick(&[f64::NAN]).is_err());
        assert!(dice.pick(&[]).is_err());
    }
}
