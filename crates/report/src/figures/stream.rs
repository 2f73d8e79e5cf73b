//! Arms over the stream, per segment and across switches.

use super::compare::{comparable, from_to, pair, said};
use super::{
    Quantity, by_arm, by_segment, curve_line, dashed, legend, multiples, one_seed, over_stream,
    piece, reference_legend, seeds_note, stretches, who,
};
use crate::beside::NeverSwitched;
use crate::curves::{Curve, curves, ratio_curves, window};
use crate::figure::{ArmStyle, Color, Figure, Level, Line, Mark};
use crate::names::{axis, listed, plain_level, readable, sentence};
use crate::paper::{PaperData, Where};
use crate::streams::{Segment, Streams, over};
use crate::tables::drift::{RECOVERED_SHARE, Recovery};
use experiment::ReportConfig;
use results::Metric;

const PAPER_DASH: (f64, f64) = (7.0, 3.0);
const THRESHOLD_DASH: (f64, f64) = (2.0, 2.5);
const NEVER_DASH: (f64, f64) = (1.0, 3.0);
const THRESHOLD: Color = Color(0x9A, 0xA1, 0xA9);

/// Acceptance rate over the number of prompts (tokens per round if drafts differ in length), the
/// same relative to an untrained drafter if there is one, and speedup if timed (the paper's Figures
/// 2 and 4); `None` if no drafting arm has a curve.
pub fn curves_figure(
    streams: &Streams,
    paper: Option<&PaperData>,
    report: &ReportConfig,
) -> Option<Figure> {
    let window = window(&streams.segments);
    let metric = comparable(streams);
    let measured = curves(streams, metric, window);
    let ratio = Ratio::new(streams, metric, window);
    let speed = curves(streams, Metric::Speedup, window);
    let arms: Vec<&str> = streams.drafting().collect();
    let of_paper = |metric: Metric, arm: &str, segment: &Segment| -> Option<f64> {
        paper?.value(&place(segment, arm), metric)
    };
    let drawn = match speed.is_empty() {
        true => vec![metric],
        false => vec![metric, Metric::Speedup],
    };
    let any_paper = drawn.iter().any(|metric| {
        arms.iter().any(|arm| {
            let mut segments = streams.segments.iter();
            segments.any(|segment| of_paper(*metric, arm, segment).is_some())
        })
    });
    let both = [(metric, &measured), (Metric::Speedup, &speed)];
    let [first, last] = both.map(|(metric, curves)| {
        let zero = plain_level(metric).is_none();
        let of_paper = &of_paper;
        let mut quantity = Quantity::new(axis(metric), zero, move |panel, series, segments| {
            let line = curve_line(streams, curves, series, segments);
            panel.lines.extend(line);
            let own = segments.iter();
            let levels = own.filter_map(|segment| of_paper(metric, &series.arm, segment));
            panel.levels.extend(levels.map(|y| Level {
                y,
                x: None,
                color: series.style.color,
                dash: PAPER_DASH,
            }));
        });
        quantity.reference = plain_level(metric);
        quantity
    });
    let mut quantities = vec![first];
    quantities.extend(ratio.as_ref().map(|ratio| ratio.quantity(streams)));
    quantities.push(last);
    let series = by_arm(streams, &arms);
    let rows = multiples(&by_segment(streams), &series, &quantities)?;
    let mut legend = legend(&series);
    let plain = drawn.iter().any(|metric| plain_level(*metric).is_some());
    legend.extend(reference(plain, ratio.as_ref()));
    if any_paper {
        legend.push(dashed(
            "the paper's held-out value, in the arm's colour",
            PAPER_DASH,
        ));
    }
    let caption = format!(
        "Averages over the last {window} prompts. {}{} {}{}",
        meaning(metric),
        ratio.as_ref().map_or(String::new(), Ratio::meaning),
        seeds_note(streams),
        who(&arms),
    );
    let pair = pair(streams, paper, &report.ratios);
    let compared = pair.and_then(|pair| said(streams, metric, pair, report.smallest_effect));
    let title = compared.or_else(|| alone(streams, metric));
    Some(over_stream(
        streams,
        title.unwrap_or_else(|| "Over the stream".to_owned()),
        legend,
        rows,
        caption,
    ))
}

