//! Frequencies of n-grams: few are seen often, most rarely (Figure 7).

use super::MAX_COLUMNS;
use crate::figure::{Figure, Line, Panel, PanelRow, other_style};
use crate::names::readable;
use crate::root::Stage;
use crate::spec::Experiment;
use crate::tables::merges::by_stream;

/// Counts of n-grams in verified text, by rank, both axes logarithmic; `None` if no cell wrote its
/// n-grams.
pub fn frequencies_figure(experiment: &Experiment, stage: &Stage) -> Option<Figure> {
    let mut panels = Vec::new();
    let (mut top, mut all, mut longest) = (0u64, 0u64, 1usize);
    for (stream, seen) in by_stream(experiment, stage) {
        let mut counts: Vec<u64> = seen.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let tenth = counts.len().div_ceil(10);
        top += counts.iter().take(tenth).sum::<u64>();
        all += counts.iter().sum::<u64>();
        longest = longest.max(counts.len());
        panels.push((stream, curve(&counts)));
    }
    if all == 0 {
        return None;
    }
    let style = other_style(4);
    let panel = |(stream, points): &(String, Vec<(f64, f64)>)| Panel {
        title: Some(readable(stream)),
        x: (1.0, longest as f64),
        lines: vec![Line {
            pieces: vec![points.clone()],
            ..Line::new(style)
        }],
        ..Panel::default()
    };
    let row = |block: &[(String, Vec<(f64, f64)>)]| PanelRow {
        y_label: "times seen".to_owned(),
        from_zero: false,
        reference: None,
        panels: block.iter().map(panel).collect(),
    };
    Some(Figure {
        title: format!(
            "A tenth of the n-grams makes {:.0}% of their sightings",
            100.0 * top as f64 / all as f64
        ),
        legend: Vec::new(),
        rows: panels.chunks(MAX_COLUMNS).map(row).collect(),
        x_label: "n-grams by rank".to_owned(),
        log: true,
        caption: "How often every entry of the caches had been seen in verified text when the \
                  stream ended, over arms and seeds."
            .to_owned(),
    })
}

/// (rank, count) at ranks that are evenly spaced on a logarithmic axis.
fn curve(counts: &[u64]) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut rank = 1usize;
    while let Some(count) = counts.get(rank - 1) {
        points.push((rank as f64, *count as f64));
        rank = (rank + 1).max((rank as f64 * 1.04) as usize);
    }
    if let Some(last) = counts.last() {
        points.push((counts.len() as f64, *last as f64));
    }
    points
}
