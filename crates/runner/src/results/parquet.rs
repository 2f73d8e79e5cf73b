//! Tables as parquet files; the only code that knows polars.

use super::{ColumnData, ColumnKind, ResultsError, Row, part_path};
use polars::prelude::{
    AnyValue, Column, DataFrame, NamedFrom, ParquetReader, ParquetWriter, PolarsError, SerReader,
    Series,
};
use serde_json::{Map, Value};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Path of a table's parquet file in `dir`.
pub(super) fn table_path<R: Row>(dir: &Path) -> PathBuf {
    dir.join(format!("{}.parquet", R::TABLE))
}

/// Writes a table through `*.part` and a rename.
pub(super) fn write_table<R: Row>(dir: &Path, rows: &[R]) -> Result<(), ResultsError> {
    let path = table_path::<R>(dir);
    let part = part_path(&path);
    let columns = R::COLUMNS
        .iter()
        .zip(R::to_columns(rows))
        .map(|(column, data)| to_polars(column.name, data))
        .collect();
    let failed = |error: PolarsError| ResultsError::Parquet {
        path: path.clone(),
        message: error.to_string(),
    };
    let mut frame = DataFrame::new(rows.len(), columns).map_err(failed)?;
    let io = |source| ResultsError::Io {
        action: "write",
        path: path.clone(),
        source,
    };
    let mut file = File::create(&part).map_err(io)?;
    ParquetWriter::new(&mut file)
        .finish(&mut frame)
        .map_err(failed)?;
    file.sync_all().map_err(io)?;
    std::fs::rename(&part, &path).map_err(io)
}

/// Reads a table back.
pub(super) fn read_table<R: Row>(dir: &Path) -> Result<Vec<R>, ResultsError> {
    let path = table_path::<R>(dir);
    let file = File::open(&path).map_err(|source| ResultsError::Io {
        action: "read",
        path: path.clone(),
        source,
    })?;
    let frame = ParquetReader::new(file)
        .finish()
        .map_err(|error| ResultsError::Parquet {
            path: path.clone(),
            message: error.to_string(),
        })?;
    let wrong = |index: usize| ResultsError::Column {
        path: path.clone(),
        column: R::COLUMNS[index].name,
        expected: R::COLUMNS[index].kind.name(),
    };
    let mut columns = Vec::with_capacity(R::COLUMNS.len());
    for (index, column) in R::COLUMNS.iter().enumerate() {
        let data = frame
            .column(column.name)
            .ok()
            .and_then(|data| from_polars(data, column.kind))
            .ok_or_else(|| wrong(index))?;
        columns.push(data);
    }
    R::from_columns(columns).map_err(wrong)
}

fn to_polars(name: &str, data: ColumnData) -> Column {
    let name = name.into();
    match data {
        ColumnData::Text(values) => Series::new(name, values),
        ColumnData::U32(values) => Series::new(name, values),
        ColumnData::U64(values) => Series::new(name, values),
        ColumnData::F64(values) => Series::new(name, values),
    }
    .into()
}

/// The values of a column without nulls of the wanted type.
fn from_polars(column: &Column, kind: ColumnKind) -> Option<ColumnData> {
    let series = column.as_materialized_series();
    Some(match kind {
        ColumnKind::Text => ColumnData::Text(
            series
                .str()
                .ok()?
                .iter()
                .map(|v| v.map(str::to_owned))
                .collect::<Option<_>>()?,
        ),
        ColumnKind::U32 => ColumnData::U32(series.u32().ok()?.iter().collect::<Option<_>>()?),
        ColumnKind::U64 => ColumnData::U64(series.u64().ok()?.iter().collect::<Option<_>>()?),
        ColumnKind::F64 => ColumnData::F64(series.f64().ok()?.iter().collect::<Option<_>>()?),
    })
}

/// The rows of somebody else's parquet file, with the named columns; a column may hold texts,
/// numbers or lists of them.
///
/// # Errors
/// Here: an unreadable file, or one that lacks a column. Later: a damaged row.
pub(crate) fn read_rows(
    path: &Path,
    columns: &[&str],
) -> Result<impl Iterator<Item = Result<Map<String, Value>, ResultsError>>, ResultsError> {
    let path = path.to_owned();
    let file = File::open(&path).map_err(|source| ResultsError::Io {
        action: "read",
        path: path.clone(),
        source,
    })?;
    let failed = move |error: PolarsError| ResultsError::Parquet {
        path: path.clone(),
        message: error.to_string(),
    };
    let names: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let frame = ParquetReader::new(file)
        .with_columns(Some(names.clone()))
        .finish()
        .map_err(&failed)?;
    Ok((0..frame.height()).map(move |index| {
        let cell = |name: &String| {
            let value = frame.column(name)?.get(index)?;
            Ok((name.clone(), to_json(&value)))
        };
        names
            .iter()
            .map(cell)
            .collect::<Result<_, _>>()
            .map_err(&failed)
    }))
}

/// Null for what JSON has no form for: the reader of the field then says which one it is.
fn to_json(value: &AnyValue<'_>) -> Value {
    match value {
        AnyValue::String(text) => (*text).into(),
        AnyValue::StringOwned(text) => text.as_str().into(),
        AnyValue::Boolean(yes) => (*yes).into(),
        AnyValue::List(items) => items.iter().map(|item| to_json(&item)).collect(),
        number => number.extract::<i64>().map_or(Value::Null, Value::from),
    }
}
