//! The figures of a page, built from its streams and tables.

mod cache;
mod compare;
mod frequencies;
mod hits;
mod losses;
mod speed;
mod stream;
mod sweep;

pub use cache::cache_figure;
pub use frequencies::frequencies_figure;
pub use hits::hits_figure;
pub use losses::losses_figure;
pub use speed::{plain_rates, saved_figure, speed_figure};
pub use stream::{curves_figure, drift_figure};
pub use sweep::sweep_figures;

use crate::curves::{Band, Curve, bands};
use crate::estimates::distinct;
use crate::figure::{
    ArmStyle, Figure, Legend, Line, Panel, PanelRow, Shade, other_style, own_style, reference_style,
};
use crate::names::readable;
use crate::streams::{METHOD, Segment, Streams};
use results::Answer;

/// Maximum number of panels per row; more segments continue in further rows.
const MAX_COLUMNS: usize = 4;

/// Maximum number of lines per panel; more continue in further rows, evenly.
const MAX_LINES: usize = 8;

/// Maximum number of points per line: more than there are pixels would only increase the file.
const MAX_POINTS: usize = 400;

/// A part of the stream with one horizontal axis: all of it if it is continual, else one segment.
struct Stretch<'a> {
    title: Option<String>,
    segments: Vec<&'a Segment>,
    prompts: usize,
    shades: Vec<Shade>,
}

/// A line of every panel: an arm, or an arm in one of the variants of a task.
struct Series {
    arm: String,
    /// Numbers of the segments that it is drawn from.
    segments: Vec<u32>,
    label: String,
    style: ArmStyle,
}

/// Adds a series over some segments to a panel.
type Draw<'a> = Box<dyn Fn(&mut Panel, &Series, &[&Segment]) + 'a>;

/// A quantity drawn over the stream.
struct Quantity<'a> {
    label: String,
    from_zero: bool,
    reference: Option<f64>,
    draw: Draw<'a>,
}

impl<'a> Quantity<'a> {
    /// The lines of the series through their curves.
    fn of_curves(
        label: impl Into<String>,
        from_zero: bool,
        streams: &'a Streams,
        curves: &'a [Curve],
    ) -> Self {
        Self::new(label, from_zero, move |panel, series, segments| {
            let line = curve_line(streams, curves, series, segments);
            panel.lines.extend(line);
        })
    }

    fn new(
        label: impl Into<String>,
        from_zero: bool,
        draw: impl Fn(&mut Panel, &Series, &[&Segment]) + 'a,
    ) -> Self {
        Self {
            label: label.into(),
            from_zero,
            reference: None,
            draw: Box::new(draw),
        }
    }
}

/// Panels of quantities over stretches of streams: one row per quantity, one column per stretch;
/// `None` if nothing is drawn.
fn multiples(
    stretches: &[Stretch],
    series: &[Series],
    quantities: &[Quantity],
) -> Option<Vec<PanelRow>> {
    let lines = series
        .len()
        .div_ceil(series.len().div_ceil(MAX_LINES).max(1));
    let mut rows = Vec::new();
    for block in stretches.chunks(MAX_COLUMNS) {
        let mut first = true;
        for quantity in quantities {
            for series in series.chunks(lines.max(1)) {
                let panels: Vec<Panel> = block
                    .iter()
                    .map(|stretch| panel(stretch, series, quantity, first))
                    .collect();
                if panels.iter().any(|panel| !panel.lines.is_empty()) {
                    first = false;
                    rows.push(PanelRow {
                        y_label: quantity.label.clone(),
                        from_zero: quantity.from_zero,
                        reference: quantity.reference,
                        panels,
                    });
                }
            }
        }
    }
    (!rows.is_empty()).then_some(rows)
}

fn panel(stretch: &Stretch, series: &[Series], quantity: &Quantity, first: bool) -> Panel {
    let mut shades = stretch.shades.clone();
    if !first {
        shades.iter_mut().for_each(|shade| shade.label.clear());
    }
    let mut panel = Panel {
        title: stretch.title.clone().filter(|_| first),
        x: (0.0, stretch.prompts.max(1) as f64),
        shades,
        ..Panel::default()
    };
    for one in series {
        let mut segments = stretch.segments.clone();
        segments.retain(|segment| one.segments.contains(&segment.index));
        (quantity.draw)(&mut panel, one, &segments);
    }
    panel
}

/// A single stretch if the stream is continual, else one per segment.
fn stretches<'a>(streams: &'a Streams) -> Vec<Stretch<'a>> {
    if streams.continual {
        let shades = streams.segments.iter().map(|segment| {
            let from = streams.before(segment.index);
            Shade {
                from: from as f64,
                to: (from + segment.prompts) as f64,
                label: readable(&segment.title),
            }
        });
        return vec![Stretch {
            title: None,
            segments: streams.segments.iter().collect(),
            prompts: streams.segments.iter().map(|s| s.prompts).sum(),
            shades: shades.collect(),
        }];
    }
    by_segment(streams)
}

