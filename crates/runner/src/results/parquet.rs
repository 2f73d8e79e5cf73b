//! Tables as parquet files; the only code that knows polars.

use super::{ColumnData, ColumnKind, ResultsError, Row, part_path};
use polars::prelude::{
    Column, DataFrame, NamedFrom, ParquetReader, ParquetWriter, PolarsError, SerReader, Series,
};
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
