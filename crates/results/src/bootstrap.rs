//! Bootstrap intervals over prompts and seeds.
//!
//! Seeds share their prompts, so the two are crossed: a replicate draws seeds and prompts with
//! replacement, and weights every answer by the number of times that its seed and its prompt were
//! drawn. The draws depend on the group and not on the arm, so that replicates of two arms are
//! paired: their ratio, replicate by replicate, is the bootstrap of the ratio. Groups (tasks,
//! targets) are drawn independently of each other, but for the seeds of segments of one stream,
//! which are the same drafters.

use crate::Sums;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Number of replicates of every interval.
pub const RESAMPLES: usize = 2000;

/// Share of the replicates inside an interval.
const COVERAGE: f64 = 0.95;

/// Fixed seed of all draws: the same rows always give the same interval.
const SEED: u64 = 0x0b00_7572;

/// A prompt across arms and seeds: segment and identifier.
pub type PromptKey = (u32, String);

/// The seeds and prompts of one group, over all its arms.
#[derive(Debug, Clone)]
pub struct Group {
    name: String,
    shares_seeds: bool,
    seeds: Vec<u64>,
    prompts: BTreeMap<PromptKey, usize>,
}

/// One arm's sums of one metric in a group: seed, prompt, sums.
#[derive(Debug, Clone, Default)]
pub struct Series {
    items: Vec<(u32, u32, Sums)>,
}

/// A value with its replicates, through which ratios and means get their intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The value over all answers.
    pub value: f64,
    /// The value of every replicate, NaN if it is not defined; empty without a bootstrap.
    replicates: Vec<f64>,
}

/// Lower and upper end of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Group {
    /// A group with the seeds and prompts of all its answers; the name seeds its draws.
    pub fn new(name: &str, answers: impl IntoIterator<Item = (u64, PromptKey)>) -> Self {
        let (mut seeds, mut prompts) = (BTreeSet::new(), BTreeMap::new());
        for (seed, prompt) in answers {
            seeds.insert(seed);
            prompts.insert(prompt, 0);
        }
        for (index, slot) in prompts.values_mut().enumerate() {
            *slot = index;
        }
        Self {
            name: name.to_owned(),
            shares_seeds: false,
            seeds: seeds.into_iter().collect(),
            prompts,
        }
    }

    /// Draws the seeds as all other groups that share them do, for groups whose answers come from
    /// the same drafters: those of the segments of one stream.
    pub fn share_seeds(&mut self) {
        self.shares_seeds = true;
    }

    /// Number of seeds.
    pub fn seeds(&self) -> usize {
        self.seeds.len()
    }

    /// Number of distinct prompts.
    pub fn prompts(&self) -> usize {
        self.prompts.len()
    }

    /// Adds an answer to a series; an answer outside of the group is ignored.
    pub fn push(&self, series: &mut Series, seed: u64, prompt: &PromptKey, sums: Sums) {
        let seed = self.seeds.binary_search(&seed).ok();
        if let (Some(seed), Some(&prompt)) = (seed, self.prompts.get(prompt)) {
            series.items.push((seed as u32, prompt as u32, sums));
        }
    }

    /// The estimates of several series under the same draws; `None` for a value that is not
    /// defined.
    pub fn estimate(&self, series: &[Series]) -> Vec<Option<Estimate>> {
        let values: Vec<Option<f64>> = series
            .iter()
            .map(|series| Sums::total(series.items.iter().map(|item| item.2)))
            .collect();
        let drawn = self.seeds.len() > 1 || self.prompts.len() > 1;
        let resamples = if drawn { RESAMPLES } else { 0 };
        let mut replicates = vec![Vec::with_capacity(resamples); series.len()];
        let mut rng = ChaCha8Rng::seed_from_u64(SEED ^ fnv(&self.name));
        // One seed is always drawn, and needs no dice of its own.
        let shared = self.shares_seeds && self.seeds.len() > 1;
        let mut of_seeds = shared.then(|| ChaCha8Rng::seed_from_u64(SEED ^ fnv("seeds")));
        for _ in 0..resamples {
            let seeds = draw(self.seeds.len(), of_seeds.as_mut().unwrap_or(&mut rng));
            let prompts = draw(self.prompts.len(), &mut rng);
            for (series, replicates) in series.iter().zip(&mut replicates) {
                let mut sums = Sums::default();
                for (seed, prompt, item) in &series.items {
                    let weight = |weights: &[f64], at: u32| weights.get(at as usize).copied();
                    let seed = weight(&seeds, *seed).unwrap_or(0.0);
                    let prompt = weight(&prompts, *prompt).unwrap_or(0.0);
                    if seed * prompt > 0.0 {
                        sums.add(item, seed * prompt);
                    }
                }
                replicates.push(sums.value().unwrap_or(f64::NAN));
            }
        }
        let both = values.into_iter().zip(replicates);
        both.map(|(value, replicates)| value.map(|value| Estimate { value, replicates }))
            .collect()
    }
}