fn meaning(metric: Metric) -> &'static str {
    match metric {
        Metric::Acceptance => "Acceptance: accepted / proposed target tokens a round.",
        _ => "Drafts differ in length, so that tokens a round are drawn and no acceptance.",
    }
}

/// The legend of the dashed reference lines.
fn reference(plain: bool, ratio: Option<&Ratio>) -> Option<crate::figure::Legend> {
    let words: Vec<String> = plain
        .then(|| "plain decoding".to_owned())
        .into_iter()
        .chain(ratio.map(|ratio| format!("{} in the ratio", readable(&ratio.reference))))
        .collect();
    (!words.is_empty()).then(|| reference_legend(&listed(&words)))
}

/// The learning arms relative to one that does not learn, on the same prompts.
struct Ratio {
    metric: Metric,
    reference: String,
    curves: Vec<Curve>,
}

/// Factor over an untrained drafter from which the effect of learning is visible in the curves
/// themselves; if every learning arm has it, ratios are not drawn.
const PLAIN_TO_SEE: f64 = 1.5;

impl Ratio {
    /// The ratios, if the effect of learning is small compared with the differences between
    /// prompts.
    fn new(streams: &Streams, metric: Metric, window: usize) -> Option<Self> {
        let reference = streams.untrained()?;
        let learning = streams.learning();
        let untrained = over(metric, streams.answers(reference))?;
        let least = learning
            .iter()
            .filter_map(|arm| over(metric, streams.answers(arm)))
            .fold(f64::INFINITY, f64::min);
        if least >= PLAIN_TO_SEE * untrained {
            return None;
        }
        let curves = ratio_curves(streams, metric, &learning, reference, window);
        (!curves.is_empty()).then(|| Self {
            metric,
            reference: reference.to_owned(),
            curves,
        })
    }

    fn quantity<'a>(&'a self, streams: &'a Streams) -> Quantity<'a> {
        let label = format!("{} / untrained", axis(self.metric));
        let mut quantity = Quantity::of_curves(label, false, streams, &self.curves);
        quantity.reference = Some(1.0);
        quantity
    }

