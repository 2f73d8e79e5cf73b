//! From a results folder to its `report/`: tables, curves, figures. Reads only what the folder holds, so every report
//! can be made again anywhere.
//!
//! ```text
//! table.md  table.csv                  acceptance and speedup per target, task and method (layout of Table 1)
//! curves.svg .png .csv                 acceptance and speedup over prompts seen (Figures 2 and 4)
//! drift.svg .png .csv                  the same across switches of task or target (Figures 5 and 6)
//! drift_recovery.csv                   prompts until recovered after each switch
//! losses.svg .png  losses.csv          loss terms of every update
//! learning.csv                         share of the stream's time spent learning, speedups with and without it
//! cache.svg .png                       n-gram cache entries and growth rate (Figure 9)
//! ```
//!
//! What cannot be made from the rows (no learning, one segment only, plain decoding not timed) is left out, and
//! the table says so.

mod csv;
mod data;
mod drift;
mod error;
mod figure;
mod figures;
mod learning;
mod markdown;
mod series;
mod table;

pub use error::ReportError;
pub use table::{TABLE_COLUMNS, TableRow};

use crate::results::{Phase, Row, UpdateRow};
use csv::{Csv, number};
use data::RunData;
use figure::{Figure, write_figure};
use std::path::{Path, PathBuf};

/// Folder of the report inside a results folder.
pub const REPORT_DIR: &str = "report";

/// Every file a report may have; an old one is removed before a new one is made.
const FILES: [&str; 15] = [
    "table.md",
    "table.csv",
    "curves.csv",
    "curves.svg",
    "curves.png",
    "drift.csv",
    "drift.svg",
    "drift.png",
    "drift_recovery.csv",
    "learning.csv",
    "losses.csv",
    "losses.svg",
    "losses.png",
    "cache.svg",
    "cache.png",
];

/// What a report found.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportSummary {
    /// The table as Markdown, for the terminal.
    pub markdown: String,
    /// The table's rows.
    pub rows: Vec<TableRow>,
    /// Files written.
    pub files: Vec<PathBuf>,
    /// What was left out or must be read with care; also at the top of the table.
    pub notes: Vec<String>,
}

/// Writes `report/` of a results folder.
///
/// # Errors
/// A missing, damaged or empty results folder; a figure or file that cannot be written.
pub fn write_report(dir: &Path) -> Result<ReportSummary, ReportError> {
    let data = RunData::read(dir)?;
    let mut writer = Writer::new(&dir.join(REPORT_DIR))?;
    let mut notes = data.notes.clone();

    let window = series::window(&data.segments);
    let curves = series::curves(&data, window);
    let recoveries = drift::recoveries(&data, window);
    if !curves.is_empty() {
        writer.text("curves.csv", &series::curves_csv(&data, &curves, window))?;
    }
    match figures::curves_figure(&data, &curves, window) {
        Some(figure) => writer.figure("curves", &figure)?,
        None => {
            notes.push("No curves: the train stream has too few speculative prompts.".to_owned())
        }
    }
    if let Some(figure) = figures::drift_figure(&data, &curves, &recoveries, window) {
        writer.text("drift.csv", &series::curves_csv(&data, &curves, window))?;
        writer.text("drift_recovery.csv", &drift::recovery_csv(&recoveries))?;
        writer.figure("drift", &figure)?;
    }
    if !data.updates.is_empty() {
        writer.text("losses.csv", &updates_csv(&data.updates))?;
    }
    match figures::losses_figure(&data) {
        Some(figure) => writer.figure("losses", &figure)?,
        None => notes.push("No loss figure: no arm of this run learnt.".to_owned()),
    }
    if let Some(figure) = figures::cache_figure(&data) {
        writer.figure("cache", &figure)?;
    }

    let learning = learning::learning_rows(&data);
    if !learning.is_empty() {
        writer.text("learning.csv", &learning::learning_csv(&learning))?;
    }
    let rows = table::table_rows(&data);
    notes.extend(table_notes(&data, &rows));
    let markdown = markdown::table_markdown(&data, &rows, &learning, &notes);
    writer.text("table.csv", &table::table_csv(&rows))?;
    writer.text("table.md", &markdown)?;
    Ok(ReportSummary {
        markdown,
        rows,
        files: writer.files,
        notes,
    })
}

/// Widths of intervals above this share of the speedup are called noisy.
const NOISY: f64 = 0.25;

fn table_notes(data: &RunData, rows: &[TableRow]) -> Vec<String> {
    let mut notes = Vec::new();
    if table::table_phase(data) == Phase::Train {
        notes.push(
            "No test prompts in this run: the table is of the train stream, learning included."
                .to_owned(),
        );
    }
    if !data.arms.iter().any(|arm| arm.plain) {
        notes.push("No plain decoding arm in this run: the reference row is missing.".to_owned());
    }
    if rows.iter().any(|row| row.speedup.is_none()) {
        notes.push(
            "Plain decoding was not timed on some prompts: their speedup is left out.".to_owned(),
        );
    }
    let noisy = rows.iter().any(|row| {
        matches!((row.interval, row.speedup), (Some(i), Some(s)) if i.high - i.low > NOISY * s)
    });
    if noisy {
        notes.push(format!(
            "Some 95% intervals are wider than {:.0}% of their speedup: few prompts or a noisy machine.",
            NOISY * 100.0
        ));
    }
    notes
}

/// `losses.csv`: the update rows.
fn updates_csv(updates: &[UpdateRow]) -> String {
    let header: Vec<&str> = UpdateRow::COLUMNS
        .iter()
        .map(|column| column.name)
        .collect();
    let mut csv = Csv::new(&header);
    for row in updates {
        csv.row([
            row.arm.clone(),
            row.seed.to_string(),
            row.segment.to_string(),
            row.update.to_string(),
            row.prompts_seen.to_string(),
            number(Some(row.loss)),
            number(Some(row.loss_dm)),
            number(Some(row.loss_ngram)),
            row.dm_positions.to_string(),
            row.ngram_tokens.to_string(),
            number(Some(row.grad_norm)),
            number(Some(row.seconds)),
        ]);
    }
    csv.into_text()
}

/// Writes files into the report folder and remembers them.
struct Writer {
    dir: PathBuf,
    files: Vec<PathBuf>,
}

impl Writer {
    fn new(dir: &Path) -> Result<Self, ReportError> {
        std::fs::create_dir_all(dir).map_err(|source| ReportError::Io {
            path: dir.to_path_buf(),
            source,
        })?;
        for name in FILES {
            let path = dir.join(name);
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ReportError::Io { path, source });
                }
                _ => {}
            }
        }
        Ok(Self {
            dir: dir.to_path_buf(),
            files: Vec::new(),
        })
    }

    fn text(&mut self, name: &str, text: &str) -> Result<(), ReportError> {
        let path = self.dir.join(name);
        crate::results::write_atomically(&path, text.as_bytes())?;
        self.files.push(path);
        Ok(())
    }

    fn figure(&mut self, stem: &str, figure: &Figure) -> Result<(), ReportError> {
        let files = write_figure(&figure.scene(), &self.dir, stem)?;
        self.files.extend([files.svg, files.png]);
        Ok(())
    }
}
