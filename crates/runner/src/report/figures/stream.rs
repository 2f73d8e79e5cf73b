//! Acceptance and speedup over the stream: per segment, and across switches.

use super::{
    MAX_COLUMNS, Stretch, band_note, by_segment, legend, provenance, reference_legend, speculative,
    style_of, thin, whole_stream, x_label,
};
use crate::report::data::RunData;
use crate::report::drift::{Recovery, recovery_lines};
use crate::report::figure::{Figure, Line, Mark, Panel, PanelRow};
use crate::report::series::{Band, Curve, Point, offset};

/// A quantity of a curve's points.
type Quantity = fn(&Point) -> Option<Band>;

const ACCEPTANCE: Quantity = |point| point.acceptance;
const SPEEDUP: Quantity = |point| point.speedup;

/// Acceptance and speedup over prompts seen, one panel per segment (the paper's Figures 2 and 4). `None` when no
/// speculative arm has a curve.
pub fn curves_figure(data: &RunData, curves: &[Curve], window: usize) -> Option<Figure> {
    if !has(data, curves, ACCEPTANCE) {
        return None;
    }
    let mut rows = Vec::new();
    for block in by_segment(data).chunks(MAX_COLUMNS) {
        let panels = |quantity: Quantity, first: bool| -> Vec<Panel> {
            let panel = |stretch| panel(data, curves, stretch, quantity, first);
            block.iter().map(panel).collect()
        };
        rows.push(acceptance_row(panels(ACCEPTANCE, true)));
        if has(data, curves, SPEEDUP) {
            rows.push(speedup_row(panels(SPEEDUP, false)));
        }
    }
    let state = if data.has_drift() {
        "Segments follow one another; drafter and cache carry over."
    } else {
        "Every segment starts from the pretrained drafter and an empty cache."
    };
    Some(figure(
        data,
        curves,
        "online learning over the stream",
        rows,
        "prompts of the segment seen",
        vec![format!(
            "Averages over the last {window} prompts. Acceptance: accepted / proposed target tokens per step. \
             Speedup: tokens per second over plain decoding of the same prompts, decoding time only. {state}{}",
            band_note(data)
        )],
    ))
}

/// Acceptance and speedup over the whole stream with its segments shaded (Figures 5 and 6). `None` without drift.
pub fn drift_figure(
    data: &RunData,
    curves: &[Curve],
    recoveries: &[Recovery],
    window: usize,
) -> Option<Figure> {
    if !data.has_drift() || !has(data, curves, ACCEPTANCE) {
        return None;
    }
    let stream = whole_stream(data);
    let mut acceptance = panel(data, curves, &stream, ACCEPTANCE, true);
    acceptance.marks = marks(data, curves, recoveries);
    let mut rows = vec![acceptance_row(vec![acceptance])];
    if has(data, curves, SPEEDUP) {
        rows.push(speedup_row(vec![panel(
            data, curves, &stream, SPEEDUP, false,
        )]));
    }
    let mut caption = vec![format!(
        "Averages over the last {window} prompts of a segment. Recovery: prompts after a switch until the average \
         reaches 95% of the lowest plateau of an arm that learns, a plateau being the acceptance over the segment's \
         last quarter (dots; ≤ {window}: there from the first full window).{}",
        band_note(data)
    )];
    let lines = recovery_lines(recoveries);
    caption.extend(lines.into_iter().map(|line| format!("Recovery, {line}")));
    Some(figure(
        data,
        curves,
        "when the stream switches",
        rows,
        x_label(data),
        caption,
    ))
}

fn figure(
    data: &RunData,
    curves: &[Curve],
    title: &str,
    rows: Vec<PanelRow>,
    x_label: &str,
    mut caption: Vec<String>,
) -> Figure {
    let drawn = |name: &&str| curves.iter().any(|curve| curve.arm == *name);
    let arms = speculative(data).map(|arm| arm.name.as_str());
    let mut legend = legend(data, arms.filter(drawn));
    if has(data, curves, SPEEDUP) {
        legend.push(reference_legend());
    }
    caption.push(provenance(data));
    Figure {
        title: format!("{}: {title}", data.manifest.name),
        legend,
        rows,
        x_label: x_label.to_owned(),
        caption,
    }
}

/// Whether any speculative arm has the quantity anywhere.
fn has(data: &RunData, curves: &[Curve], quantity: Quantity) -> bool {
    speculative(data).any(|arm| {
        let mut curves = curves.iter().filter(|curve| curve.arm == arm.name);
        curves.any(|curve| curve.points.iter().any(|point| quantity(point).is_some()))
    })
}

fn acceptance_row(panels: Vec<Panel>) -> PanelRow {
    PanelRow {
        y_label: "acceptance rate".to_owned(),
        from_zero: true,
        reference: None,
        panels,
    }
}

fn speedup_row(panels: Vec<Panel>) -> PanelRow {
    PanelRow {
        y_label: "speedup (x)".to_owned(),
        from_zero: false,
        reference: Some(1.0),
        panels,
    }
}

fn panel(
    data: &RunData,
    curves: &[Curve],
    stretch: &Stretch,
    quantity: Quantity,
    first: bool,
) -> Panel {
    let line = |arm| line(data, curves, stretch, quantity, arm);
    Panel {
        title: stretch.title(first),
        x: stretch.x(),
        lines: speculative(data)
            .filter_map(|arm| line(arm.name.as_str()))
            .collect(),
        shades: stretch.shades(first),
        marks: Vec::new(),
    }
}

/// One arm's line, a piece per segment, so that nothing is drawn across a switch.
fn line(
    data: &RunData,
    curves: &[Curve],
    stretch: &Stretch,
    quantity: Quantity,
    arm: &str,
) -> Option<Line> {
    let mut line = Line {
        style: style_of(data, arm),
        pieces: Vec::new(),
        bands: Vec::new(),
    };
    let of_stretch = |curve: &&Curve| curve.arm == arm && stretch.segments.contains(&curve.segment);
    for curve in curves.iter().filter(of_stretch) {
        // A stretch of one segment counts from its own start.
        let before = match stretch.segments.len() {
            1 => 0,
            _ => offset(data, curve.segment),
        };
        let values = curve.points.iter().filter_map(|point| {
            let x = (before + point.seen) as f64;
            quantity(point).map(|band| (x, band))
        });
        let points = thin(&values.collect::<Vec<_>>());
        if points.is_empty() {
            continue;
        }
        let piece = points.iter().map(|(x, band)| (*x, band.mean));
        line.pieces.push(piece.collect());
        if data.seeds.len() > 1 {
            let band = points.iter().map(|(x, band)| (*x, band.low, band.high));
            line.bands.push(band.collect());
        }
    }
    (!line.pieces.is_empty()).then_some(line)
}

/// Where each arm recovered, on its line; not for arms that had nothing to recover from.
fn marks(data: &RunData, curves: &[Curve], recoveries: &[Recovery]) -> Vec<Mark> {
    let mark = |recovery: &Recovery| {
        let seen = recovery.prompts.filter(|&n| n > recovery.window)?;
        let mut curves = curves.iter();
        let curve = curves.find(|c| c.arm == recovery.method && c.segment == recovery.segment)?;
        let point = curve.points.iter().find(|point| point.seen == seen)?;
        Some(Mark {
            x: (offset(data, recovery.segment) + seen) as f64,
            y: point.acceptance?.mean,
            color: style_of(data, &recovery.method).color,
        })
    };
    recoveries.iter().filter_map(mark).collect()
}
