//! Effect of n-grams: their share of the proposed tokens, and their acceptance rate compared with
//! the others.

use super::Source;
use crate::model::Table;
use crate::paper::Where;
use results::Metric;

/// The columns.
pub const METRICS: [Metric; 5] = [
    Metric::TokensPerRound,
    Metric::NgramShare,
    Metric::NgramAcceptance,
    Metric::OtherAcceptance,
    Metric::HitsPerResponse,
];

/// One row per table cell of the page in which a drafter proposed something.
pub fn table(source: &Source) -> Option<Table> {
    let axes = source.axes();
    let mut places = source.places(&axes);
    places.retain(|at| source.estimates.value(Metric::NgramShare, at).is_some());
    let bare = |metric, at: &Where| source.bare_entry(metric, at);
    Table::of(
        "ngrams",
        "What n-grams are worth",
        "An n-gram that is accepted saves the round that its target token would have taken. Where \
         few of the proposed tokens are n-grams, or where they are accepted less often than the \
         others, merging them can gain little.",
        source.by_metric(&axes, &places, &METRICS, bare),
    )
}