    fn meaning(&self) -> String {
        format!(
            " Untrained: {}, which learns nothing, on the same prompts; the ratio takes out that some prompts are easier.",
            readable(&self.reference)
        )
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

/// The first and last values of an arm without another to compare with.
fn alone(streams: &Streams, metric: Metric) -> Option<String> {
    let arm = streams.method()?;
    let (first, last) = from_to(streams, metric, arm)?;
    Some(format!(
        "{}: {} from {first:.2} in the first quarter of the stream to {last:.2} in the last{}",
        sentence(&readable(arm)),
        axis(metric),
        one_seed(streams)
    ))
}

/// Acceptance rate and, if timed, speedup across switches (Figures 5 and 6), with recoveries as
/// dots and thresholds, and arms that saw only one segment; `None` without drift.
pub fn drift_figure(
    streams: &Streams,
    recoveries: &[Recovery],
    never_switched: &[NeverSwitched],
) -> Option<Figure> {
    if !streams.continual {
        return None;
    }
    let window = window(&streams.segments);
    let accepted = curves(streams, Metric::Acceptance, window);
    let ratio = Ratio::new(streams, Metric::Acceptance, window);
    let speed = curves(streams, Metric::Speedup, window);
    let arms: Vec<&str> = streams.drafting().collect();
    let extent = |segment: u32| {
        let prompts = streams.segments.iter().find(|s| s.index == segment);
        let from = streams.before(segment) as f64;
        (from, from + prompts.map_or(0.0, |s| s.prompts as f64))
    };
    let acceptance = Quantity::new("acceptance", true, |panel, series, segments| {
        let (arm, color) = (&series.arm, series.style.color);
        // Drawn below the arm's own line.
        let alone = never_switched.iter().map(|never| &never.curve);
        let pieces: Vec<_> = alone
            .filter(|curve| curve.arm == *arm)
            .map(|curve| piece(&curve.points, streams.before(curve.segment)))
            .collect();
        if !pieces.is_empty() {
            panel.lines.push(Line {
                pieces,
                ..Line::new(ArmStyle {
                    dash: Some(NEVER_DASH),
                    ..series.style
                })
            });
        }
        let line = curve_line(streams, &accepted, series, segments);
        panel.lines.extend(line);
        for recovery in recoveries.iter().filter(|own| own.arm == *arm) {
            panel.levels.push(Level {
                y: RECOVERED_SHARE * recovery.common,
                x: Some(extent(recovery.segment)),
                color: THRESHOLD,
                dash: THRESHOLD_DASH,
            });
            let curve = accepted
                .iter()
                .find(|c| c.arm == *arm && c.segment == recovery.segment);
            // An arm that does not learn has nothing to recover.
            let seen = recovery.prompts.filter(|_| streams.learnt(arm));
            let mut points = curve.iter().flat_map(|curve| &curve.points);
            if let Some((seen, band)) = points.find(|(at, _)| Some(*at) == seen) {
                panel.marks.push(Mark {
                    x: (streams.before(recovery.segment) + seen) as f64,
                    y: band.mean,
                    color,
                });
            }
        }
    });
    let mut speedup = Quantity::of_curves(axis(Metric::Speedup), false, streams, &speed);
    speedup.reference = Some(1.0);
    let mut quantities = vec![acceptance];
    quantities.extend(ratio.as_ref().map(|ratio| ratio.quantity(streams)));
    quantities.push(speedup);
    let series = by_arm(streams, &arms);
    let rows = multiples(&stretches(streams), &series, &quantities)?;
    let mut legend = legend(&series);
    legend.extend(reference(!speed.is_empty(), ratio.as_ref()));
    legend.push(dashed("95% of the common plateau", THRESHOLD_DASH));
    if !never_switched.is_empty() {
        legend.push(dashed(
            "saw nothing but that segment, in the arm's colour",
            NEVER_DASH,
        ));
    }
    let caption = format!(
        "Averages over the last {window} prompts of a segment. Common plateau: the lowest of the arms that learn. Dots: at 95% of it for good (at {window} prompts: from the first full window on); prompts to an arm's own plateau are in the table.{} {}{}",
        ratio.as_ref().map_or(String::new(), Ratio::meaning),
        seeds_note(streams),
        who(&arms),
    );
    let title = recovered(streams, recoveries);
    Some(over_stream(streams, title, legend, rows, caption))
}

/// Prompts that every learning arm needs after the first switch that one of them has to recover
/// from.
fn recovered(streams: &Streams, recoveries: &[Recovery]) -> String {
    let learning: Vec<&Recovery> = recoveries
        .iter()
        .filter(|recovery| streams.learnt(&recovery.arm))
        .collect();
    let costs = |recovery: &&&Recovery| {
        let within = Some(recovery.window);
        recovery.own_prompts != within || recovery.prompts != within
    };
    let seed = one_seed(streams);
    let Some(switch) = learning.iter().find(costs) else {
        return match learning.first() {
            Some(first) => format!(
                "No switch takes a drafter that learns below 95% of its level for more than {} prompts{seed}",
                first.window
            ),
            None => "Acceptance across switches of the stream; nothing learns".to_owned(),
        };
    };
    let of_switch: Vec<&&Recovery> = learning
        .iter()
        .filter(|recovery| recovery.segment == switch.segment)
        .collect();
    let prompts = |prompts: Option<usize>| match prompts {
        Some(seen) if seen == switch.window => format!("at most {seen}"),
        Some(seen) => seen.to_string(),
        None => "more than there are".to_owned(),
    };
    let arms: Vec<String> = of_switch.iter().map(|r| readable(&r.arm)).collect();
    let own: Vec<String> = of_switch.iter().map(|r| prompts(r.own_prompts)).collect();
    let common: Vec<String> = of_switch.iter().map(|r| prompts(r.prompts)).collect();
    let alike = |counts: &[String]| counts.windows(2).all(|pair| pair.first() == pair.last());
    let own = match own.as_slice() {
        [first, _, ..] if alike(&own) => format!("{} {first} each", listed(&arms)),
        counts => {
            let both = arms.iter().zip(counts);
            let words: Vec<String> = both.map(|(arm, count)| format!("{arm} {count}")).collect();
            words.join(", ")
        }
    };
    let mut title = format!(
        "{}: prompts to 95% of its own level: {own}",
        readable(&switch.switch)
    );
    match common.as_slice() {
        [] | [_] => {}
        [first, ..] if alike(&common) => {
            title.push_str(&format!("; of the lowest level: {first} each"));
        }
        _ => title.push_str(&format!("; of the lowest level: {}", common.join(", "))),
    }
    title + seed
}
