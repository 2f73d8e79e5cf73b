//! `omnidraft status`, `report`, `quote` and `publish`: commands for results folders.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bench::args::print;
use clap::Args;

use super::failure::told;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft status runs/table1
  omnidraft status runs/table1 --json")]
pub struct StatusArgs {
    /// Results folder of an experiment.
    folder: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// Prints the state of the jobs.
    pub fn execute(self) -> Result<()> {
        let status = jobs::status(&self.folder)?;
        match self.json {
            true => print(&format!("{}\n", serde_json::to_string_pretty(&status)?)),
            false => print(&status.to_string()),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft report runs/quickstart
  omnidraft report results/quickstart | less
  omnidraft report results/quickstart --check")]
pub struct ReportArgs {
    /// Results folder of an experiment.
    folder: PathBuf,
    /// Write nothing; fail if the existing pages differ from those that the rows give.
    #[arg(long)]
    check: bool,
}

impl ReportArgs {
    /// Makes tables, figures and pages from the rows.
    pub fn execute(self) -> Result<()> {
        if !self.folder.is_dir() {
            bail!("{}: no such results folder", self.folder.display());
        }
        if self.check {
            let differences = report::compare(&self.folder)?;
            if differences.is_empty() {
                return Ok(());
            }
            let lines = differences
                .iter()
                .map(|d| format!("{}: {}", d.path.display(), d.what));
            bail!(
                "pages are not what their rows give:\n  {}",
                lines.collect::<Vec<_>>().join("\n  ")
            );
        }
        let summary = report::write_report(&self.folder)?;
        print(&summary.markdown)?;
        for file in &summary.files {
            eprintln!("wrote {}", file.display());
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft quote README.md docs/findings.md
  omnidraft quote README.md --check

A page says what it quotes in a comment, with a path relative to the page, and the table stands
between the comment and the next `<!-- end -->`. Of a results folder the second part names a table;
of a Markdown file it is the heading above one. Further parts keep rows or columns:
  <!-- quote: ../results/real-table1; acceptance; arm = L_DM | L_DM+L_N-gram -->
  <!-- quote: ../models/L/README.md; Its answers; columns = task | looping tokens -->
In how many groups of rows each claim of the paper holds:
  <!-- verdicts: ../results/real-table1 | ../results/trace-table1 -->
The answer to the `sql` block above, as `omnidraft query` gives it; programs without SQL keep it:
  <!-- query: ../results/real-table1 -->")]
pub struct QuoteArgs {
    /// Markdown pages.
    #[arg(required = true)]
    pages: Vec<PathBuf>,
    /// Write nothing; fail if a table differs from that of its rows.
    #[arg(long)]
    check: bool,
}

impl QuoteArgs {
    /// Regenerates the quoted tables.
    pub fn execute(self) -> Result<()> {
        let ask = |runs: &[PathBuf], question: &str| match crate::query::ask(runs, question) {
            Ok(answer) => Ok(answer.table()),
            Err(error) => Err(told(&error).replace("\nhint: ", "; ")),
        };
        let ask: Option<&report::Ask<'_>> = cfg!(feature = "query").then_some(&ask);
        let mut stale = Vec::new();
        for path in &self.pages {
            let page = report::quoted(path, ask)?;
            let shown = path.display().to_string();
            if ask.is_none() && page.contains("<!-- query:") {
                eprintln!(
                    "{shown}: answers in SQL are left as they are, for this program is built without the feature `query`"
                );
            }
            if std::fs::read(path).with_context(|| shown.clone())? == page.as_bytes() {
                continue;
            }
            if self.check {
                stale.push(shown);
                continue;
            }
            results::write_atomically(path, page.as_bytes())?;
            eprintln!("wrote {shown}");
        }
        if !stale.is_empty() {
            let stale = stale.join("\n  ");
            bail!(
                "tables are not what their rows give (`omnidraft quote` makes them again):\n  {stale}"
            );
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft publish runs/table2 results/table2
  omnidraft publish runs/table2 results/table2 --no-answers")]
pub struct PublishArgs {
    /// Results folder of an experiment.
    from: PathBuf,
    /// Folder to write; replaced if it holds an earlier publication.
    to: PathBuf,
    /// Leave out all answers; the page then has no analysis of loops and fresh text.
    #[arg(long)]
    no_answers: bool,
}

impl PublishArgs {
    /// Copies the data that pages need, without learnt states, and writes the pages from the copy.
    pub fn execute(self) -> Result<()> {
        results::publish(&self.from, &self.to, !self.no_answers)?;
        let summary = report::write_report(&self.to)?;
        eprintln!(
            "published {} with {} files of its report",
            self.to.display(),
            summary.files.len()
        );
        Ok(())
    }
}
