//! Recording of a trace, which can be interrupted and continued.
//!
//! Parquet cannot be appended to. Rows therefore go to `FILE.part` first, each field preceded by
//! its length and each row followed by its checksum, and become the file when all are there. A row
//! that an interruption cut short is recorded again. The final file does not depend on
//! interruptions.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use crate::file::write_table;
use crate::record::{Fields, checksum};
use crate::{Record, TraceError, TraceFile, TraceInfo};

const MAGIC: &[u8; 16] = b"omnidraft trace\n";
/// Largest length of a field. A larger one means damage.
const MOST_FIELD: u64 = 8 << 30;

/// Writer of a trace.
pub struct TraceWriter {
    path: PathBuf,
    part: PathBuf,
    info: TraceInfo,
    journal: BufWriter<File>,
    ids: FxHashSet<String>,
    prompts: FxHashSet<Vec<u32>>,
    /// Number of rows of the partial file.
    rows: usize,
    tokens: u64,
    bytes: u64,
}

impl TraceWriter {
    /// Begins a trace, or continues one that was interrupted or is to hold more prompts. A
    /// finished file stays as it is until [`finish`](Self::finish) replaces it. Of a partial file
    /// the rows before the first damaged one are kept.
    ///
    /// # Errors
    /// A file or a partial file with other settings; a damaged finished file; a partial file that
    /// is no recording, or that another process writes; impossible settings; an I/O error.
    pub fn open(path: &Path, info: &TraceInfo) -> Result<Self, TraceError> {
        info.check(path)?;
        let part = with_suffix(path, ".part");
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(TraceError::io("create the folder of", path))?;
        }
        if path.exists() && !part.exists() {
            begin_with(path, &part, info)?;
        }
        let io = |source| TraceError::io("write", &part)(source);
        let mut writer = Self {
            path: path.to_owned(),
            journal: BufWriter::new(
                OpenOptions::new()
                    .create(true)
                    .read(true)
                    .append(true)
                    .open(&part)
                    .map_err(io)?,
            ),
            part: part.clone(),
            info: info.clone(),
            ids: FxHashSet::default(),
            prompts: FxHashSet::default(),
            rows: 0,
            tokens: 0,
            bytes: 0,
        };
        if writer.journal.get_ref().try_lock().is_err() {
            return Err(TraceError::OtherWriter(part));
        }
        let kept = writer.resume()?;
        let file = writer.journal.get_ref();
        file.set_len(kept).map_err(io)?;
        if kept == 0 {
            let header = header(info);
            writer.journal.write_all(&header).map_err(io)?;
            writer.journal.flush().map_err(io)?;
            writer.bytes = header.len() as u64;
        } else {
            writer.bytes = kept;
        }
        Ok(writer)
    }

    /// True if a prompt with this id is recorded.
    pub fn has_id(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// True if a prompt with these tokens is recorded. A target has one answer to it, whatever its
    /// id.
    pub fn has_prompt(&self, prompt_ids: &[u32]) -> bool {
        self.prompts.contains(prompt_ids)
    }

    /// Number of prompts recorded.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Number of tokens of all answers, tails included.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Size of the partial file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a record and hands it to the operating system.
    ///
    /// # Errors
    /// A record that does not fit the settings; an I/O error.
    pub fn push(&mut self, record: &Record) -> Result<(), TraceError> {
        record.check(&self.info).map_err(|fault| TraceError::Row {
            path: self.path.clone(),
            row: self.ids.len() + 1,
            id: record.id.clone(),
            fault,
        })?;
        let io = |source| TraceError::io("write", &self.part)(source);
        self.bytes += write_row(&mut self.journal, &record.fields()).map_err(io)?;
        self.journal.flush().map_err(io)?;
        self.note(record);
        Ok(())
    }

    /// Writes the recorded rows to the final file and removes the partial one. Returns the file's
    /// path.
    ///
    /// # Errors
    /// An I/O or parquet error; a partial file that another process has changed. It is then still
    /// there.
    pub fn finish(mut self) -> Result<PathBuf, TraceError> {
        let flushed = self.journal.flush();
        flushed.map_err(TraceError::io("write", &self.part))?;
        let whole = with_suffix(&self.path, ".tmp");
        let file = File::open(&self.part).map_err(TraceError::io("read", &self.part))?;
        let rows = Rows::new(file, header(&self.info).len() as u64)
            .map_err(TraceError::io("read", &self.part))?;
        let count = write_table(&whole, &self.info, rows.map(|(fields, _)| fields))?;
        if count != self.rows {
            return Err(TraceError::OtherWriter(self.part));
        }
        fs::rename(&whole, &self.path).map_err(TraceError::io("write", &self.path))?;
        fs::remove_file(&self.part).map_err(TraceError::io("remove", &self.part))?;
        Ok(self.path)
    }

    fn note(&mut self, record: &Record) {
        self.rows += 1;
        self.ids.insert(record.id.clone());
        self.prompts.insert(record.prompt_ids.clone());
        self.tokens += record.law.len() as u64;
    }

    /// Reads the rows of an earlier recording. Returns the number of bytes before the first row
    /// that is incomplete or damaged.
    fn resume(&mut self) -> Result<u64, TraceError> {
        let read = |source| TraceError::io("read", &self.part)(source);
        let mut file = File::open(&self.part).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let header = header(&self.info);
        let mut head = Vec::new();
        let most = header.len().max(1 << 20) as u64;
        (&mut file)
            .take(most)
            .read_to_end(&mut head)
            .map_err(read)?;
        if !head.starts_with(&header) {
            let info = info_of(&head);
            // The partial file ends within its header: nothing is lost by starting anew.
            if header.starts_with(&head) {
                return Ok(0);
            }
            return Err(TraceError::OtherRecording {
                path: self.part.clone(),
                difference: match info {
                    Some(other) => self.info.difference(&other).unwrap_or_default(),
                    None => "it is no partial trace".to_owned(),
                },
            });
        }
        let mut kept = header.len() as u64;
        let mut rows = Rows::new(file, kept).map_err(read)?;
        while kept < length
            && let Some((fields, end)) = rows.next()
            && let Ok(record) = Record::of_fields(&fields, &self.info)
        {
            self.note(&record);
            kept = end;
        }
        Ok(kept)
    }
}