/// Number of times that each of `count` items is drawn in `count` draws.
fn draw(count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut weights = vec![0.0; count];
    for _ in 0..count {
        weights[rng.random_range(0..count)] += 1.0;
    }
    weights
}

/// FNV-1a, a hash that does not change between releases.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Estimate {
    /// The central 95% of the replicates; `None` without replicates, or if more than a tenth of
    /// them are not defined.
    pub fn interval(&self) -> Option<Interval> {
        let mut sorted: Vec<f64> = self.replicates.clone();
        sorted.retain(|value| value.is_finite());
        if sorted.is_empty() || sorted.len() * 10 < self.replicates.len() * 9 {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let tail = (1.0 - COVERAGE) / 2.0;
        Some(Interval {
            low: quantile(&sorted, tail)?,
            high: quantile(&sorted, 1.0 - tail)?,
        })
    }

    /// The ratio of this to another one, replicate by replicate; `None` if it is not finite.
    pub fn over(&self, other: &Self) -> Option<Self> {
        let value = self.value / other.value;
        let pairs = self.replicates.iter().zip(&other.replicates);
        value.is_finite().then(|| Self {
            value,
            replicates: pairs.map(|(above, below)| above / below).collect(),
        })
    }

    /// The arithmetic mean of several; `None` of an empty list.
    pub fn mean(estimates: &[&Self]) -> Option<Self> {
        let count = estimates.len() as f64;
        let lengths = estimates.iter().map(|own| own.replicates.len());
        let length = lengths.min()?;
        let replicate = |at: usize| {
            let values = estimates.iter().filter_map(|own| own.replicates.get(at));
            values.sum::<f64>() / count
        };
        Some(Self {
            value: estimates.iter().map(|own| own.value).sum::<f64>() / count,
            replicates: (0..length).map(replicate).collect(),
        })
    }
}

