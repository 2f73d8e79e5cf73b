//! Columns in parquet files; no other module uses the parquet library.
//!
//! A table is one row group of required columns: text as UTF-8, counts as unsigned integers, all
//! others as doubles; compressed with zstd.

use crate::{
    Column, ColumnData, ColumnKind, FlatColumn, FlatTable, ResultsError, Row, write_atomically,
};
use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writer of a row group.
type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// Compression level of zstd: files are written once and kept for years.
const COMPRESSION: i32 = 19;

/// Path of a table's parquet file in `dir`.
pub(crate) fn table_path<R: Row>(dir: &Path) -> PathBuf {
    dir.join(format!("{}.parquet", R::TABLE))
}

/// Writes a table, whole or not at all.
///
/// # Errors
/// An I/O or parquet error naming the file.
pub fn write_table<R: Row>(dir: &Path, rows: &[R]) -> Result<(), ResultsError> {
    let file = columns_file(R::TABLE, R::COLUMNS, &R::to_columns(rows));
    write_file(&table_path::<R>(dir), file)
}

/// Writes a flat table as one Parquet file, whole or not at all. Missing values are null.
///
/// # Errors
/// An I/O or parquet error naming the file.
pub fn write_flat(path: &Path, table: &FlatTable) -> Result<(), ResultsError> {
    write_file(path, nullable_file(table))
}

fn write_file(path: &Path, content: Result<Vec<u8>, ParquetError>) -> Result<(), ResultsError> {
    write_atomically(path, &content.map_err(|error| damaged(path, &error))?)
}

/// Reads the columns of `R` from its table, and no others. Optional columns that the table lacks
/// are unknown.
///
/// # Errors
/// A missing or damaged file; a missing column or one of another type, with its name.
pub fn read_table<R: Row>(dir: &Path) -> Result<Vec<R>, ResultsError> {
    let path = table_path::<R>(dir);
    let file = File::open(&path).map_err(|source| ResultsError::io("read", &path, source))?;
    let reader = contained(|| SerializedFileReader::new(file));
    let reader = reader.map_err(|error| damaged(&path, &error))?;
    let mut columns = Vec::with_capacity(R::COLUMNS.len());
    for (index, column) in R::COLUMNS.iter().enumerate() {
        let stored = reader.metadata().file_metadata();
        let mut names = stored.schema_descr().columns().iter();
        let found = match names.position(|own| own.name() == column.name) {
            Some(place) => {
                let read = contained(|| read_column(&reader, place, column.kind));
                read.map_err(|error| damaged(&path, &error))?
            }
            None => column.optional.then(|| {
                let rows = usize::try_from(stored.num_rows()).unwrap_or(0);
                ColumnData::unknown(column.kind, rows)
            }),
        };
        columns.push(found.ok_or_else(|| wrong(&path, R::COLUMNS, index))?);
    }
    R::from_columns(columns).map_err(|index| wrong(&path, R::COLUMNS, index))
}

/// Reads with the library, which asserts some conditions that a damaged footer violates (negative
/// lengths, a missing dictionary). Such a panic is reported as damage.
fn contained<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|payload| {
        let words = payload.downcast_ref::<&str>().copied();
        let words = words.or(payload.downcast_ref::<String>().map(String::as_str));
        let words = words.unwrap_or("the parquet library gave up");
        Err(ParquetError::General(words.to_owned()))
    })
}

fn wrong(path: &Path, columns: &'static [Column], index: usize) -> ResultsError {
    let column = columns.get(index);
    ResultsError::Column {
        path: path.to_path_buf(),
        column: column.map_or("", |column| column.name),
        expected: column.map_or("", |column| column.kind.name()),
    }
}

fn damaged(path: &Path, error: &ParquetError) -> ResultsError {
    ResultsError::Parquet {
        path: path.to_path_buf(),
        message: error.to_string(),
    }
}