/// One stretch per segment, also in a continual stream.
fn by_segment<'a>(streams: &'a Streams) -> Vec<Stretch<'a>> {
    let stretch = |segment: &'a Segment| Stretch {
        title: Some(readable(&segment.title)),
        segments: vec![segment],
        prompts: segment.prompts,
        shades: Vec::new(),
    };
    streams.segments.iter().map(stretch).collect()
}

/// Words that distinguish a segment from others of its task: its target and its values on other
/// axes, each if not all segments share it.
fn variant(streams: &Streams, segment: &Segment) -> String {
    let mut words = Vec::new();
    let targets = streams.segments.iter().map(|other| &other.target);
    if targets.into_iter().any(|target| *target != segment.target) {
        words.push(segment.target.clone());
    }
    let others = streams.segments.iter().map(|other| &other.other);
    if others.into_iter().any(|other| *other != segment.other) {
        words.extend(segment.other.iter().cloned());
    }
    readable(&words.join(", "))
}

/// One series per arm, over the stretches of the streams.
fn by_arm(streams: &Streams, arms: &[&str]) -> Vec<Series> {
    let one = |arm: &&str| Series {
        arm: (*arm).to_owned(),
        segments: streams.segments.iter().map(|s| s.index).collect(),
        label: readable(arm),
        style: style_of(streams, arm),
    };
    arms.iter().map(one).collect()
}

/// Panels and series of quantities that few arms have: one panel per task with a line for each
/// variant of it, if that makes fewer panels and not too many lines.
fn merged<'a>(streams: &'a Streams, arms: &[&str]) -> (Vec<Stretch<'a>>, Vec<Series>) {
    let segments = || streams.segments.iter();
    let variants = distinct(segments().map(|segment| variant(streams, segment)));
    let tasks = distinct(segments().map(|segment| segment.task.as_str()));
    let lines = variants.len() * arms.len();
    if streams.continual || variants.len() < 2 || tasks.len() < 2 || lines > MAX_LINES {
        return (stretches(streams), by_arm(streams, arms));
    }
    let stretch = |task: &&str| {
        let own = || segments().filter(|segment| segment.task == *task);
        Stretch {
            title: Some(readable(task)),
            segments: own().collect(),
            prompts: own().map(|segment| segment.prompts).max().unwrap_or(0),
            shades: Vec::new(),
        }
    };
    let mut series = Vec::new();
    for arm in arms {
        for (number, name) in variants.iter().enumerate() {
            let (label, style) = match arms {
                [_] => (name.clone(), other_style(number)),
                _ => (
                    format!("{}, {name}", readable(arm)),
                    ArmStyle {
                        dash: VARIANT_DASHES.get(number).copied().flatten(),
                        ..style_of(streams, arm)
                    },
                ),
            };
            let own = |segment: &&Segment| variant(streams, segment) == *name;
            series.push(Series {
                arm: (*arm).to_owned(),
                segments: segments().filter(own).map(|s| s.index).collect(),
                label,
                style,
            });
        }
    }
    (tasks.iter().map(stretch).collect(), series)
}

/// Dashes by which variants of an arm differ.
const VARIANT_DASHES: [Option<(f64, f64)>; 4] =
    [None, Some((6.0, 3.0)), Some((2.0, 2.5)), Some((9.0, 2.5))];

/// An arm's line through its curves, one piece per segment, so that no line crosses a switch.
fn curve_line(
    streams: &Streams,
    curves: &[Curve],
    series: &Series,
    segments: &[&Segment],
) -> Option<Line> {
    let drawn = |index: u32| segments.iter().any(|segment| segment.index == index);
    let own = |curve: &&Curve| curve.arm == series.arm && drawn(curve.segment);
    let pieces = curves.iter().filter(own).map(|curve| {
        // A panel of one segment counts prompts from its own start.
        let before = match segments.len() {
            1 => 0,
            _ => streams.before(curve.segment),
        };
        (curve.points.as_slice(), before)
    });
    let line = line_of(streams, series.style, pieces);
    (!line.pieces.is_empty()).then_some(line)
}

