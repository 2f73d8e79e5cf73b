//! Curves over the stream: trailing averages of acceptance and speedup over prompts seen.

use super::csv::{Csv, number};
use super::data::{RunData, Segment};
use crate::results::stats::{Timing, Totals};
use crate::results::{Phase, PromptRow};

/// Mean over seeds with the smallest and largest seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// Mean over seeds.
    pub mean: f64,
    /// Smallest of the seeds.
    pub low: f64,
    /// Largest of the seeds.
    pub high: f64,
}

impl Band {
    /// Summarises one value per seed; `None` when a seed has none.
    pub fn of(values: &[Option<f64>]) -> Option<Self> {
        let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
        if values.is_empty() {
            return None;
        }
        Some(Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// One arm's averages after a prompt of a segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Prompts of the segment seen, this one included.
    pub seen: usize,
    /// Acceptance rate over the trailing window.
    pub acceptance: Option<Band>,
    /// Speedup over the trailing window, as a ratio of totals.
    pub speedup: Option<Band>,
}

/// One arm in one segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Arm.
    pub arm: String,
    /// Segment number.
    pub segment: u32,
    /// Averages in stream order.
    pub points: Vec<Point>,
}

/// Length of the trailing window in prompts: an eighth of the shortest segment, from 5 to 50.
pub fn window(segments: &[Segment]) -> usize {
    let shortest = segments.iter().map(|s| s.prompts).min().unwrap_or(0);
    (shortest / 8).clamp(5, 50)
}

/// Prompts of a segment before its first point: averages of fewer would be noise.
pub fn warm_up(window: usize) -> usize {
    window.div_ceil(3)
}

/// Every arm's curve in every segment. Windows never reach across a segment's start, so that a switch shows at once.
pub fn curves(data: &RunData, window: usize) -> Vec<Curve> {
    let mut curves = Vec::new();
    for segment in &data.segments {
        for arm in &data.arms {
            let streams = data.streams(&arm.name, segment.index, Phase::Train);
            let length = streams.iter().map(Vec::len).min().unwrap_or(0);
            let points = (warm_up(window)..=length)
                .map(|seen| point(data, &streams, seen, window))
                .collect::<Vec<_>>();
            if !points.is_empty() {
                curves.push(Curve {
                    arm: arm.name.clone(),
                    segment: segment.index,
                    points,
                });
            }
        }
    }
    curves
}

fn point(data: &RunData, streams: &[Vec<&PromptRow>], seen: usize, window: usize) -> Point {
    let from = seen.saturating_sub(window);
    let per_seed = |value: &dyn Fn(&[&PromptRow]) -> Option<f64>| {
        let values: Vec<_> = streams
            .iter()
            .map(|rows| value(&rows[from..seen]))
            .collect();
        Band::of(&values)
    };
    Point {
        seen,
        acceptance: per_seed(&|rows| Totals::of(rows.iter().copied()).acceptance_rate()),
        speedup: per_seed(&|rows| window_speedup(data, rows)),
    }
}

fn window_speedup(data: &RunData, rows: &[&PromptRow]) -> Option<f64> {
    let mut total = Timing::default();
    for row in rows {
        total.add(&data.timing(row)?);
    }
    total.speedup()
}

/// `curves.csv` and `drift.csv`: the plotted points. `prompts_seen` counts from the start of the stream when it is
/// continual, from the start of the segment when segments are independent.
pub fn curves_csv(data: &RunData, curves: &[Curve], window: usize) -> String {
    let mut csv = Csv::new(&[
        "segment",
        "title",
        "method",
        "prompts_seen",
        "acceptance_rate",
        "acceptance_low",
        "acceptance_high",
        "speedup",
        "speedup_low",
        "speedup_high",
        "window",
    ]);
    for curve in curves {
        let title = data
            .segments
            .iter()
            .find(|segment| segment.index == curve.segment)
            .map_or("", |segment| segment.title.as_str());
        let before = offset(data, curve.segment);
        for point in &curve.points {
            let [acceptance, speedup] = [point.acceptance, point.speedup];
            csv.row([
                curve.segment.to_string(),
                title.to_owned(),
                curve.arm.clone(),
                (before + point.seen).to_string(),
                number(acceptance.map(|band| band.mean)),
                number(acceptance.map(|band| band.low)),
                number(acceptance.map(|band| band.high)),
                number(speedup.map(|band| band.mean)),
                number(speedup.map(|band| band.low)),
                number(speedup.map(|band| band.high)),
                window.to_string(),
            ]);
        }
    }
    csv.into_text()
}

/// Prompts of the stream before a segment; 0 when segments are independent.
pub fn offset(data: &RunData, segment: u32) -> usize {
    if !data.has_drift() {
        return 0;
    }
    data.segments
        .iter()
        .filter(|earlier| earlier.index < segment)
        .map(|earlier| earlier.prompts)
        .sum()
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
        };
        assert_eq!(window(&[segment(160), segment(80)]), 10);
        assert_eq!(window(&[segment(3)]), 5);
        assert_eq!(window(&[segment(10_000)]), 50);
        assert_eq!(warm_up(10), 4);
    }
}
