//! The file of a trace: parquet with zstd, one row per prompt. All columns are byte arrays
//! ([`COLUMNS`]); text is UTF-8, numbers are little-endian.
//!
//! Rows are stored in groups of [`GROUP`], and a group is read as a whole. Prompts may be asked for
//! in any order; the prompts and answers of a file are kept in memory, and the group read last.

use std::fs::File;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::error::RowFault;
use crate::info::INFO_KEY;
use crate::record::{COLUMNS, Fields, TEXTS, checksum, text, tokens};
use crate::{Record, TraceError, TraceInfo};

/// Number of rows of a group: small enough to unpack one in milliseconds, large enough to keep the
/// footer small.
pub const GROUP: usize = 16;

/// Compression level of zstd.
const COMPRESSION: i32 = 9;

/// Largest row group that is unpacked, in bytes. A footer that claims more is damaged.
const MOST_GROUP: i64 = 8 << 30;

/// Writes rows to a file, group by group. Returns their number.
pub(crate) fn write_table(
    path: &Path,
    info: &TraceInfo,
    rows: impl Iterator<Item = Fields>,
) -> Result<usize, TraceError> {
    let mut rows = rows.fuse();
    let failed = |error: ParquetError| damaged(path, &error);
    let file = File::create(path).map_err(TraceError::io("write", path))?;
    let mut writer = writer(file, info).map_err(failed)?;
    let mut count = 0;
    loop {
        let group: Vec<Fields> = rows.by_ref().take(GROUP).collect();
        if group.is_empty() {
            break;
        }
        count += group.len();
        write_group(&mut writer, &group).map_err(failed)?;
    }
    let file = writer.into_inner().map_err(failed)?;
    file.sync_all().map_err(TraceError::io("write", path))?;
    Ok(count)
}

fn writer(file: File, info: &TraceInfo) -> Result<SerializedFileWriter<File>, ParquetError> {
    let fields = COLUMNS.iter().enumerate().map(|(i, name)| {
        let field = Type::primitive_type_builder(name, PhysicalType::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type((i < TEXTS).then_some(LogicalType::String))
            .build()?;
        Ok(Arc::new(field))
    });
    let schema = Type::group_type_builder("trace")
        .with_fields(fields.collect::<Result<_, ParquetError>>()?)
        .build()?;
    let json = serde_json::to_string(info).map_err(|e| ParquetError::General(e.to_string()))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(COMPRESSION)?))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None)
        .set_key_value_metadata(Some(vec![KeyValue::new(INFO_KEY.to_owned(), json)]))
        .set_created_by("omnidraft".to_owned())
        .build();
    SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
}

fn write_group(
    writer: &mut SerializedFileWriter<File>,
    rows: &[Fields],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    let mut column = 0;
    while let Some(mut out) = group.next_column()? {
        let values: Vec<ByteArray> = rows
            .iter()
            .map(|fields| match fields.get(column) {
                Some(field) => ByteArray::from(field.clone()),
                None => ByteArray::from(checksum(fields).to_vec()),
            })
            .collect();
        out.typed::<ByteArrayType>()
            .write_batch(&values, None, None)?;
        out.close()?;
        column += 1;
    }
    group.close()?;
    Ok(())
}

/// The part of a row that is read without unpacking its distributions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Id of the prompt.
    pub id: String,
    /// Tokens of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Tokens of the answer and of the tail.
    pub path: Vec<u32>,
    /// Number of tokens of the answer.
    pub answer_len: usize,
}

/// The row group that was read last.
struct Group {
    index: usize,
    columns: Vec<Vec<ByteArray>>,
}

/// A trace, open for reading.
pub struct TraceFile {
    path: PathBuf,
    info: TraceInfo,
    reader: SerializedFileReader<File>,
    entries: Vec<Entry>,
    /// First row of every group, then the number of rows.
    starts: Vec<usize>,
    last: Option<Group>,
}

