//! Planned cells without results.

use crate::model::{Entry, Table};
use crate::root::Missing;

/// The table; `None` if nothing is missing.
pub fn table(missing: &[&Missing]) -> Option<Table> {
    let row = |missing: &&Missing| {
        vec![
            ("stage", Entry::text(&missing.stage)),
            ("cell", Entry::text(&missing.cell)),
            ("state", Entry::text(missing.state)),
        ]
    };
    Table::of(
        "missing",
        "What is missing",
        "Cells of the plan that no number of this page contains.",
        missing.iter().map(row).collect(),
    )
}
