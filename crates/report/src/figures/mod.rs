//! The figures of a page, built from its streams and tables.

mod cache;
mod frequencies;
mod hits;
mod losses;
mod stream;
mod sweep;

pub use cache::cache_figure;
pub use frequencies::frequencies_figure;
pub use hits::hits_figure;
pub use losses::losses_figure;
pub use stream::{Drift, curves_figure, drift_figure};
pub use sweep::sweep_figures;

use crate::curves::{Band, Curve};
use crate::figure::{
    ArmStyle, Figure, Legend, Level, Line, Mark, Panel, PanelRow, Shade, other_style, own_style,
    reference_style,
};
use crate::streams::Streams;

/// Panels side by side at most; more segments continue in further rows.
const MAX_COLUMNS: usize = 4;

/// Lines in one panel at most; more arms continue in further rows.
const MAX_LINES: usize = 6;

/// Points of a line at most: more than there are pixels would only grow the file.
const MAX_POINTS: usize = 400;

/// A part of the stream with one horizontal axis: everything when it is continual, else one segment.
struct Stretch {
    title: Option<String>,
    segments: Vec<u32>,
    prompts: usize,
    shades: Vec<Shade>,
}

/// An arm's lines in a stretch.
type LinesOf<'a> = Box<dyn Fn(&str, &Stretch) -> Vec<Line> + 'a>;

/// Levels and marks of an arm in a stretch.
type ExtrasOf<'a> = Box<dyn Fn(&str, &Stretch) -> (Vec<Level>, Vec<Mark>) + 'a>;

/// A quantity drawn over the stream.
struct Quantity<'a> {
    label: &'static str,
    from_zero: bool,
    reference: Option<f64>,
    lines: LinesOf<'a>,
    extras: ExtrasOf<'a>,
}

impl<'a> Quantity<'a> {
    fn new<L: IntoIterator<Item = Line>>(
        label: &'static str,
        from_zero: bool,
        lines: impl Fn(&str, &Stretch) -> L + 'a,
    ) -> Self {
        Self {
            label,
            from_zero,
            reference: None,
            lines: Box::new(move |arm, stretch| lines(arm, stretch).into_iter().collect()),
            extras: Box::new(|_, _| (Vec::new(), Vec::new())),
        }
    }
}

/// The panels of some quantities over stretches of streams: a row a quantity, a column a stretch;
/// `None` where nothing is drawn.
fn multiples(
    stretches: &[Stretch],
    arms: &[&str],
    quantities: &[Quantity],
) -> Option<Vec<PanelRow>> {
    let mut rows = Vec::new();
    for block in stretches.chunks(MAX_COLUMNS) {
        let mut first = true;
        for quantity in quantities {
            for arms in arms.chunks(MAX_LINES) {
                let panels: Vec<Panel> = block
                    .iter()
                    .map(|stretch| panel(stretch, arms, quantity, first))
                    .collect();
                if panels.iter().any(|panel| !panel.lines.is_empty()) {
                    first = false;
                    rows.push(PanelRow {
                        y_label: quantity.label.to_owned(),
                        from_zero: quantity.from_zero,
                        log: false,
                        reference: quantity.reference,
                        panels,
                    });
                }
            }
        }
    }
    (!rows.is_empty()).then_some(rows)
}

fn panel(stretch: &Stretch, arms: &[&str], quantity: &Quantity, first: bool) -> Panel {
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
    for arm in arms {
        panel.lines.extend((quantity.lines)(arm, stretch));
        let (levels, marks) = (quantity.extras)(arm, stretch);
        panel.levels.extend(levels);
        panel.marks.extend(marks);
    }
    panel
}

/// The stream in one stretch when it is continual, else one stretch per segment.
fn stretches(streams: &Streams) -> Vec<Stretch> {
    if streams.continual {
        let shades = streams.segments.iter().map(|segment| {
            let from = streams.before(segment.index);
            Shade {
                from: from as f64,
                to: (from + segment.prompts) as f64,
                label: segment.title.clone(),
            }
        });
        return vec![Stretch {
            title: None,
            segments: streams.segments.iter().map(|s| s.index).collect(),
            prompts: streams.segments.iter().map(|s| s.prompts).sum(),
            shades: shades.collect(),
        }];
    }
    by_segment(streams)
}

/// One stretch per segment, whether or not they follow each other.
fn by_segment(streams: &Streams) -> Vec<Stretch> {
    let stretch = |segment: &crate::streams::Segment| Stretch {
        title: Some(segment.title.clone()),
        segments: vec![segment.index],
        prompts: segment.prompts,
        shades: Vec::new(),
    };
    streams.segments.iter().map(stretch).collect()
}

/// An arm's line through its curves, a piece per segment, so that nothing is drawn across a switch.
fn curve_line(streams: &Streams, curves: &[Curve], arm: &str, stretch: &Stretch) -> Option<Line> {
    let mut line = Line {
        style: style_of(streams, arm),
        pieces: Vec::new(),
        bands: Vec::new(),
    };
    let own = |curve: &&Curve| curve.arm == arm && stretch.segments.contains(&curve.segment);
    for curve in curves.iter().filter(own) {
        // A stretch of one segment counts from its own start.
        let before = match stretch.segments.len() {
            1 => 0,
            _ => streams.before(curve.segment),
        };
        push_piece(&mut line, streams, &curve.points, before);
    }
    (!line.pieces.is_empty()).then_some(line)
}

fn push_piece(line: &mut Line, streams: &Streams, points: &[(usize, Band)], before: usize) {
    line.pieces.push(piece(points, before));
    if streams.seeds.len() > 1 {
        let points = thin(points);
        let x = |seen: usize| (before + seen) as f64;
        let bands = points
            .iter()
            .map(|(seen, band)| (x(*seen), band.low, band.high));
        line.bands.push(bands.collect());
    }
}

/// Points of a line that starts behind `before` prompts.
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

fn legend(streams: &Streams, arms: &[&str]) -> Vec<Legend> {
    let entry = |name: &&str| Legend {
        label: (*name).to_owned(),
        style: style_of(streams, name),
    };
    arms.iter().map(entry).collect()
}

/// A legend entry of a dashed line.
fn dashed(label: &str, dash: (f64, f64)) -> Legend {
    Legend {
        label: label.to_owned(),
        style: ArmStyle {
            dash: Some(dash),
            ..reference_style()
        },
    }
}

/// Thins a line to about `MAX_POINTS`, keeping its last point.
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

fn x_label(streams: &Streams) -> String {
    if streams.continual {
        "prompts seen".to_owned()
    } else {
        "prompts of the stream seen".to_owned()
    }
}

/// How many seeds a figure's lines stand for.
fn seeds_note(streams: &Streams) -> String {
    match streams.seeds.len() {
        1 => "One seed.".to_owned(),
        seeds => format!("Lines: mean over {seeds} seeds; bands: smallest to largest."),
    }
}

/// A figure over the stream.
fn over_stream(
    streams: &Streams,
    title: String,
    legend: Vec<Legend>,
    rows: Vec<PanelRow>,
    caption: String,
) -> Figure {
    Figure {
        title,
        legend,
        rows,
        x_label: x_label(streams),
        log_x: false,
        caption: vec![caption],
    }
}

/// A share of something as tables print it.
fn rate(value: f64) -> String {
    format!("{value:.2}")
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
