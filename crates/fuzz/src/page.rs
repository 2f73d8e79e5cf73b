//! The page of a campaign, made from its numbers.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::supervisor::Tally;
use crate::{LONGEST_S, MOST_MEMORY, readers};

/// A campaign: many inputs for several readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// Root seed.
    pub seed: u64,
    /// Commit the program was built from, or `unknown`.
    pub commit: String,
    /// Wall time, in seconds.
    pub seconds: f64,
    /// By reader.
    pub tallies: Vec<Tally>,
}

impl Campaign {
    /// Inputs tried, over all readers.
    pub fn executions(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.executions).sum()
    }

    /// Inputs that failed, over all readers.
    pub fn failures(&self) -> usize {
        self.tallies.iter().map(|tally| tally.failures.len()).sum()
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let mut page = String::from("# Mutated inputs\n\n");
        let _ = writeln!(
            page,
            "{} inputs for {} readers, root seed {}, commit {}, {:.0} s. A failure is a panic, a process that dies, \
             an input that takes more than {LONGEST_S} s or more than {} MiB: there were {}.\n",
            self.executions(),
            self.tallies.len(),
            self.seed,
            self.commit,
            self.seconds,
            MOST_MEMORY >> 20,
            self.failures(),
        );
        let each = self.tallies.iter().map(|tally| tally.executions).max();
        let _ = writeln!(
            page,
            "Made by `cargo run --release -p fuzz -- run --executions {} --seed {} --out DIR`.\n",
            each.unwrap_or(0),
            self.seed,
        );
        page.push_str(
            "| reader | reads | inputs | read | refused | longest | most memory | failures |\n",
        );
        page.push_str("|:--|:--|--:|--:|--:|--:|--:|--:|\n");
        for tally in &self.tallies {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} | {:.1} ms | {:.2} MiB | {} |",
                tally.reader,
                tally.what,
                tally.executions,
                tally.accepted,
                tally.refused,
                1e3 * tally.longest_s,
                tally.most_bytes as f64 / (1 << 20) as f64,
                tally.failures.len(),
            );
        }
        let tried = |name: &str| self.tallies.iter().any(|tally| tally.reader == name);
        let others = readers::ALL.iter().filter(|reader| !tried(reader.name));
        let others: Vec<String> = others
            .map(|reader| format!("{} ({})", reader.name, reader.what))
            .collect();
        if !others.is_empty() {
            let _ = writeln!(page, "\nNot in this campaign: {}.", others.join("; "));
        }
        for tally in self
            .tallies
            .iter()
            .filter(|tally| !tally.failures.is_empty())
        {
            let _ = writeln!(page, "\n## Failures of `{}`\n", tally.reader);
            for failure in &tally.failures {
                let _ = writeln!(
                    page,
                    "- {}: {:?}: {}",
                    failure.index, failure.kind, failure.message
                );
            }
        }
        page
    }
}
