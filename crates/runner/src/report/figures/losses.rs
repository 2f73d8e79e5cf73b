//! Loss terms of the updates over prompts seen.

use super::{
    MAX_COLUMNS, Stretch, legend, provenance, speculative, stretches, style_of, thin, x_label,
};
use crate::report::data::RunData;
use crate::report::figure::{Figure, Line, Panel, PanelRow};
use crate::results::UpdateRow;
use std::collections::BTreeMap;

/// A loss term with its label; `None` where an update had nothing of it.
type Term = (&'static str, fn(&UpdateRow) -> Option<f64>);

const TERMS: [Term; 2] = [
    ("DM loss (nats/position)", |row| {
        (row.dm_positions > 0 && row.loss_dm.is_finite()).then_some(row.loss_dm)
    }),
    ("n-gram loss (nats/token)", |row| {
        (row.ngram_tokens > 0 && row.loss_ngram.is_finite()).then_some(row.loss_ngram)
    }),
];

/// Both loss terms of every arm that learnt. `None` when none did.
pub fn losses_figure(data: &RunData) -> Option<Figure> {
    let learnt = |name: &&str| data.updates.iter().any(|row| row.arm == *name);
    let learners: Vec<&str> = speculative(data)
        .map(|arm| arm.name.as_str())
        .filter(learnt)
        .collect();
    let stretches = stretches(data);
    let lines = learners.len() * data.seeds.len() * stretches.len();
    let window = (data.updates.len() / lines.max(1) / 20).clamp(1, 25);
    let mut rows = Vec::new();
    for block in stretches.chunks(MAX_COLUMNS) {
        for (index, (label, term)) in TERMS.iter().enumerate() {
            let panel = |stretch: &Stretch| Panel {
                title: stretch.title(index == 0),
                x: stretch.x(),
                lines: learners
                    .iter()
                    .filter_map(|arm| line(data, arm, stretch, *term, window))
                    .collect(),
                shades: stretch.shades(index == 0),
                marks: Vec::new(),
            };
            let panels: Vec<Panel> = block.iter().map(panel).collect();
            if panels.iter().any(|panel| !panel.lines.is_empty()) {
                rows.push(PanelRow {
                    y_label: (*label).to_owned(),
                    from_zero: true,
                    reference: None,
                    panels,
                });
            }
        }
    }
    (!rows.is_empty()).then(|| Figure {
        title: format!("{}: training losses", data.manifest.name),
        legend: legend(data, learners),
        rows,
        x_label: x_label(data).to_owned(),
        caption: vec![caption(data, window), provenance(data)],
    })
}

fn caption(data: &RunData, window: usize) -> String {
    let points = match window {
        1 => "One point per update.".to_owned(),
        _ => format!("Averages over the last {window} updates."),
    };
    let seeds = if data.seeds.len() > 1 {
        " Mean over seeds."
    } else {
        ""
    };
    format!(
        "DM loss: reverse KL on directly mapped tokens. N-gram loss: negative log-likelihood of the draft tokens \
         that spell accepted n-grams. {points}{seeds}"
    )
}

/// Trailing averages of a term, mean over seeds at equal update numbers, a piece per segment.
fn line(
    data: &RunData,
    arm: &str,
    stretch: &Stretch,
    term: fn(&UpdateRow) -> Option<f64>,
    window: usize,
) -> Option<Line> {
    let mut pieces = Vec::new();
    for &segment in &stretch.segments {
        let mut by_update: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
        for row in &data.updates {
            if row.arm == arm
                && row.segment == segment
                && let Some(value) = term(row)
            {
                let (seen, sum, count) = by_update.entry(row.update).or_default();
                *seen += f64::from(row.prompts_seen);
                *sum += value;
                *count += 1.0;
            }
        }
        let means = by_update.into_values().map(|(x, y, n)| (x / n, y / n));
        let means: Vec<(f64, f64)> = means.collect();
        if !means.is_empty() {
            pieces.push(thin(&trailing(&means, window)));
        }
    }
    (!pieces.is_empty()).then(|| Line {
        style: style_of(data, arm),
        pieces,
        bands: Vec::new(),
    })
}

fn trailing(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let average = |at: usize| {
        let recent = &points[(at + 1).saturating_sub(window)..=at];
        recent.iter().map(|point| point.1).sum::<f64>() / recent.len() as f64
    };
    (0..points.len())
        .map(|at| (points[at].0, average(at)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_averages_start_short() {
        let points = [(1.0, 4.0), (2.0, 2.0), (3.0, 0.0)];
        assert_eq!(trailing(&points, 2), [(1.0, 4.0), (2.0, 3.0), (3.0, 1.0)]);
        assert_eq!(trailing(&points, 1), points);
    }
}
