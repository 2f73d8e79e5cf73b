//! SQL by polars.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use polars::prelude::{
    AnyValue, Column as Values, DataFrame, IntoLazy, NamedFrom, PolarsError, PolarsResult, Series,
};
use polars::sql::{SQLContext, extract_table_identifiers};
use results::{ColumnData, FlatColumn, FlatKind, FlatTable};

use super::{Answer, Column, Value};

/// The tables of a run.
const TABLES: [(&str, FlatKind); 4] = [
    ("prompts", FlatKind::Prompts),
    ("rounds", FlatKind::Rounds),
    ("updates", FlatKind::Updates),
    ("heads", FlatKind::Heads),
];

/// Name of the column that identifies the run.
const RUN: &str = "run";

/// Advice for SQL that polars does not take.
const DIALECT: &str = "one SELECT in the SQL of polars; docs/query.md has examples";

/// Answers a question about the runs in these folders.
pub(super) fn ask(runs: &[PathBuf], question: &str) -> Result<Answer> {
    for run in runs {
        if !run.is_dir() {
            bail!(
                "{}: no such results folder\nhint: runs are folders of runs/, published ones of results/",
                run.display()
            );
        }
    }
    let named = caught(|| extract_table_identifiers(question, false, true))??;
    // A table is read if the question names it, as rounds are many. A question that names none is
    // about the tables themselves: it sees all.
    let named = |name: &str| named.iter().any(|own| own.eq_ignore_ascii_case(name));
    let none = !TABLES.iter().any(|(name, _)| named(name));
    let mut tables = Vec::new();
    let mut notes = Vec::new();
    for (name, kind) in TABLES.iter().filter(|(name, _)| none || named(name)) {
        let read = |run: &PathBuf| FlatTable::read(run, *kind, None);
        let read = runs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if !none && read.iter().all(FlatTable::is_empty) {
            notes.push(format!(
                "there are no rows in `{name}`; publishing keeps rounds and updates only where pages need them"
            ));
        }
        tables.push((*name, joined(runs, &read)?));
    }
    let found = caught(|| run(tables, question))??;
    Ok(Answer {
        columns: found.columns().iter().map(column).collect(),
        notes,
    })
}

/// The rows that a question selects.
fn run(tables: Vec<(&str, DataFrame)>, question: &str) -> PolarsResult<DataFrame> {
    let mut context = SQLContext::new();
    for (name, table) in tables {
        context.register(name, table.lazy());
    }
    context.execute(question)?.collect()
}

/// Runs polars. It panics at some SQL that it does not support; that is an error here.
fn caught<T>(work: impl FnOnce() -> PolarsResult<T>) -> Result<Result<T>> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let done = catch_unwind(AssertUnwindSafe(work));
    set_hook(hook);
    done.map(|result| result.map_err(|error| told(&error)))
        .map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = first_line(text.unwrap_or("it gave up"));
            anyhow!("polars cannot run this SQL: {text}\nhint: {DIALECT}")
        })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// An error of polars in a line, with advice.
fn told(error: &PolarsError) -> anyhow::Error {
    let text = error.to_string();
    let line = first_line(&text);
    let line = line
        .split_once("; valid columns")
        .map_or(line, |(line, _)| line);
    let meant = text.split_once("Did you mean ").map(|(_, rest)| rest);
    let meant = meant.and_then(|rest| rest.split('"').nth(1));
    let hint = match (error, meant) {
        (_, Some(name)) => format!("did you mean `{name}`?"),
        (PolarsError::ColumnNotFound(_), None) => {
            "`omnidraft rows RUN --columns --table TABLE` lists the columns".to_owned()
        }
        _ if line.contains("relation") => {
            let names: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
            format!("tables are {}", names.join(", "))
        }
        _ => DIALECT.to_owned(),
    };
    anyhow!("{line}\nhint: {hint}")
}

/// The rows of all runs in one table; a column that a run lacks has no values there.
fn joined(runs: &[PathBuf], tables: &[FlatTable]) -> Result<DataFrame> {
    let mut names: Vec<&str> = Vec::new();
    for column in tables.iter().flat_map(|table| &table.columns) {
        if !names.contains(&column.name.as_str()) {
            names.push(&column.name);
        }
    }
    let of_run = |(run, table): (&PathBuf, &FlatTable)| vec![folder_name(run); table.len()];
    let own: Vec<String> = runs.iter().zip(tables).flat_map(of_run).collect();
    let height = own.len();
    let mut columns = vec![Series::new(RUN.into(), own).into()];
    columns.extend(names.into_iter().map(|name| values(name, tables)));
    DataFrame::new(height, columns).map_err(|error| told(&error))
}

fn folder_name(run: &Path) -> String {
    let run = run.canonicalize().unwrap_or_else(|_| run.to_path_buf());
    let name = run.file_name().unwrap_or(run.as_os_str());
    name.to_string_lossy().into_owned()
}

/// A column of all runs. Counts are signed, so that their difference may be negative.
fn values(name: &str, tables: &[FlatTable]) -> Values {
    let parts: Vec<(Option<&FlatColumn>, usize)> = tables
        .iter()
        .map(|table| {
            let own = table.columns.iter().find(|column| column.name == name);
            (own, table.len())
        })
        .collect();
    let all = |kind: fn(&ColumnData) -> bool| {
        let mut found = parts.iter().filter_map(|(column, _)| *column);
        found.all(|column| kind(column.data()))
    };
    if all(|data| matches!(data, ColumnData::F64(_))) {
        return series(name, &parts, |column, row| match column.data() {
            ColumnData::F64(values) => values.get(row).copied(),
            _ => None,
        });
    }
    if all(|data| match data {
        ColumnData::U32(_) => true,
        ColumnData::U64(values) => values.iter().all(|value| *value <= i64::MAX as u64),
        _ => false,
    }) {
        return series(name, &parts, |column, row| match column.data() {
            ColumnData::U32(values) => values.get(row).copied().map(i64::from),
            ColumnData::U64(values) => i64::try_from(*values.get(row)?).ok(),
            _ => None,
        });
    }
    series(name, &parts, FlatColumn::text)
}

/// The values of a column, one run after another.
fn series<T>(
    name: &str,
    parts: &[(Option<&FlatColumn>, usize)],
    value: impl Fn(&FlatColumn, usize) -> Option<T>,
) -> Values
where
    Series: NamedFrom<Vec<Option<T>>, [Option<T>]>,
{
    let mut values: Vec<Option<T>> = Vec::new();
    for (column, length) in parts {
        let known = |row| column.filter(|column| !column.is_null(row));
        values.extend((0..*length).map(|row| known(row).and_then(|column| value(column, row))));
    }
    Series::new(name.into(), values).into()
}

/// A column of an answer.
fn column(found: &Values) -> Column {
    let value = |row: usize| match found.get(row).ok()? {
        AnyValue::Null => None,
        AnyValue::Float32(value) => Some(Value::Float(value.into())),
        AnyValue::Float64(value) => Some(Value::Float(value)),
        AnyValue::String(text) => Some(Value::Text(text.to_owned())),
        AnyValue::StringOwned(text) => Some(Value::Text(text.to_string())),
        other => Some(Value::Text(other.to_string())),
    };
    Column {
        name: found.name().to_string(),
        numeric: found.dtype().is_primitive_numeric(),
        values: (0..found.len()).map(value).collect(),
    }
}
