//! Paired ratios of arms.

use super::sweep::{Family, families};
use super::{Source, joined, with_arm};
use crate::model::{Entry, Table};
use crate::paper::Where;
use results::{Estimate, Metric};
use std::slice;

/// Two places whose ratio is taken.
struct Compared {
    /// Place of the value that is divided.
    above: Where,
    /// Place of the value that it is divided by.
    below: Where,
}

/// Metrics that may choose the variant of a swept arm.
const SPEEDS: [Metric; 4] = [
    Metric::Speedup,
    Metric::CountedSpeedup,
    Metric::ModelledSpeedup,
    Metric::TokensPerRound,
];

/// The first of [`SPEEDS`] that the page shows and that has values, else its first metric that has.
pub fn speed_of(source: &Source, metrics: &[Metric]) -> Option<Metric> {
    let shown = SPEEDS.into_iter().filter(|speed| metrics.contains(speed));
    let mut all = shown.chain(metrics.iter().copied());
    all.find(|metric| source.estimates.has(*metric))
}

/// The requested ratios, of every metric of a table cell; `None` if none is requested. A swept arm
/// is represented by its fastest variant at each place.
pub fn table(source: &Source, metrics: &[Metric]) -> Option<Table> {
    let ratios = &source.experiment.report.ratios;
    if ratios.is_empty() {
        return None;
    }
    let (titles, columns) = (source.column_titles(), source.columns());
    let mut axes = source.row_axes().to_vec();
    axes.retain(|axis| axis != "arm");
    let families = families(source);
    let by = speed_of(source, metrics);
    let swept = |arm: &str| families.iter().find(|family| family.name == arm);
    let title = |arm: &str| match swept(arm) {
        Some(_) => format!("best {arm}"),
        None => arm.to_owned(),
    };
    let mut rows = Vec::new();
    for (above, below) in ratios {
        for place in source.places(&axes) {
            for &metric in metrics {
                let arms = format!("{} / {}", title(above), title(below));
                let mut row = vec![("arms", Entry::text(arms))];
                row.extend(source.labels(&axes, &place));
                row.push(("metric", Entry::text(metric.title())));
                let at = |arm: &str, column: &Where| {
                    let at = joined(&place, column);
                    let fastest = fastest(source, swept(arm), by, &at);
                    with_arm(&at, fastest.unwrap_or(arm))
                };
                let pairs: Vec<Compared> = columns
                    .iter()
                    .map(|column| Compared {
                        above: at(above, column),
                        below: at(below, column),
                    })
                    .collect();
                for (title, pair) in titles.iter().zip(&pairs) {
                    row.push((title.as_str(), entry(source, metric, pair)));
                }
                if columns.len() > 1 {
                    row.push(("ratio of means", of_means(source, metric, &pairs)));
                }
                rows.push(row);
            }
        }
    }
    let mut lead =
        "The first arm's value over the second's on the same prompts and seeds; the interval \
                    is that of the ratio. Above 1 the first arm has more."
            .to_owned();
    if columns.len() > 1 {
        lead.push_str(
            " Ratio of means: the mean of the first arm's values over that of the second's.",
        );
    }
    if let Some(by) = by
        && ratios
            .iter()
            .any(|(a, b)| [a, b].iter().any(|arm| swept(arm).is_some()))
    {
        lead.push_str(&format!(
            " The best of a sweep is the variant with the highest {} in a column, chosen after the \
             fact, which is in its favour.",
            by.title()
        ));
    }
    Table::of("ratios", "Arm over arm", lead, rows)
}

/// The variant of a swept arm with the maximum of a metric at a place.
fn fastest<'a>(
    source: &Source,
    family: Option<&Family<'a>>,
    by: Option<Metric>,
    at: &Where,
) -> Option<&'a str> {
    let ranked = family?.ranked(source, by?, at);
    ranked.first().map(|(arm, _)| arm.name.as_str())
}

fn entry(source: &Source, metric: Metric, pair: &Compared) -> Entry {
    let above = &pair.above;
    match ratio_of_means(source, metric, slice::from_ref(pair)) {
        Some(ratio) => Entry::number(source.ratio(&ratio, above)),
        None => Entry::missing(source.absent(metric, above)),
    }
}

fn of_means(source: &Source, metric: Metric, pairs: &[Compared]) -> Entry {
    let first = pairs.first().map(|pair| pair.above.clone());
    let mut at = first.unwrap_or_default();
    if let Some(axis) = source.column_axis() {
        at.remove(axis);
    }
    let ratio = ratio_of_means(source, metric, pairs);
    Entry::or_dash(ratio.map(|ratio| source.ratio(&ratio, &at)))
}

/// The mean of the values above over the mean of those below.
fn ratio_of_means(source: &Source, metric: Metric, pairs: &[Compared]) -> Option<Estimate> {
    let mean = |side: fn(&Compared) -> &Where| {
        let places = pairs.iter().map(side);
        source.estimates.mean(metric, places)
    };
    mean(|pair| &pair.above)?.over(&mean(|pair| &pair.below)?)
}
