//! Acceptance by position in the draft, and tokens a round.

use super::Source;
use crate::model::{Entry, Table};
use crate::paper::Where;
use crate::positions::{Judged, MOST};
use results::Metric;
use std::collections::HashMap;

/// The mean accepted length: accepted tokens and the target's own, a round.
pub const LENGTH: Metric = Metric::TokensPerRound;

/// Counts of the stage's rounds by the values of a place on some axes.
type Counts = HashMap<Vec<String>, [Judged; MOST]>;

/// One row a table cell of the page in which something was proposed.
pub fn table(source: &Source) -> Option<Table> {
    let axes = source.axes();
    let counts = counts(source, &axes);
    let of = |at: &Where| {
        let values: Option<Vec<String>> = axes.iter().map(|axis| at.get(axis).cloned()).collect();
        counts.get(&values?).filter(|counts| counts[0].judged > 0)
    };
    let places = source.places(&axes).into_iter();
    let found = places.filter_map(|at| of(&at).copied().map(|counts| (at, counts)));
    let found: Vec<_> = found.collect();
    let judged = |counts: &[Judged; MOST]| counts.iter().take_while(|own| own.judged > 0).count();
    let width = found.iter().map(|(_, counts)| judged(counts)).max()?;
    let titles: Vec<String> = (1..=width).map(|place| format!("token {place}")).collect();
    let row = |(at, counts): &(Where, [Judged; MOST])| {
        let mut row = source.labels(&axes, at);
        row.push((LENGTH.title(), source.bare_entry(LENGTH, at)));
        for (title, count) in titles.iter().zip(counts) {
            row.push((title.as_str(), Entry::printed(count.rate(), 2, "")));
        }
        row
    };
    let mut lead = format!(
        "Of the rounds whose draft had a token at a position and in which all tokens before it \
         were accepted, the share in which it was accepted too; the product up to a position is \
         how often a draft stands so far. Others call tokens per round the mean accepted length. \
         Positions after the {MOST}th are left out."
    );
    let pooled = |(at, _): &(Where, _)| source.estimates.matching(at).count() > 1;
    if found.iter().any(pooled) {
        lead.push_str(&format!(
            " Where a row stands for several tasks, targets or segments, all their rounds are \
             counted together; {} is their mean.",
            LENGTH.title()
        ));
    }
    Table::of(
        "positions",
        "Acceptance by position in the draft",
        lead,
        found.iter().map(row).collect(),
    )
}

fn counts(source: &Source, axes: &[String]) -> Counts {
    let split = source.stage.split();
    let mut all = Counts::new();
    for cell in &source.stage.cells {
        for own in cell.positions.iter().filter(|own| own.split == split) {
            let same = |answer: &&results::Answer| {
                let row = &answer.row;
                row.arm == own.arm && row.segment == own.segment && row.split == split
            };
            let Some(answer) = cell.answers.iter().find(same) else {
                continue;
            };
            let values = axes.iter().map(|axis| cell.value_on(axis, answer));
            let Some(values) = values.collect::<Option<Vec<_>>>() else {
                continue;
            };
            let sum = all.entry(values).or_insert([Judged::default(); MOST]);
            for (sum, count) in sum.iter_mut().zip(own.counts) {
                *sum = sum.and(count);
            }
        }
    }
    all
}
