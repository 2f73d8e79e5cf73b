//! Size of the n-gram cache and how fast it grows (Figure 9).

use super::{
    MAX_COLUMNS, Stretch, band_note, legend, provenance, speculative, stretches, style_of, thin,
    x_label,
};
use crate::report::data::RunData;
use crate::report::figure::{Figure, Line, Panel, PanelRow};
use crate::report::series::Band;
use crate::results::Phase;

/// A quantity of the cache from its entries and the tokens generated so far.
type Quantity = (&'static str, fn(f64, f64) -> f64);

const QUANTITIES: [Quantity; 2] = [
    ("n-grams in the cache", |entries, _| entries),
    ("n-grams per 1000 tokens", |entries, tokens| {
        1000.0 * entries / tokens.max(1.0)
    }),
];

/// Entries and growth rate of every arm that caches. `None` when none does.
pub fn cache_figure(data: &RunData) -> Option<Figure> {
    let caches = |name: &&str| {
        let mut rows = data.prompts.iter().filter(|row| row.arm == *name);
        rows.any(|row| row.phase == Phase::Train && row.cache_ngrams > 0)
    };
    let arms: Vec<&str> = speculative(data)
        .map(|arm| arm.name.as_str())
        .filter(caches)
        .collect();
    if arms.is_empty() {
        return None;
    }
    let mut rows = Vec::new();
    for block in stretches(data).chunks(MAX_COLUMNS) {
        for (index, (label, quantity)) in QUANTITIES.iter().enumerate() {
            let panel = |stretch: &Stretch| Panel {
                title: stretch.title(index == 0),
                x: stretch.x(),
                lines: arms
                    .iter()
                    .filter_map(|arm| line(data, arm, stretch, *quantity))
                    .collect(),
                shades: stretch.shades(index == 0),
                marks: Vec::new(),
            };
            rows.push(PanelRow {
                y_label: (*label).to_owned(),
                from_zero: true,
                reference: None,
                panels: block.iter().map(panel).collect(),
            });
        }
    }
    Some(Figure {
        title: format!("{}: growth of the n-gram cache", data.manifest.name),
        legend: legend(data, arms),
        rows,
        x_label: x_label(data).to_owned(),
        caption: vec![
            format!(
                "Growth rate: entries of the cache / tokens generated so far.{}{}",
                band_note(data),
                largest(data)
            ),
            provenance(data),
        ],
    })
}

/// ` Largest: 990 n-grams in 39.6 KB, 40 bytes each.`
fn largest(data: &RunData) -> String {
    let largest = data.prompts.iter().max_by_key(|row| row.cache_bytes);
    largest
        .filter(|row| row.cache_ngrams > 0)
        .map_or_else(String::new, |row| {
            format!(
                " Largest: {} n-grams in {:.1} KB, {:.0} bytes each.",
                row.cache_ngrams,
                row.cache_bytes as f64 / 1e3,
                row.cache_bytes as f64 / f64::from(row.cache_ngrams),
            )
        })
}

/// One arm's line: mean over seeds with a band.
fn line(
    data: &RunData,
    arm: &str,
    stretch: &Stretch,
    quantity: fn(f64, f64) -> f64,
) -> Option<Line> {
    let seeds: Vec<Vec<f64>> = data
        .seeds
        .iter()
        .map(|&seed| values(data, arm, seed, stretch, quantity))
        .filter(|values| !values.is_empty())
        .collect();
    let length = seeds.iter().map(Vec::len).min()?;
    let points: Vec<(f64, Band)> = (0..length)
        .filter_map(|at| {
            let values: Vec<_> = seeds.iter().map(|values| Some(values[at])).collect();
            Some(((at + 1) as f64, Band::of(&values)?))
        })
        .collect();
    let points = thin(&points);
    let band = points.iter().map(|(x, band)| (*x, band.low, band.high));
    let bands = match seeds.len() {
        0 | 1 => Vec::new(),
        _ => vec![band.collect()],
    };
    Some(Line {
        style: style_of(data, arm),
        pieces: vec![points.iter().map(|(x, band)| (*x, band.mean)).collect()],
        bands,
    })
}

/// The quantity after each prompt of a stretch.
fn values(
    data: &RunData,
    arm: &str,
    seed: u64,
    stretch: &Stretch,
    quantity: fn(f64, f64) -> f64,
) -> Vec<f64> {
    let mut tokens = 0.0;
    let mut values = Vec::new();
    for &segment in &stretch.segments {
        for stream in data.streams(arm, segment, Phase::Train) {
            for row in stream.into_iter().filter(|row| row.seed == seed) {
                tokens += f64::from(row.new_tokens);
                values.push(quantity(f64::from(row.cache_ngrams), tokens));
            }
        }
    }
    values
}