/// Content of the file of a table.
fn columns_file(
    table: &str,
    columns: &[Column],
    data: &[ColumnData],
) -> Result<Vec<u8>, ParquetError> {
    // A column of unknown values is left out to save space.
    let columns = columns.iter().zip(data);
    let columns: Vec<(&Column, &ColumnData)> = columns
        .filter(|(column, data)| !column.optional || !data.is_unknown())
        .collect();
    let fields = columns.iter();
    let fields = fields.map(|(own, _)| field(own.name, own.kind, Repetition::REQUIRED));
    // Tables are small and read whole: footers with statistics would be a tenth of them. zstd
    // compresses values better than indices of a dictionary, and counts better with split bytes.
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(COMPRESSION)?))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_created_by("omnidraft".to_owned());
    for (column, data) in &columns {
        if matches!(data, ColumnData::U32(_) | ColumnData::U64(_)) {
            let path = ColumnPath::from(column.name);
            properties = properties.set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT);
        }
    }
    let fields = fields.collect::<Result<_, _>>()?;
    group_file(table, fields, properties.build(), |group| {
        let mut columns = columns.iter();
        columns.try_for_each(|(_, data)| write_column(group, data, None))
    })
}

fn nullable_file(table: &FlatTable) -> Result<Vec<u8>, ParquetError> {
    let fields = table.columns.iter();
    let fields = fields.map(|own| field(&own.name, own.data.kind(), Repetition::OPTIONAL));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let fields = fields.collect::<Result<_, _>>()?;
    group_file("rows", fields, properties, |group| {
        let mut columns = table.columns.iter();
        columns.try_for_each(|column| write_column(group, &column.data, Some(column)))
    })
}

/// Content of a file of one row group.
fn group_file(
    table: &str,
    fields: Vec<Arc<Type>>,
    properties: WriterProperties,
    write: impl FnOnce(&mut Group<'_>) -> Result<(), ParquetError>,
) -> Result<Vec<u8>, ParquetError> {
    let schema = Type::group_type_builder(table)
        .with_fields(fields)
        .build()?;
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    write(&mut group)?;
    group.close()?;
    writer.into_inner()
}

/// Writes the next column; for a column with nulls, only the values that exist.
fn write_column(
    group: &mut Group<'_>,
    data: &ColumnData,
    nulls: Option<&FlatColumn>,
) -> Result<(), ParquetError> {
    // Parquet stores unsigned integers in the bits of signed ones.
    match data {
        ColumnData::Text(all) => {
            write_values::<ByteArrayType, _>(group, all, nulls, |text| text.as_str().into())
        }
        ColumnData::U32(all) => {
            write_values::<Int32Type, _>(group, all, nulls, |n| n.cast_signed())
        }
        ColumnData::U64(all) => {
            write_values::<Int64Type, _>(group, all, nulls, |n| n.cast_signed())
        }
        ColumnData::F64(all) => write_values::<DoubleType, _>(group, all, nulls, |n| *n),
    }
}

fn write_values<T: DataType, V>(
    group: &mut Group<'_>,
    all: &[V],
    nulls: Option<&FlatColumn>,
    stored: fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let known = |index: usize| nulls.is_none_or(|column| !column.is_null(index));
    let values = all.iter().enumerate().filter(|(index, _)| known(*index));
    let values: Vec<T::T> = values.map(|(_, value)| stored(value)).collect();
    // A definition level of 1 means a value.
    let levels: Option<Vec<i16>> = nulls.map(|_| {
        (0..all.len())
            .map(|index| i16::from(known(index)))
            .collect()
    });
    if let Some(mut column) = group.next_column()? {
        let to = column.typed::<T>();
        to.write_batch(&values, levels.as_deref(), None)?;
        column.close()?;
    }
    Ok(())
}

fn physical(kind: ColumnKind) -> PhysicalType {
    match kind {
        ColumnKind::Text => PhysicalType::BYTE_ARRAY,
        ColumnKind::U32 => PhysicalType::INT32,
        ColumnKind::U64 => PhysicalType::INT64,
        ColumnKind::F64 => PhysicalType::DOUBLE,
    }
}

fn field(name: &str, kind: ColumnKind, repetition: Repetition) -> Result<Arc<Type>, ParquetError> {
    let logical = match kind {
        ColumnKind::Text => Some(LogicalType::String),
        ColumnKind::U32 => Some(LogicalType::integer(32, false)),
        ColumnKind::U64 => Some(LogicalType::integer(64, false)),
        ColumnKind::F64 => None,
    };
    let field = Type::primitive_type_builder(name, physical(kind))
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(field))
}

