//! Curves over a stream: trailing averages over the number of prompts.

use crate::estimates::extent;
use crate::streams::{Segment, Streams, over};
use results::{Answer, Metric, Sums};

/// Mean over seeds, with the minimum and maximum over seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Band {
    /// Summarises one value per seed; `None` if a seed has no value or if there are no seeds.
    pub fn of(values: &[Option<f64>]) -> Option<Self> {
        let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
        let (low, high) = extent(values.iter().copied());
        (!values.is_empty()).then(|| Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low,
            high,
        })
    }
}

/// The bands of the positions that every seed has, with their numbers from 1; `None` without seeds.
pub fn bands(seeds: &[Vec<f64>]) -> Option<Vec<(usize, Band)>> {
    let length = seeds.iter().map(Vec::len).min()?;
    let band = |at: usize| {
        let values: Vec<_> = seeds.iter().map(|own| own.get(at).copied()).collect();
        Some((at + 1, Band::of(&values)?))
    };
    Some((0..length).filter_map(band).collect())
}

/// One arm's trailing averages of a metric in one segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    pub arm: String,
    pub segment: u32,
    /// Number of prompts of the segment so far, and the average over the window that ends there.
    pub points: Vec<(usize, Band)>,
}

/// Length of the trailing window in prompts: an eighth of the shortest segment, from 5 to 50.
pub fn window(segments: &[Segment]) -> usize {
    let shortest = segments.iter().map(|s| s.prompts).min().unwrap_or(0);
    (shortest / 8).clamp(5, 50)
}

/// Number of prompts of a segment before its first point: averages of fewer would be noise.
pub fn warm_up(window: usize) -> usize {
    window.div_ceil(3)
}

/// The curve of every drafting arm in every segment. Windows do not cross the start of a segment,
/// so that a switch shows at once.
pub fn curves(streams: &Streams, metric: Metric, window: usize) -> Vec<Curve> {
    let arms: Vec<&str> = streams.drafting().collect();
    curves_by(streams, &arms, window, &|answer| metric.sums(answer))
}

/// Like [`curves`], for a ratio given by its sums per answer.
pub fn curves_by(
    streams: &Streams,
    arms: &[&str],
    window: usize,
    sums: &dyn Fn(&Answer) -> Option<Sums>,
) -> Vec<Curve> {
    curves_of(streams, arms, window, &|arm, segment, seed, from, to| {
        let recent = streams.stream(arm, segment, seed).get(from..to)?;
        Sums::total(recent.iter().copied().filter_map(sums))
    })
}

/// Curves of a metric divided by that of `reference` on the same prompts, which removes the effect
/// of the prompts.
pub fn ratio_curves(
    streams: &Streams,
    metric: Metric,
    arms: &[&str],
    reference: &str,
    window: usize,
) -> Vec<Curve> {
    curves_of(streams, arms, window, &|arm, segment, seed, from, to| {
        let value = |arm: &str| {
            let recent = streams.stream(arm, segment, seed).get(from..to)?;
            over(metric, recent.iter().copied())
        };
        let ratio = value(arm)? / value(reference)?;
        ratio.is_finite().then_some(ratio)
    })
}

/// The value of an arm in a segment with a seed, over the answers in a range of positions.
type ValueOf<'a> = &'a dyn Fn(&str, u32, u64, usize, usize) -> Option<f64>;

fn curves_of(streams: &Streams, arms: &[&str], window: usize, value: ValueOf) -> Vec<Curve> {
    let mut curves = Vec::new();
    for segment in &streams.segments {
        for arm in arms {
            let Some(seeds) = streams.by_seed(arm, segment.index) else {
                continue;
            };
            let length = seeds.values().map(Vec::len).min().unwrap_or(0);
            let point = |seen: usize| {
                let from = seen.saturating_sub(window);
                let values: Vec<_> = seeds
                    .keys()
                    .map(|seed| value(arm, segment.index, *seed, from, seen))
                    .collect();
                Band::of(&values).map(|band| (seen, band))
            };
            let points: Vec<_> = (warm_up(window)..=length).filter_map(point).collect();
            if !points.is_empty() {
                curves.push(Curve {
                    arm: (*arm).to_owned(),
                    segment: segment.index,
                    points,
                });
            }
        }
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_need_every_seed() {
        assert_eq!(
            Band::of(&[Some(1.0), Some(3.0)]),
            Some(Band {
                mean: 2.0,
                low: 1.0,
                high: 3.0
            })
        );
        assert_eq!(Band::of(&[Some(1.0), None]), None);
        assert_eq!(Band::of(&[]), None);
    }

    #[test]
    fn windows_follow_the_shortest_segment() {
        let segment = |prompts| Segment {
            index: 0,
            title: String::new(),
            prompts,
            task: String::new(),
            target: String::new(),
            other: Vec::new(),
        };
        assert_eq!(window(&[segment(160), segment(80)]), 10);
        assert_eq!(window(&[segment(3)]), 5);
        assert_eq!(window(&[segment(10_000)]), 50);
        assert_eq!(warm_up(10), 4);
    }
}
