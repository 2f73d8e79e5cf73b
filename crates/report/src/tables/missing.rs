//! Planned cells without results.

use crate::model::{Entry, Head, Table};
use crate::root::Missing;

/// The table; `None` if nothing is missing.
pub fn table(missing: &[&Missing]) -> Option<Table> {
    let row = |missing: &&Missing| {
        vec![
            Entry::text(&missing.stage),
            Entry::text(&missing.cell),
            Entry::text(missing.state),
        ]
    };
    let head = ["stage", "cell", "state"].map(Head::words);
    (!missing.is_empty()).then(|| Table {
        id: "missing".to_owned(),
        title: "What is missing".to_owned(),
        lead: "Cells of the plan that no number of this page contains.".to_owned(),
        head: head.to_vec(),
        rows: missing.iter().map(row).collect(),
    })
}