/// The values of a column over all row groups; `None` if it is of another kind.
fn read_column(
    reader: &SerializedFileReader<File>,
    index: usize,
    kind: ColumnKind,
) -> Result<Option<ColumnData>, ParquetError> {
    let stored = reader.metadata().file_metadata().schema_descr();
    let stored = stored.column(index);
    let plain = stored.max_def_level() == 0 && stored.max_rep_level() == 0;
    if stored.physical_type() != physical(kind) || !plain {
        return Ok(None);
    }
    Ok(match kind {
        ColumnKind::Text => {
            let values = read_values::<ByteArrayType>(reader, index)?;
            let texts = values.iter().map(|v| Some(v.as_utf8().ok()?.to_owned()));
            texts.collect::<Option<_>>().map(ColumnData::Text)
        }
        ColumnKind::U32 => {
            let values = read_values::<Int32Type>(reader, index)?;
            let values = values.into_iter().map(i32::cast_unsigned);
            Some(ColumnData::U32(values.collect()))
        }
        ColumnKind::U64 => {
            let values = read_values::<Int64Type>(reader, index)?;
            let values = values.into_iter().map(i64::cast_unsigned);
            Some(ColumnData::U64(values.collect()))
        }
        ColumnKind::F64 => Some(ColumnData::F64(read_values::<DoubleType>(reader, index)?)),
    })
}

fn read_values<T: DataType>(
    reader: &SerializedFileReader<File>,
    index: usize,
) -> Result<Vec<T::T>, ParquetError> {
    let mut values = Vec::new();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let mut column = get_typed_column_reader::<T>(group.get_column_reader(index)?);
        let end = values.len() + rows;
        while values.len() < end {
            let (records, ..) = column.read_records(end - values.len(), None, None, &mut values)?;
            if records == 0 {
                return Err(ParquetError::EOF("a column ends before its table".into()));
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadRow, PromptRow};

    /// A table of an older program without some columns.
    fn older(without: impl Fn(&Column) -> bool) -> Result<Vec<PromptRow>, ResultsError> {
        let folder = tempfile::tempdir().unwrap();
        let kept: Vec<Column> = PromptRow::COLUMNS
            .iter()
            .copied()
            .filter(|c| !without(c))
            .collect();
        let data = kept
            .iter()
            .map(|column| ColumnData::unknown(column.kind, 3));
        let data = data.map(|data| match data {
            // The only text column with a fixed set of values.
            ColumnData::Text(_) => ColumnData::Text(vec!["train".into(); 3]),
            data => data,
        });
        let mut data: Vec<ColumnData> = data.collect();
        let finish = kept
            .iter()
            .position(|column| column.name == "finish")
            .unwrap();
        data[finish] = ColumnData::Text(vec!["end".into(); 3]);
        let file = columns_file(PromptRow::TABLE, &kept, &data);
        write_file(&table_path::<PromptRow>(folder.path()), file).unwrap();
        read_table::<PromptRow>(folder.path())
    }

    #[test]
    fn optional_columns_may_be_missing_and_others_not() {
        let rows = older(|column| column.optional).unwrap();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.ends_proposed.is_none()));
        let error = older(|column| column.name == "rounds").unwrap_err();
        assert!(error.to_string().contains("rounds"), "{error}");
        assert!(HeadRow::COLUMNS.iter().all(|column| !column.optional));
    }
}