/// Writes the rows of a finished trace as a partial file, whole or not at all.
fn begin_with(path: &Path, part: &Path, info: &TraceInfo) -> Result<(), TraceError> {
    let mut trace = TraceFile::open(path)?;
    if let Some(difference) = info.difference(trace.info()) {
        return Err(TraceError::OtherRecording {
            path: path.to_owned(),
            difference,
        });
    }
    let whole = with_suffix(path, ".tmp");
    let io = |source| TraceError::io("write", &whole)(source);
    let mut journal = BufWriter::new(File::create(&whole).map_err(io)?);
    journal.write_all(&header(info)).map_err(io)?;
    for row in 0..trace.entries().len() {
        write_row(&mut journal, &trace.fields(row)?).map_err(io)?;
    }
    journal.flush().map_err(io)?;
    fs::rename(&whole, part).map_err(TraceError::io("write", part))
}

/// Writes a row of a partial file. Returns its number of bytes.
fn write_row(journal: &mut impl Write, fields: &Fields) -> std::io::Result<u64> {
    let mut written = 32;
    for field in fields {
        journal.write_all(&(field.len() as u64).to_le_bytes())?;
        journal.write_all(field)?;
        written += 8 + field.len() as u64;
    }
    journal.write_all(&checksum(fields))?;
    Ok(written)
}

/// The complete rows of a partial file, each with its end in bytes.
struct Rows {
    reader: BufReader<File>,
    at: u64,
}

impl Rows {
    fn new(mut file: File, start: u64) -> std::io::Result<Self> {
        file.seek(SeekFrom::Start(start))?;
        Ok(Self {
            reader: BufReader::new(file),
            at: start,
        })
    }
}

impl Iterator for Rows {
    type Item = (Fields, u64);

    fn next(&mut self) -> Option<(Fields, u64)> {
        let mut fields = Fields::default();
        let mut end = self.at;
        for field in &mut fields {
            let mut length = [0; 8];
            self.reader.read_exact(&mut length).ok()?;
            let length = u64::from_le_bytes(length);
            if length > MOST_FIELD {
                return None;
            }
            let read = (&mut self.reader).take(length).read_to_end(field).ok()?;
            if read as u64 != length {
                return None;
            }
            end += 8 + length;
        }
        let mut sum = [0; 32];
        self.reader.read_exact(&mut sum).ok()?;
        if sum != checksum(&fields) {
            return None;
        }
        self.at = end + 32;
        Some((fields, self.at))
    }
}

/// Header of a partial file: magic, length of the metadata, metadata.
fn header(info: &TraceInfo) -> Vec<u8> {
    let json = serde_json::to_vec(info).unwrap_or_default();
    [&MAGIC[..], &(json.len() as u64).to_le_bytes(), &json].concat()
}

fn info_of(head: &[u8]) -> Option<TraceInfo> {
    let rest = head.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    serde_json::from_slice(rest.get(..length)?).ok()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
