//! `omnidraft rows`: a run as one table.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bench::args::print;
use clap::{Args, ValueEnum};
use results::{FlatKind, FlatTable, write_atomically, write_flat};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft rows results/quickstart | head -3
  omnidraft rows results/quickstart --out quickstart.parquet
  omnidraft rows results/real-pair-pays-long --table rounds --stage stream --out rounds.csv
  omnidraft rows results/quickstart --columns

One line is one answer (round, update of a drafter, step of an acceptance head). Stage, cell and every
axis of the grid, such as target, task and seed, are columns, so that pandas, DuckDB, polars or a
spreadsheet need nothing else. What was not recorded, and a rate over nothing, is empty or null.")]
pub struct RowsArgs {
    /// Results folder of an experiment.
    folder: PathBuf,
    /// Kind of rows.
    #[arg(long, value_enum, default_value_t = Table::Prompts)]
    table: Table,
    /// Rows of this stage only.
    #[arg(long)]
    stage: Option<String>,
    /// File to write; by default CSV on standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Format of the file, if its ending does not tell.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Print the meanings of the columns instead of rows.
    #[arg(long)]
    columns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Answers.
    Prompts,
    /// Speculative rounds.
    Rounds,
    /// Updates of drafters.
    Updates,
    /// Steps of acceptance heads.
    Heads,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Csv,
    Parquet,
}

impl RowsArgs {
    pub fn execute(self) -> Result<()> {
        if !self.folder.is_dir() {
            bail!("{}: no such results folder", self.folder.display());
        }
        let kind = match self.table {
            Table::Prompts => FlatKind::Prompts,
            Table::Rounds => FlatKind::Rounds,
            Table::Updates => FlatKind::Updates,
            Table::Heads => FlatKind::Heads,
        };
        let format = self.format()?;
        let table = FlatTable::read(&self.folder, kind, self.stage.as_deref())?;
        if self.columns {
            let line = |column: &results::FlatColumn| format!("{}: {}\n", column.name, column.doc);
            return print(&table.columns.iter().map(line).collect::<String>());
        }
        let Some(path) = &self.out else {
            return print(&String::from_utf8(csv(&table)?)?);
        };
        match format {
            Format::Csv => write_atomically(path, &csv(&table)?)?,
            Format::Parquet => write_flat(path, &table)?,
        }
        eprintln!("wrote {}: {} rows", path.display(), table.len());
        Ok(())
    }

    fn format(&self) -> Result<Format> {
        let ending = self.out.as_ref().and_then(|path| path.extension());
        match (
            self.format,
            ending.and_then(|ending| ending.to_str()),
            &self.out,
        ) {
            (Some(Format::Parquet), _, None) => {
                bail!("--format parquet needs a file\nhint: --out ROWS.parquet")
            }
            (Some(format), ..) => Ok(format),
            (None, Some("parquet"), _) => Ok(Format::Parquet),
            (None, Some("csv"), _) | (None, _, None) => Ok(Format::Csv),
            (None, _, Some(path)) => bail!(
                "--out {}: its ending says neither csv nor parquet\nhint: give --format",
                path.display()
            ),
        }
    }
}

/// The table with a header line.
fn csv(table: &FlatTable) -> Result<Vec<u8>> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(table.columns.iter().map(|column| &column.name))?;
    for row in 0..table.len() {
        let values = table
            .columns
            .iter()
            .map(|column| column.text(row).unwrap_or_default());
        writer.write_record(values)?;
    }
    writer.into_inner().context("a table in memory")
}
