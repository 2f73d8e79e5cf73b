//! Properties of the answers that speeds were measured on: loops, formulas, truncated answers.

use super::Source;
use crate::model::Table;
use crate::paper::Where;
use results::Metric;

/// The columns; those related to speed come first.
pub const METRICS: [Metric; 9] = [
    Metric::Acceptance,
    Metric::FreshAcceptance,
    Metric::FreshModelledSpeedup,
    Metric::FreshImpliedSpeedup,
    Metric::FreshShare,
    Metric::Speedup,
    Metric::Looping,
    Metric::Cut,
    Metric::Distinct,
];

/// Columns of pages with modelled speeds only.
pub const FRESH_SPEEDS: [Metric; 2] = [Metric::FreshModelledSpeedup, Metric::FreshImpliedSpeedup];

/// True if the page has modelled speeds and the rows have them for fresh text.
pub fn modelled(source: &Source) -> bool {
    let cell = &source.experiment.report.cell;
    let shown = cell
        .iter()
        .any(|name| name == Metric::ModelledSpeedup.name());
    let known = |place: &Where| {
        let value = source.estimates.value(Metric::FreshModelledSpeedup, place);
        value.is_some()
    };
    shown && source.places(source.row_axes()).iter().any(known)
}

/// One row per table cell of the page.
pub fn table(source: &Source) -> Option<Table> {
    let metrics: Vec<Metric> = METRICS
        .into_iter()
        .filter(|metric| source.stage.spec.exclusive || !metric.is_timed())
        .filter(|metric| !FRESH_SPEEDS.contains(metric) || modelled(source))
        .collect();
    let axes = source.axes();
    let bare = |metric, at: &Where| source.bare_entry(metric, at);
    Table::of(
        "text",
        "What the answers are like",
        "Drafters are accepted most where a target loops or repeats itself. Read a speedup with \
         the shares beside it: of looping tokens, of answers cut by the limit, of different \
         answers, and with the acceptance outside of loops and formulas.",
        source.by_metric(&axes, &source.places(&axes), &metrics, bare),
    )
}
