//! Effect of n-grams: their share of the proposed tokens, and their acceptance rate compared with
//! the others.

use super::{Source, joined};
use crate::model::{Head, Table};
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
    let mut axes = source.row_axes().to_vec();
    axes.extend(source.column_axis().map(str::to_owned));
    let proposed = |at: &Where| {
        let value = source.estimates.value(Metric::NgramShare, at);
        source.exists(at) && value.is_some()
    };
    let mut rows = Vec::new();
    for place in source.places(source.row_axes()) {
        for column in source.columns() {
            let at = joined(&place, &column);
            if proposed(&at) {
                let mut row = source.labels(&axes, &at);
                row.extend(METRICS.iter().map(|&metric| source.bare_entry(metric, &at)));
                rows.push(row);
            }
        }
    }
    let mut head = Source::heads(&axes);
    head.extend(METRICS.iter().map(|metric| Head::numbers(metric.title())));
    (!rows.is_empty()).then(|| Table {
        id: "ngrams".to_owned(),
        title: "What n-grams are worth".to_owned(),
        lead: "An n-gram that is accepted saves the round that its target token would have taken. Where few of \
               the proposed tokens are n-grams, or where they are accepted less often than the others, merging \
               them can gain little."
            .to_owned(),
        head,
        rows,
    })
}
