//! `omnidraft query`: questions in SQL.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use bench::args::print;
use clap::{Args, ValueEnum, ValueHint};
use report::render::table_markdown;
use results::write_atomically;

#[derive(Debug, Args)]
#[command(override_usage = "omnidraft query [OPTIONS] <RUN>... <SQL>")]
#[command(after_help = "Examples:
  omnidraft query results/quickstart 'select arm, count(*) as answers from prompts group by arm order by arm'
  omnidraft query results/quickstart 'select * from updates' --out updates.csv
  omnidraft query results/real-pair-pays-long results/real-drift-pays \\
    'select run, arm, sum(accepted) / sum(proposed) as share from rounds group by run, arm order by run, arm'

The tables are those of `omnidraft rows`: prompts (a row an answer), rounds, updates and heads, with the
columns that `omnidraft rows RUN --columns` lists, and `run`, the folder's name. docs/query.md has ten
questions with their answers. Only programs built with the feature `query` answer.")]
pub struct QueryArgs {
    /// Results folders of experiments, of which several are asked as one, then the SQL: one SELECT.
    // One list: two would take no option between them.
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    runs_and_sql: Vec<OsString>,
    /// Form of the answer; by default that of the file's ending, or a table.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// File to write; by default standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns, for reading.
    Table,
    /// Markdown, with the decimals of `table`.
    Md,
    /// All digits, with a header line.
    Csv,
}

impl QueryArgs {
    /// Prints or writes the answer.
    pub fn execute(self) -> Result<()> {
        let (sql, runs) = match self.runs_and_sql.split_last() {
            Some((sql, runs)) if !runs.is_empty() => (sql.to_string_lossy(), runs),
            _ => {
                bail!("a run and SQL are needed\nhint: omnidraft query RUN 'select * from prompts'")
            }
        };
        let runs: Vec<PathBuf> = runs.iter().map(PathBuf::from).collect();
        let answer = crate::query::ask(&runs, &sql)?;
        for note in &answer.notes {
            eprintln!("note: {note}");
        }
        let text = match self.format() {
            Format::Table => answer.text().into_bytes(),
            Format::Md => table_markdown(&answer.table()).into_bytes(),
            Format::Csv => answer.csv()?,
        };
        let Some(path) = &self.out else {
            return print(&String::from_utf8(text)?);
        };
        write_atomically(path, &text).map_err(|error| {
            anyhow!("{error}\nhint: name a file in a folder that you may write to")
        })?;
        eprintln!("wrote {}", path.display());
        Ok(())
    }

    fn format(&self) -> Format {
        let ending = self.out.as_ref().and_then(|path| path.extension());
        let ending = ending.and_then(|ending| ending.to_str());
        let of_file = match ending {
            Some("csv") => Format::Csv,
            Some("md") => Format::Md,
            _ => Format::Table,
        };
        self.format.unwrap_or(of_file)
    }
}
