//! Acceptance and speedup over the stream: per segment, and across switches.

use super::{
    Quantity, by_segment, curve_line, dashed, legend, multiples, over_stream, piece, rate,
    seeds_note, stretches, style_of,
};
use crate::beside::NeverSwitched;
use crate::curves::{curves, window};
use crate::figure::{ArmStyle, Color, Figure, Legend, Level, Line, Mark, reference_style};
use crate::paper::{PaperData, Where};
use crate::streams::{Segment, Streams};
use crate::tables::drift::{RECOVERED_SHARE, Recovery, plateau};
use results::Metric;

const PAPER_DASH: (f64, f64) = (7.0, 3.0);
const THRESHOLD_DASH: (f64, f64) = (2.0, 2.5);
const NEVER_DASH: (f64, f64) = (1.0, 3.0);
const THRESHOLD: Color = Color(0x9A, 0xA1, 0xA9);

/// Acceptance and, where timed, speedup over prompts seen (the paper's Figures 2 and 4). `None` where
/// no drafting arm has a curve.
pub fn curves_figure(streams: &Streams, paper: Option<&PaperData>) -> Option<Figure> {
    let window = window(&streams.segments);
    let accepted = curves(streams, Metric::Acceptance, window);
    let speed = curves(streams, Metric::Speedup, window);
    let arms: Vec<&str> = streams.drafting().map(|arm| arm.name.as_str()).collect();
    let level = |metric: Metric, arm: &str, segment: &Segment| {
        let at = place(segment, arm);
        let y = paper?.value(&at, metric)?;
        Some(Level {
            y,
            x: None,
            color: style_of(streams, arm).color,
            dash: PAPER_DASH,
        })
    };
    let of_paper = |metric: Metric, arm: &str, segments: &[u32]| -> Vec<Level> {
        let own = streams
            .segments
            .iter()
            .filter(|s| segments.contains(&s.index));
        own.filter_map(|segment| level(metric, arm, segment))
            .collect()
    };
    let any_paper = arms.iter().any(|arm| {
        let mut segments = streams.segments.iter();
        segments.any(|segment| level(Metric::Acceptance, arm, segment).is_some())
    });
    let quantities = [
        (Metric::Acceptance, "acceptance", true, None, &accepted),
        (Metric::Speedup, "speedup (x)", false, Some(1.0), &speed),
    ]
    .map(|(metric, label, from_zero, reference, curves)| {
        let mut quantity = Quantity::new(label, from_zero, move |arm, stretch| {
            curve_line(streams, curves, arm, stretch)
        });
        quantity.reference = reference;
        if any_paper {
            let of_paper = &of_paper;
            quantity.extras = Box::new(move |arm, stretch| {
                (of_paper(metric, arm, &stretch.segments), Vec::new())
            });
        }
        quantity
    });
    let rows = multiples(&by_segment(streams), &arms, &quantities)?;
    let mut legend = legend(streams, &arms);
    if !speed.is_empty() {
        legend.push(plain_legend());
    }
    if any_paper {
        legend.push(dashed(
            "the paper's held-out value, in the arm's colour",
            PAPER_DASH,
        ));
    }
    let caption = format!(
        "Averages over the last {window} prompts. Acceptance: accepted / proposed target tokens a round. {}",
        seeds_note(streams)
    );
    let title = ends_highest(streams, &arms, window);
    let figure = over_stream(streams, title, legend, rows, caption);
    Some(Figure {
        x_label: "prompts of the segment seen".to_owned(),
        ..figure
    })
}

fn plain_legend() -> Legend {
    Legend {
        label: "plain decoding".to_owned(),
        style: reference_style(),
    }
}

fn place(segment: &Segment, arm: &str) -> Where {
    let own = |axis: &str, value: &str| (axis.to_owned(), value.to_owned());
    Where::from([
        own("task", &segment.task),
        own("target", &segment.target),
        own("arm", arm),
    ])
}

/// Who is accepted most at the end of the streams.
fn ends_highest(streams: &Streams, arms: &[&str], window: usize) -> String {
    let mut ends: Vec<(&str, f64)> = Vec::new();
    for arm in arms {
        let plateaus = streams.segments.iter();
        let plateaus: Vec<f64> = plateaus
            .filter_map(|segment| plateau(streams, arm, segment.index, window))
            .collect();
        if !plateaus.is_empty() {
            ends.push((arm, plateaus.iter().sum::<f64>() / plateaus.len() as f64));
        }
    }
    ends.sort_by(|a, b| b.1.total_cmp(&a.1));
    match ends.as_slice() {
        [(best, value), (second, other), ..] => format!(
            "{best} ends highest: accepted at {} over the last quarter of the stream, {second} at {}",
            rate(*value),
            rate(*other)
        ),
        [(only, value)] => format!("{only} ends at an acceptance of {}", rate(*value)),
        [] => "Acceptance over the stream".to_owned(),
    }
}