/// The value after each prompt of some segments, mean over seeds with a band; `None` if an answer
/// has none. It is found from a total that starts at 0 with every seed.
fn running(
    streams: &Streams,
    arm: &str,
    segments: &[&Segment],
    value: impl Fn(&mut f64, &Answer, &Segment) -> Option<f64>,
) -> Option<Vec<(usize, Band)>> {
    let mut by_seed: Vec<Vec<f64>> = Vec::new();
    for &seed in &streams.seeds {
        let mut total = 0.0;
        let mut values = Vec::new();
        for segment in segments {
            for answer in streams.stream(arm, segment.index, seed) {
                values.push(value(&mut total, answer, segment)?);
            }
        }
        if !values.is_empty() {
            by_seed.push(values);
        }
    }
    bands(&by_seed)
}

/// A line of pieces, each given by its points and the number of prompts before it; with bands if
/// there are several seeds.
fn line_of<'a>(
    streams: &Streams,
    style: ArmStyle,
    pieces: impl IntoIterator<Item = (&'a [(usize, Band)], usize)>,
) -> Line {
    let mut line = Line::new(style);
    for (points, before) in pieces {
        line.pieces.push(piece(points, before));
        if streams.seeds.len() > 1 {
            let bands = thin(points).into_iter();
            let bands = bands.map(|(seen, band)| ((before + seen) as f64, band.low, band.high));
            line.bands.push(bands.collect());
        }
    }
    line
}

/// Points of a line that starts after `before` prompts.
fn piece(points: &[(usize, Band)], before: usize) -> Vec<(f64, f64)> {
    let points = thin(points).into_iter();
    points
        .map(|(seen, band)| ((before + seen) as f64, band.mean))
        .collect()
}

fn style_of(streams: &Streams, name: &str) -> ArmStyle {
    own_style(name).unwrap_or_else(|| {
        let before = streams.arms.iter().take_while(|arm| arm.name != name);
        other_style(before.filter(|arm| own_style(&arm.name).is_none()).count())
    })
}

fn legend(series: &[Series]) -> Vec<Legend> {
    let entry = |series: &Series| Legend {
        label: series.label.clone(),
        style: series.style,
    };
    series.iter().map(entry).collect()
}

fn reference_legend(label: &str) -> Legend {
    Legend {
        label: label.to_owned(),
        style: reference_style(),
    }
}

/// Descriptions of the paper's arms that are drawn.
fn who(arms: &[&str]) -> String {
    const ARMS: [(&str, &str); 4] = [
        ("SpD_DM", "SpD_DM: nothing is learnt"),
        (
            "N-gram_pp",
            "N-gram_pp: nothing is learnt, n-grams are merged",
        ),
        ("L_DM", "L_DM: the drafter learns"),
        (
            METHOD,
            "L_DM + L_N-gram: it learns and n-grams are merged, the paper's method",
        ),
    ];
    let drawn = ARMS.iter().filter(|(arm, _)| arms.contains(arm));
    let words: Vec<&str> = drawn.map(|(_, words)| *words).collect();
    match words.as_slice() {
        [] => String::new(),
        words => format!(" {}.", words.join("; ")),
    }
}

/// ` (one seed)` if there is only one.
fn one_seed(streams: &Streams) -> &'static str {
    match streams.seeds.len() {
        1 => " (one seed)",
        _ => "",
    }
}

fn dashed(label: &str, dash: (f64, f64)) -> Legend {
    let mut entry = reference_legend(label);
    entry.style.dash = Some(dash);
    entry
}

/// Thins a line to about `MAX_POINTS` points, keeping the last one.
fn thin<T: Copy>(points: &[T]) -> Vec<T> {
    let stride = points.len().div_ceil(MAX_POINTS).max(1);
    let mut thinned: Vec<T> = points.iter().step_by(stride).copied().collect();
    if let Some(&last) = points.last()
        && !(points.len() - 1).is_multiple_of(stride)
    {
        thinned.push(last);
    }
    thinned
}

/// Number of seeds of a figure's lines, in words.
fn seeds_note(streams: &Streams) -> String {
    match streams.seeds.len() {
        1 => "One seed.".to_owned(),
        seeds => format!("Lines: mean over {seeds} seeds; bands: smallest to largest."),
    }
}

fn over_stream(
    streams: &Streams,
    title: String,
    legend: Vec<Legend>,
    rows: Vec<PanelRow>,
    caption: String,
) -> Figure {
    let x_label = match streams.continual {
        true => "prompts",
        false => "prompts of the stream",
    };
    Figure {
        title,
        legend,
        rows,
        x_label: x_label.to_owned(),
        log: false,
        caption,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_both_ends() {
        let points: Vec<usize> = (0..1000).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= MAX_POINTS + 1);
        assert_eq!((thinned[0], thinned.last()), (0, Some(&999)));
        assert_eq!(thin(&[1, 2, 3]), [1, 2, 3]);
        assert!(thin::<u8>(&[]).is_empty());
    }
}
