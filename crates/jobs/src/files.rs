//! Files and folders of a run.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;

use crate::JobsError;

/// The text of a file; `None` if there is no such file.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, JobsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(JobsError::io("read", path, source)),
    }
}

/// Writes a value as JSON in lines, ended by a line break.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), JobsError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| JobsError::json(path, &e))?;
    text.push('\n');
    Ok(results::write_atomically(path, text.as_bytes())?)
}

/// Creates a folder and its parents.
pub(crate) fn create_folder(path: &Path) -> Result<(), JobsError> {
    fs::create_dir_all(path).map_err(|source| JobsError::io("create the folder", path, source))
}

/// Names of the entries of a folder, sorted; empty if there is no such folder.
pub(crate) fn entries(path: &Path) -> Result<Vec<std::ffi::OsString>, JobsError> {
    let failed = |source| JobsError::io("list", path, source);
    let listing = match fs::read_dir(path) {
        Ok(listing) => listing,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(source)),
    };
    let mut names = Vec::new();
    for entry in listing {
        names.push(entry.map_err(failed)?.file_name());
    }
    names.sort();
    Ok(names)
}