/// The q-quantile of sorted values, with linear interpolation.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let position = q * (sorted.len().checked_sub(1)? as f64);
    let below = *sorted.get(position.floor() as usize)?;
    let above = *sorted.get(position.ceil() as usize)?;
    Some(below + (position - position.floor()) * (above - below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A group of `prompts` x `seeds` with a series each of functions of (seed, prompt).
    fn estimates(
        seeds: u64,
        prompts: u32,
        sums: &[&dyn Fn(u64, u32) -> Sums],
    ) -> Vec<Option<Estimate>> {
        let key = |prompt: u32| (0, format!("p{prompt:04}"));
        let answers = || (0..seeds).flat_map(|seed| (0..prompts).map(move |p| (seed, p)));
        let group = Group::new("g", answers().map(|(seed, p)| (seed, key(p))));
        let series: Vec<Series> = sums
            .iter()
            .map(|sums| {
                let mut series = Series::default();
                for (seed, p) in answers() {
                    group.push(&mut series, seed, &key(p), sums(seed, p));
                }
                series
            })
            .collect();
        group.estimate(&series)
    }

    fn one(seeds: u64, prompts: u32, sums: &dyn Fn(u64, u32) -> Sums) -> Estimate {
        estimates(seeds, prompts, &[sums]).remove(0).unwrap()
    }

    #[test]
    fn quantiles_by_hand() {
        let values = [1.0, 2.0, 3.0, 5.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.5), Some(2.5));
        assert_eq!(quantile(&values, 1.0), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn prompts_give_the_interval_that_theory_says() {
        // Seconds alternate between 1 and 2 per 10 tokens against 3: ratio 3 / mean(seconds). Over
        // 100 prompts the mean of the seconds is 1.5 with standard error 0.05, so the interval is
        // about 3/1.598 to 3/1.402.
        let estimate = one(1, 100, &|_, p| Sums {
            above: 10.0,
            below: 1.0 + f64::from(p % 2),
            base_above: 10.0,
            base_below: 3.0,
        });
        assert_eq!(estimate.value, 2.0);
        let interval = estimate.interval().unwrap();
        assert!((interval.low - 1.877).abs() < 0.02, "{interval:?}");
        assert!((interval.high - 2.140).abs() < 0.02, "{interval:?}");
    }

    #[test]
    fn seeds_widen_the_interval() {
        // All prompts are alike and seeds differ: with three seeds 0, 1, 2 the extreme draws (one
        // seed three times) have 1/27 each, more than 2.5%.
        let estimate = one(3, 50, &|seed, _| Sums::of(seed as f64, 1.0));
        assert_eq!(estimate.value, 1.0);
        let interval = estimate.interval().unwrap();
        assert_eq!((interval.low, interval.high), (0.0, 2.0));
        // One seed: the interval is over prompts alone, and these are alike.
        let interval = one(1, 50, &|_, _| Sums::of(1.0, 2.0)).interval().unwrap();
        assert_eq!((interval.low, interval.high), (0.5, 0.5));
    }

    #[test]
    fn ratios_are_paired() {
        // The sizes of prompts differ a thousandfold, and the second arm is always twice the first.
        let size = |p: u32| f64::from(1 + p * p);
        let both = estimates(
            2,
            40,
            &[&|_, p| Sums::of(size(p), 1.0), &|_, p| {
                Sums::of(2.0 * size(p), 1.0)
            }],
        );
        let [a, b] = [both[0].clone().unwrap(), both[1].clone().unwrap()];
        let ratio = b.over(&a).unwrap();
        let interval = ratio.interval().unwrap();
        assert_eq!((ratio.value, interval.low, interval.high), (2.0, 2.0, 2.0));
        assert!(a.interval().unwrap().high > 1.2 * a.value);
        let mean = Estimate::mean(&[&a, &b]).unwrap();
        assert!((mean.value - 1.5 * a.value).abs() < 1e-9);
    }

    #[test]
    fn segments_of_one_stream_share_their_seeds() {
        // The mean of two segments, in both of which the value is the seed's.
        let spread = |shared: bool| {
            let of = |name: &str| {
                let key = |p: u32| (0, format!("p{p}"));
                let answers = || (0..4u64).flat_map(|seed| (0..5).map(move |p| (seed, p)));
                let mut group = Group::new(name, answers().map(|(seed, p)| (seed, key(p))));
                if shared {
                    group.share_seeds();
                }
                let mut series = Series::default();
                for (seed, p) in answers() {
                    group.push(&mut series, seed, &key(p), Sums::of(seed as f64, 1.0));
                }
                group.estimate(&[series]).remove(0).unwrap()
            };
            let [a, b] = ["segment=1", "segment=2"].map(of);
            let interval = Estimate::mean(&[&a, &b]).unwrap().interval().unwrap();
            (interval.high - interval.low, a.interval().unwrap())
        };
        let ((alone, _), (shared, one)) = (spread(false), spread(true));
        assert!(
            (shared - (one.high - one.low)).abs() < 1e-9,
            "{shared} {one:?}"
        );
        assert!(shared > 1.2 * alone, "{shared} {alone}");
    }

    #[test]
    fn nothing_to_draw_has_no_interval() {
        assert_eq!(one(1, 1, &|_, _| Sums::of(1.0, 2.0)).interval(), None);
        assert_eq!(Estimate::mean(&[]), None);
        assert_eq!(estimates(1, 3, &[&|_, _| Sums::of(0.0, 0.0)]), [None]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn identical_answers_are_a_point(
            seeds in 1u64..4, prompts in 2u32..12, above in 0.1f64..9.0, below in 0.1f64..9.0,
        ) {
            let estimate = one(seeds, prompts, &|_, _| Sums::of(above, below));
            let interval = estimate.interval().unwrap();
            prop_assert!((estimate.value - above / below).abs() < 1e-9);
            prop_assert!((interval.low - estimate.value).abs() < 1e-9);
            prop_assert!((interval.high - estimate.value).abs() < 1e-9);
        }

        #[test]
        fn intervals_scale_with_the_numbers(prompts in 3u32..20, factor in 0.1f64..10.0) {
            let sums = |scale: f64| move |seed: u64, p: u32| {
                Sums::of(scale * f64::from(p + seed as u32), 1.0 + f64::from(p % 3))
            };
            let plain = one(2, prompts, &sums(1.0)).interval().unwrap();
            let scaled = one(2, prompts, &sums(factor)).interval().unwrap();
            prop_assert!((scaled.low - factor * plain.low).abs() < 1e-9 * factor.max(1.0) * 100.0);
            prop_assert!((scaled.high - factor * plain.high).abs() < 1e-9 * factor.max(1.0) * 100.0);
            prop_assert!(plain.low <= plain.high);
        }
    }
}
