//! Examples of merges: the n-grams of the caches, those seen most first (Table 13).

use crate::model::{Entry, Table};
use crate::root::Stage;
use crate::spec::{Experiment, shows};
use results::NgramRow;
use std::collections::BTreeMap;

/// Number of examples per target.
const SHOWN: usize = 20;

/// Counts of every n-gram of one stream in verified text, by target token and draft tokens, over
/// arms and seeds.
type Sightings<'a> = BTreeMap<(&'a str, &'a [String]), u64>;

/// The n-grams of a stage's cells by stream: target and task.
pub fn by_stream<'a>(experiment: &Experiment, stage: &'a Stage) -> BTreeMap<String, Sightings<'a>> {
    let mut streams: BTreeMap<String, Sightings> = BTreeMap::new();
    for cell in &stage.cells {
        let at = |axis: &str| cell.manifest.cell.coordinate(axis).map(str::to_owned);
        let answer = cell.answers.first();
        let target = at("target").or_else(|| answer.map(|a| a.row.target.clone()));
        let task = at("task").or_else(|| answer.map(|a| a.row.task.clone()));
        let name: Vec<String> = [target, task].into_iter().flatten().collect();
        let seen = streams.entry(name.join(", ")).or_default();
        let shown = |row: &&NgramRow| shows(experiment, &row.arm);
        for row in cell.ngrams.iter().filter(shown) {
            *seen
                .entry((&row.target_text, &row.draft_texts))
                .or_default() += row.count;
        }
    }
    streams.retain(|_, seen| !seen.is_empty());
    streams
}

/// The table; `None` if no cell wrote its n-grams.
pub fn table(experiment: &Experiment, stage: &Stage) -> Option<Table> {
    let mut rows = Vec::new();
    for (stream, seen) in by_stream(experiment, stage) {
        let mut ranked: Vec<_> = seen.into_iter().collect();
        ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        for ((target, draft), count) in ranked.into_iter().take(SHOWN) {
            let draft: Vec<String> = draft.iter().map(|text| visible(text)).collect();
            rows.push(vec![
                ("stream", Entry::text(&stream)),
                ("target token", Entry::text(visible(target))),
                ("draft tokens", Entry::text(draft.join(" + "))),
                ("seen", Entry::count(count as usize)),
            ]);
        }
    }
    let lead = format!(
        "The {SHOWN} entries of the caches that were seen most often in the verified text of each \
         stream, over arms and seeds. ␣ is a space, ⏎ a line break."
    );
    Table::of("merges", "N-grams seen most", lead, rows)
}

/// White space made visible.
fn visible(text: &str) -> String {
    text.replace(' ', "␣").replace('\n', "⏎").replace('\t', "⇥")
}
