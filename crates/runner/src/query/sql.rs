//! SQL by polars.

use std::collections::BTreeSet;
use std::panic::{set_hook, take_hook};
use std::path::PathBuf;
use std::thread::Builder;

use anyhow::{Context, Result, anyhow, bail};
use experiment::nearest;
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

/// First words of statements that change nothing.
const STATEMENTS: [&str; 5] = ["select", "with", "values", "show", "explain"];

/// Words of polars about a name that it does not know.
const UNKNOWN: [&str; 3] = ["find column", "column named", "was not found"];

/// Largest number of bytes of a question.
const LONGEST: usize = 20_000;

/// Bytes of stack for polars, which descends as deep as [`LONGEST`] bytes can be nested. Only those
/// that are used take memory.
const STACK: usize = 1 << 30;

/// Advice for SQL that polars does not take.
const DIALECT: &str = "one SELECT in the SQL of polars; docs/query.md has examples";

/// Answers a question about the runs in these folders.
pub(super) fn ask(runs: &[PathBuf], question: &str) -> Result<Answer> {
    for run in runs {
        if !run.is_dir() {
            bail!(
                "{}: no such results folder\nhint: runs are folders of runs/, published ones of results/; the SQL comes last",
                run.display()
            );
        }
    }
    let names = tables_of(question)?;
    // A table is read if the question names it, as rounds are many. A question that names none is
    // about the tables themselves: it sees all.
    let named = |name: &str| names.iter().any(|own| own.eq_ignore_ascii_case(name));
    let none = !TABLES.iter().any(|(name, _)| named(name));
    let run_names = run_names(runs);
    let mut known: Vec<String> = TABLES.map(|(name, _)| name.to_owned()).to_vec();
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
        let table = joined(&run_names, &read)?;
        let columns = table.columns().iter();
        known.extend(columns.map(|column| column.name().to_string()));
        tables.push((*name, table));
    }
    let found = caught(|| selected(tables, question))?;
    let found = found.map_err(|error| told(&error, &known))?;
    Ok(Answer {
        columns: found.columns().iter().map(column).collect(),
        notes,
    })
}

/// The tables that a question names.
fn tables_of(question: &str) -> Result<Vec<String>> {
    if question.len() > LONGEST {
        bail!(
            "SQL of {} bytes, more than {LONGEST}\nhint: ask for less; `omnidraft rows` writes all",
            question.len()
        );
    }
    let mut words = question.split(|letter: char| !letter.is_alphanumeric());
    let first = words.find(|word| !word.is_empty()).unwrap_or_default();
    if !STATEMENTS
        .iter()
        .any(|word| first.eq_ignore_ascii_case(word))
    {
        bail!("`{first}` begins no question in SQL\nhint: {DIALECT}");
    }
    let names = caught(|| extract_table_identifiers(question, false, true))?;
    names.map_err(|error| told(&error, &[]))
}

/// The rows that a question selects.
fn selected(tables: Vec<(&str, DataFrame)>, question: &str) -> PolarsResult<DataFrame> {
    let mut context = SQLContext::new();
    for (name, table) in tables {
        context.register(name, table.lazy());
    }
    context.execute(question)?.collect()
}

/// Runs polars on a stack that suffices. It panics at some SQL that it does not support; that is an
/// error here.
fn caught<T: Send>(work: impl FnOnce() -> PolarsResult<T> + Send) -> Result<PolarsResult<T>> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let done = std::thread::scope(|scope| {
        let thread = Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        thread.map(|thread| thread.join())
    });
    set_hook(hook);
    done.context("no thread for SQL")?.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = in_a_line(text.unwrap_or("it gave up"));
        anyhow!("polars cannot run this SQL: {text}\nhint: {DIALECT}")
    })
}

/// The first line of a message; all of it if that line only announces the others.
fn in_a_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.ends_with(':') {
        true => text.split_whitespace().collect::<Vec<_>>().join(" "),
        false => line.to_owned(),
    }
}

