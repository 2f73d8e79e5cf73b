//! Reader of the directory of a zip archive whose entries are stored uncompressed.

use std::collections::BTreeMap;

use crate::WeightsError;
use crate::file::OpenFile;

use super::FORMAT;

/// Place of an entry's bytes in the file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Size of the end record without its comment, in bytes.
const END: usize = 22;
/// Largest length of the comment that follows it.
const LONGEST_COMMENT: u64 = u16::MAX as u64;
/// Size of the locator, which points to the 64-bit end record of large archives.
const LOCATOR: u64 = 20;
/// Sizes of the fixed parts of a directory record and of the header before an entry's bytes.
const RECORD: usize = 46;
const LOCAL: u64 = 30;
/// Largest size of a directory in bytes. It allows a million entries.
const LONGEST_DIRECTORY: u64 = 256 << 20;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Offset and size of the directory, in bytes.
fn directory(file: &OpenFile) -> Result<(u64, u64), WeightsError> {
    let no_archive = || {
        file.malformed(
            FORMAT,
            "it is no zip archive, or is cut short (files from before PyTorch 1.6 have to be saved anew)",
        )
    };
    let tail_len = file.len.min(END as u64 + LONGEST_COMMENT);
    let tail_at = file.len - tail_len;
    let tail = file.bytes(FORMAT, tail_at, tail_len)?;
    let found = (0..(tail.len() + 1).saturating_sub(END))
        .rev()
        .find(|at| tail[*at..].starts_with(b"PK\x05\x06"))
        .ok_or_else(no_archive)?;
    let end = &tail[found..];
    let (len, offset) = (u32_at(end, 12), u32_at(end, 16));
    let end_at = tail_at + found as u64;
    // Large archives have a second end record, with 64-bit numbers.
    let locator = match end_at.checked_sub(LOCATOR) {
        Some(at) => file.bytes(FORMAT, at, LOCATOR)?,
        None => Vec::new(),
    };
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok((offset.into(), len.into()));
    }
    let record = file.bytes(FORMAT, u64_at(&locator, 8), 56)?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(no_archive());
    }
    Ok((u64_at(&record, 48), u64_at(&record, 40)))
}

/// Every entry by name.
pub(super) fn entries(file: &OpenFile) -> Result<BTreeMap<String, Entry>, WeightsError> {
    let bad = |message: String| file.malformed(FORMAT, message);
    let (offset, len) = directory(file)?;
    if len > LONGEST_DIRECTORY {
        return Err(bad(format!("a directory of {len} bytes")));
    }
    let directory = file.bytes(FORMAT, offset, len)?;
    let mut rest = directory.as_slice();
    let mut entries = BTreeMap::new();
    while !rest.is_empty() {
        if rest.len() < RECORD || !rest.starts_with(b"PK\x01\x02") {
            return Err(bad(
                "a record of the archive's directory is malformed".into()
            ));
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(rest, at)));
        if rest.len() < RECORD + name + extra + comment {
            return Err(bad("the archive's directory is cut short".into()));
        }
        let (record, variable) = rest.split_at(RECORD);
        let (name, variable) = variable.split_at(name);
        let name = String::from_utf8_lossy(name).into_owned();
        let entry = entry(file, &name, record, &variable[..extra])?;
        if entries.insert(name.clone(), entry).is_some() {
            return Err(bad(format!("entry `{name}` is there twice")));
        }
        rest = &variable[extra + comment..];
    }
    Ok(entries)
}

fn entry(file: &OpenFile, name: &str, record: &[u8], extra: &[u8]) -> Result<Entry, WeightsError> {
    let bad = |message: &str| file.malformed(FORMAT, format!("entry `{name}` {message}"));
    if u16_at(record, 10) != 0 {
        return Err(bad("is compressed"));
    }
    let (packed, len) = (u32_at(record, 20), u32_at(record, 24));
    let local = u32_at(record, 42);
    let mut wide = wide_numbers(extra);
    let mut widened = |narrow: u32| match narrow {
        u32::MAX => wide.next().ok_or_else(|| bad("has no length")),
        narrow => Ok(u64::from(narrow)),
    };
    // The 64-bit numbers come in this order, and only for fields that do not fit in 32 bits.
    let len = widened(len)?;
    let packed = widened(packed)?;
    let local = widened(local)?;
    if packed != len {
        return Err(bad("is compressed"));
    }
    let header = file.bytes(FORMAT, local, LOCAL)?;
    if !header.starts_with(b"PK\x03\x04") {
        return Err(bad("does not begin where the directory says"));
    }
    let before = LOCAL + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
    let offset = local + before;
    if offset.checked_add(len).is_none_or(|end| end > file.len) {
        return Err(bad(&format!("of {len} bytes ends beyond the file")));
    }
    Ok(Entry { offset, len })
}

/// The 64-bit numbers in the extra fields of a record.
fn wide_numbers(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut found: &[u8] = &[];
    while extra.len() >= 4 {
        let (kind, len) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let body = &extra[4..];
        let len = len.min(body.len());
        if kind == 1 {
            found = &body[..len];
        }
        extra = &body[len..];
    }
    found
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
}
