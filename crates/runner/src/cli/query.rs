//! `omnidraft query`: SQL over the rows of a run.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bench::args::print;
use clap::{Args, ValueEnum};
use polars::prelude::*;
use polars::sql::SQLContext;
use results::{ColumnData, FlatKind, FlatTable};

/// Arguments of `query`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft query results/quickstart 'select arm, avg(acceptance_rate) as acceptance from prompts group by arm order by arm'
  omnidraft query results/quickstart 'select * from rounds limit 3' --format csv
  omnidraft query results/quickstart 'show tables'

Tables are prompts, rounds, updates and heads, as far as the run has them; `omnidraft rows RUN --columns` says
what their columns mean. Ten questions with their answers: docs/query.md.")]
pub struct QueryArgs {
    /// Results folder of an experiment.
    folder: PathBuf,
    /// The question, one statement.
    sql: String,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Form::Md)]
    format: Form,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table in Markdown.
    Md,
    /// Comma-separated values.
    Csv,
}

/// The tables of a run by their names in a question.
const TABLES: [(&str, FlatKind); 4] = [
    ("prompts", FlatKind::Prompts),
    ("rounds", FlatKind::Rounds),
    ("updates", FlatKind::Updates),
    ("heads", FlatKind::Heads),
];

impl QueryArgs {
    /// Answers the question.
    pub fn execute(self) -> Result<()> {
        if !self.folder.is_dir() {
            bail!("{}: no such results folder", self.folder.display());
        }
        let mut context = SQLContext::new();
        for (name, kind) in TABLES {
            // Large tables are read only where they are asked for.
            if !self.sql.contains(name) && !self.sql.to_lowercase().contains("show tables") {
                continue;
            }
            let table = FlatTable::read(&self.folder, kind, None)?;
            context.register(name, frame(&table)?.lazy());
        }
        let tables = || format!("`{}`\nhint: tables are prompts, rounds, updates and heads", self.sql);
        let answer = context.execute(&self.sql).with_context(tables)?;
        let answer = answer.collect().with_context(tables)?;
        print(&match self.format {
            Form::Md => markdown(&answer)?,
            Form::Csv => csv(&answer)?,
        })
    }
}

/// A table as polars has it.
fn frame(table: &FlatTable) -> Result<DataFrame> {
    let rows = table.len();
    let columns = table.columns.iter().map(|column| {
        let name: PlSmallStr = column.name.as_str().into();
        let known = |i: usize| !column.is_null(i);
        let series = match column.data() {
            ColumnData::F64(values) => {
                let values = (0..rows).map(|i| known(i).then(|| values[i]));
                Series::new(name, values.collect::<Vec<Option<f64>>>())
            }
            ColumnData::U32(values) => {
                let values = (0..rows).map(|i| known(i).then(|| i64::from(values[i])));
                Series::new(name, values.collect::<Vec<Option<i64>>>())
            }
            ColumnData::U64(values) => {
                let values = (0..rows).map(|i| known(i).then(|| values[i]));
                Series::new(name, values.collect::<Vec<Option<u64>>>())
            }
            ColumnData::Text(values) => {
                let values = (0..rows).map(|i| known(i).then(|| values[i].clone()));
                Series::new(name, values.collect::<Vec<Option<String>>>())
            }
        };
        series.into_column()
    });
    let columns: Vec<Column> = columns.collect();
    Ok(DataFrame::new(rows, columns)?)
}

/// The cells of an answer as text, row by row; `None` where there is no value.
fn cells(answer: &DataFrame) -> Result<Vec<Vec<Option<String>>>> {
    let columns = answer.columns();
    let cell = |column: &Column, row: usize| -> Result<Option<String>> {
        Ok(match column.get(row)? {
            AnyValue::Null => None,
            AnyValue::String(text) => Some(text.to_owned()),
            AnyValue::StringOwned(text) => Some(text.to_string()),
            AnyValue::Float64(value) => Some(value.to_string()),
            other => Some(other.to_string()),
        })
    };
    (0..answer.height())
        .map(|row| columns.iter().map(|column| cell(column, row)).collect())
        .collect()
}

fn names(answer: &DataFrame) -> Vec<String> {
    let names = answer.columns().iter().map(|column| column.name().to_string());
    names.collect()
}

fn markdown(answer: &DataFrame) -> Result<String> {
    let names = names(answer);
    let mut text = format!("| {} |\n|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for row in cells(answer)? {
        let cells = row.into_iter().map(|cell| match cell {
            Some(text) => shortened(&text).replace('|', "\\|").replace('\n', " "),
            None => String::new(),
        });
        let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    Ok(text)
}

/// A fraction with four digits after the point: more of them are for CSV.
fn shortened(text: &str) -> String {
    match (text.contains('.'), text.parse::<f64>()) {
        (true, Ok(value)) => format!("{value:.4}"),
        _ => text.to_owned(),
    }
}

fn csv(answer: &DataFrame) -> Result<String> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(names(answer))?;
    for row in cells(answer)? {
        writer.write_record(row.into_iter().map(Option::unwrap_or_default))?;
    }
    Ok(String::from_utf8(writer.into_inner().context("a table in memory")?)?)
}