/// An error of polars in a line, with advice. `known` are names that the question may use.
fn told(error: &PolarsError, known: &[String]) -> anyhow::Error {
    let text = in_a_line(&error.to_string());
    let line = text.split_once("; valid columns");
    let line = line.map_or(&*text, |(line, _)| line);
    let unknown = UNKNOWN.iter().any(|words| line.contains(words));
    // The name that is unknown is the first one in quotes.
    let name = line.split(['\'', '"']).nth(1).filter(|_| unknown);
    let known = known.iter().map(String::as_str).collect();
    let hint = match name.map(|name| nearest(name, known)) {
        Some(Some(name)) => format!("did you mean `{name}`?"),
        Some(None) => format!(
            "tables are {}; `omnidraft rows RUN --columns --table TABLE` lists columns",
            TABLES.map(|(name, _)| name).join(", ")
        ),
        None => DIALECT.to_owned(),
    };
    anyhow!("{line}\nhint: {hint}")
}

/// The rows of all runs in one table; a column that a run lacks has no values there.
fn joined(runs: &[String], tables: &[FlatTable]) -> Result<DataFrame> {
    let mut names: Vec<&str> = Vec::new();
    for column in tables.iter().flat_map(|table| &table.columns) {
        if !names.contains(&column.name.as_str()) {
            names.push(&column.name);
        }
    }
    let of_run = |(run, table): (&String, &FlatTable)| vec![run.clone(); table.len()];
    let own: Vec<String> = runs.iter().zip(tables).flat_map(of_run).collect();
    let height = own.len();
    let mut columns = vec![Series::new(RUN.into(), own).into()];
    columns.extend(names.into_iter().map(|name| values(name, tables)));
    DataFrame::new(height, columns).map_err(|error| told(&error, &[]))
}

/// The folders' names; the paths, if two folders have the same name.
fn run_names(runs: &[PathBuf]) -> Vec<String> {
    let name = |run: &PathBuf| {
        let run = run.canonicalize().unwrap_or_else(|_| run.clone());
        let name = run.file_name().unwrap_or(run.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let names: Vec<String> = runs.iter().map(name).collect();
    let distinct: BTreeSet<&String> = names.iter().collect();
    if distinct.len() == names.len() {
        return names;
    }
    runs.iter().map(|run| run.display().to_string()).collect()
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
    let all = |kind: fn(&FlatColumn) -> bool| {
        let mut found = parts.iter().filter_map(|(column, _)| *column);
        found.all(kind)
    };
    if all(|column| matches!(column.data, ColumnData::F64(_))) {
        return series(name, &parts, |column, row| match &column.data {
            ColumnData::F64(values) => values.get(row).copied(),
            _ => None,
        });
    }
    // A number that no signed one holds makes its column text.
    let whole = all(|column| match &column.data {
        ColumnData::U32(_) => true,
        ColumnData::U64(values) => {
            let mut values = values.iter().enumerate();
            values.all(|(row, value)| column.is_null(row) || i64::try_from(*value).is_ok())
        }
        _ => false,
    });
    if whole {
        return series(name, &parts, |column, row| match &column.data {
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
        AnyValue::Float32(value) => Some(Value::Float(value.into())),
        AnyValue::Float64(value) => Some(Value::Float(value)),
        other => text(&other).map(Value::Text),
    };
    Column {
        name: found.name().to_string(),
        numeric: found.dtype().is_primitive_numeric(),
        values: (0..found.len()).map(value).collect(),
    }
}

/// A value as text; `None` if there is none.
fn text(value: &AnyValue<'_>) -> Option<String> {
    Some(match value {
        AnyValue::Null => return None,
        AnyValue::String(text) => (*text).to_owned(),
        AnyValue::StringOwned(text) => text.to_string(),
        // Polars would leave out the middle of a long list.
        AnyValue::List(values) => {
            let values = values.iter().map(|value| text(&value).unwrap_or_default());
            values.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    })
}