/// What the drift figure draws beside the curves.
#[derive(Debug)]
pub struct Drift<'a> {
    /// Recoveries, for dots and thresholds.
    pub recoveries: &'a [Recovery],
    /// Arms that only ever saw a segment's task and target.
    pub never_switched: &'a [NeverSwitched],
}

/// Acceptance and, where timed, speedup across switches (Figures 5 and 6). `None` without drift.
pub fn drift_figure(streams: &Streams, drift: &Drift) -> Option<Figure> {
    if !streams.continual {
        return None;
    }
    let window = window(&streams.segments);
    let accepted = curves(streams, Metric::Acceptance, window);
    let speed = curves(streams, Metric::Speedup, window);
    let arms: Vec<&str> = streams.drafting().map(|arm| arm.name.as_str()).collect();
    let extent = |segment: u32| {
        let prompts = streams.segments.iter().find(|s| s.index == segment);
        let from = streams.before(segment) as f64;
        (from, from + prompts.map_or(0.0, |s| s.prompts as f64))
    };
    let extras = |arm: &str| {
        let mut levels = Vec::new();
        let mut marks = Vec::new();
        for recovery in drift
            .recoveries
            .iter()
            .filter(|recovery| recovery.arm == arm)
        {
            levels.push(Level {
                y: RECOVERED_SHARE * recovery.common,
                x: Some(extent(recovery.segment)),
                color: THRESHOLD,
                dash: THRESHOLD_DASH,
            });
            let curve = accepted
                .iter()
                .find(|c| c.arm == arm && c.segment == recovery.segment);
            let seen = recovery.prompts;
            let mut points = curve.iter().flat_map(|curve| &curve.points);
            if let Some((seen, band)) = points.find(|(at, _)| Some(*at) == seen) {
                marks.push(Mark {
                    x: (streams.before(recovery.segment) + seen) as f64,
                    y: band.mean,
                    color: style_of(streams, arm).color,
                });
            }
        }
        (levels, marks)
    };
    // Behind the arm's own line.
    let never_switched = |arm: &str| {
        let own = drift.never_switched.iter();
        let own = own.map(|never| &never.curve).filter(|c| c.arm == arm);
        let pieces: Vec<_> = own
            .map(|curve| piece(&curve.points, streams.before(curve.segment)))
            .collect();
        (!pieces.is_empty()).then(|| Line {
            style: ArmStyle {
                dash: Some(NEVER_DASH),
                ..style_of(streams, arm)
            },
            pieces,
            bands: Vec::new(),
        })
    };
    let mut acceptance = Quantity::new("acceptance", true, |arm, stretch| {
        never_switched(arm)
            .into_iter()
            .chain(curve_line(streams, &accepted, arm, stretch))
    });
    acceptance.extras = Box::new(|arm, _| extras(arm));
    let mut speedup = Quantity::new("speedup (x)", false, |arm, stretch| {
        curve_line(streams, &speed, arm, stretch)
    });
    speedup.reference = Some(1.0);
    let rows = multiples(&stretches(streams), &arms, &[acceptance, speedup])?;
    let mut legend = legend(streams, &arms);
    if !speed.is_empty() {
        legend.push(plain_legend());
    }
    legend.push(dashed("95% of the common plateau", THRESHOLD_DASH));
    if !drift.never_switched.is_empty() {
        legend.push(dashed(
            "saw nothing but that segment, in the arm's colour",
            NEVER_DASH,
        ));
    }
    let caption = format!(
        "Averages over the last {window} prompts of a segment. Dots: first at 95% of the lowest plateau of an arm that learns (at {window} prompts: there from the first full window). {}",
        seeds_note(streams)
    );
    let title = recovers_first(drift.recoveries);
    Some(over_stream(streams, title, legend, rows, caption))
}

/// Who recovers when after the first switch that someone has to recover from.
fn recovers_first(recoveries: &[Recovery]) -> String {
    let switch = recoveries.iter().find(|r| r.prompts != Some(r.window));
    let Some(switch) = switch.or(recoveries.first()) else {
        return "Acceptance across switches of the stream".to_owned();
    };
    let of_switch = recoveries.iter().filter(|r| r.segment == switch.segment);
    let mut counts: Vec<(&str, Option<usize>)> =
        of_switch.map(|r| (r.arm.as_str(), r.prompts)).collect();
    counts.sort_by_key(|(_, prompts)| prompts.unwrap_or(usize::MAX));
    let words = counts.iter().take(2).map(|(arm, prompts)| match prompts {
        Some(n) if *n == switch.window => format!("{arm} is there within {n} prompts"),
        Some(n) => format!("{arm} recovers after {n} prompts"),
        None => format!("{arm} never recovers"),
    });
    let words: Vec<String> = words.collect();
    format!("{}: {}", switch.switch, words.join(", "))
}