impl TraceFile {
    /// Opens a file and reads everything but the distributions.
    ///
    /// # Errors
    /// A file that is missing, damaged, cut short or of another kind; impossible metadata; a row
    /// without prompt or answer, or with ids outside the vocabulary.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(TraceError::io("read", path))?;
        let reader = contained(|| SerializedFileReader::new(file));
        let reader = reader.map_err(|error| damaged(path, &error))?;
        let info = info(&reader, path)?;
        let (mut starts, mut end) = (vec![0], 0_usize);
        for group in reader.metadata().row_groups() {
            let rows = usize::try_from(group.num_rows()).ok();
            let fits = (0..=MOST_GROUP).contains(&group.total_byte_size());
            let Some(next) = rows.and_then(|n| end.checked_add(n)).filter(|_| fits) else {
                let message = "a row group of an impossible size";
                return Err(damaged(path, &ParquetError::General(message.to_owned())));
            };
            end = next;
            starts.push(end);
        }
        let mut file = Self {
            path: path.to_owned(),
            info,
            reader,
            entries: Vec::new(),
            starts,
            last: None,
        };
        for group in 0..file.starts.len() - 1 {
            file.index(group)?;
        }
        if file.entries.is_empty() {
            return Err(TraceError::Metadata {
                path: path.to_owned(),
                message: "the trace holds no prompt".to_owned(),
            });
        }
        Ok(file)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Metadata of the file.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Prompts and answers, in the order of the rows.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The record of a row, counted from 0. Rows of one group are unpacked together.
    ///
    /// # Errors
    /// A damaged group, a wrong checksum, an impossible distribution.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn record(&mut self, row: usize) -> Result<Record, TraceError> {
        let fields = self.fields(row)?;
        Record::of_fields(&fields, &self.info).map_err(|fault| self.fault(row, fault))
    }

    pub(crate) fn fields(&mut self, row: usize) -> Result<Fields, TraceError> {
        let index = self.starts.partition_point(|start| *start <= row) - 1;
        if self.last.as_ref().is_none_or(|last| last.index != index) {
            let all: Vec<usize> = (0..COLUMNS.len()).collect();
            let columns = self.read(index, &all)?;
            self.last = Some(Group { index, columns });
        }
        let place = row - self.starts[index];
        let columns = self.last.iter().flat_map(|last| &last.columns);
        let mut cells = columns.map(|column| column[place].data().to_vec());
        let fields: Fields = std::array::from_fn(|_| cells.next().unwrap_or_default());
        if cells.next().as_deref() != Some(&checksum(&fields)[..]) {
            return Err(self.fault(row, RowFault::Checksum));
        }
        Ok(fields)
    }

    /// Adds the entries of a group.
    fn index(&mut self, group: usize) -> Result<(), TraceError> {
        let columns = self.read(group, &[0, 2, 3, 4])?;
        let rows = columns.first().map_or(0, Vec::len);
        for (place, row) in (self.starts[group]..).take(rows).enumerate() {
            let cell = |column: usize| columns[column][place].data();
            let entry = entry(cell, self.info.vocab_size);
            let entry = entry.map_err(|fault| TraceError::Row {
                path: self.path.clone(),
                row: row + 1,
                id: text(0, cell(0)).unwrap_or_default(),
                fault,
            })?;
            self.entries.push(entry);
        }
        Ok(())
    }

    /// Columns of a group, each with as many values as the group has rows.
    fn read(&self, group: usize, columns: &[usize]) -> Result<Vec<Vec<ByteArray>>, TraceError> {
        let rows = self.starts[group + 1] - self.starts[group];
        let read = || {
            let group = self.reader.get_row_group(group)?;
            columns
                .iter()
                .map(|column| {
                    let mut out = Vec::new();
                    let reader = group.get_column_reader(*column)?;
                    let mut reader = get_typed_column_reader::<ByteArrayType>(reader);
                    while out.len() < rows {
                        let left = rows - out.len();
                        let (records, ..) = reader.read_records(left, None, None, &mut out)?;
                        if records == 0 {
                            let message = "a column ends before its table".to_owned();
                            return Err(ParquetError::EOF(message));
                        }
                    }
                    Ok(out)
                })
                .collect::<Result<Vec<_>, ParquetError>>()
        };
        contained(read).map_err(|error| {
            let group = self.starts[group] + 1..=self.starts[group + 1];
            let rows = format!("rows {} to {}: {error}", group.start(), group.end());
            damaged(&self.path, &ParquetError::General(rows))
        })
    }

    fn fault(&self, row: usize, fault: RowFault) -> TraceError {
        TraceError::Row {
            path: self.path.clone(),
            row: row + 1,
            id: self
                .entries
                .get(row)
                .map_or_else(String::new, |e| e.id.clone()),
            fault,
        }
    }
}

/// The entry of a row, from its cells: id, prompt, answer, tail.
fn entry<'a>(cell: impl Fn(usize) -> &'a [u8], vocab: usize) -> Result<Entry, RowFault> {
    let prompt_ids = tokens(COLUMNS[2], cell(1))?;
    let mut path = tokens(COLUMNS[3], cell(2))?;
    let answer_len = path.len();
    path.extend(tokens(COLUMNS[4], cell(3))?);
    for (what, empty) in [
        ("prompt", prompt_ids.is_empty()),
        ("answer", answer_len == 0),
    ] {
        if empty {
            return Err(RowFault::Empty(what));
        }
    }
    let mut ids = prompt_ids.iter().chain(&path);
    if let Some(&token) = ids.find(|id| **id as usize >= vocab) {
        return Err(RowFault::Token { token, vocab });
    }
    Ok(Entry {
        id: text(0, cell(0))?,
        prompt_ids,
        path,
        answer_len,
    })
}

fn info(reader: &SerializedFileReader<File>, path: &Path) -> Result<TraceInfo, TraceError> {
    let wrong = |message: String| TraceError::Metadata {
        path: path.to_owned(),
        message,
    };
    let metadata = reader.metadata().file_metadata();
    let json = metadata
        .key_value_metadata()
        .and_then(|all| all.iter().find(|pair| pair.key == INFO_KEY))
        .and_then(|pair| pair.value.as_deref())
        .ok_or_else(|| wrong(format!("no trace: it has no metadata `{INFO_KEY}`")))?;
    let info: TraceInfo =
        serde_json::from_str(json).map_err(|e| wrong(format!("metadata `{INFO_KEY}`: {e}")))?;
    info.check(path)?;
    let columns = metadata.schema_descr().columns();
    for (index, name) in COLUMNS.iter().enumerate() {
        let fits = columns.get(index).is_some_and(|column| {
            column.name() == *name
                && column.physical_type() == PhysicalType::BYTE_ARRAY
                && column.max_def_level() == 0
                && column.max_rep_level() == 0
        });
        if !fits {
            return Err(wrong(format!(
                "column {} is not `{name}`, of bytes and never missing",
                index + 1
            )));
        }
    }
    Ok(info)
}

/// Calls the parquet library, which asserts some conditions that a damaged file violates. Such a
/// panic is reported as damage instead of ending the program.
fn contained<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|payload| {
        let words = payload.downcast_ref::<&str>().copied();
        let words = words.or(payload.downcast_ref::<String>().map(String::as_str));
        Err(ParquetError::General(
            words.unwrap_or("the parquet library gave up").to_owned(),
        ))
    })
}

fn damaged(path: &Path, error: &ParquetError) -> TraceError {
    TraceError::Damaged {
        path: path.to_owned(),
        message: error.to_string(),
    }
}
