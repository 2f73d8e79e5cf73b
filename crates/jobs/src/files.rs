//! Atomic writes: a reader sees the old file or the new one, never a part of one.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::JobsError;

/// Writes `bytes` to `path` through a `.part` file beside it and a rename, both synced to disk.
///
/// Two processes may write the same path at the same time: each has its own `.part` file, and the
/// last rename wins.
///
/// # Errors
/// [`JobsError::Io`]; the old file at `path` then remains.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), JobsError> {
    let (part, mut file) = create_part(path)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&part, path));
    drop(file);
    if let Err(source) = written {
        // The first error is the one to report.
        let _ = fs::remove_file(&part);
        return Err(JobsError::io("write", path, source));
    }
    sync_folder(path);
    Ok(())
}

/// Creates a new file `NAME.PID-N.part`. N counts past files that a killed process with the same
/// number left.
fn create_part(path: &Path) -> Result<(PathBuf, File), JobsError> {
    let mut count = 0u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{count}.part", std::process::id()));
        let part = PathBuf::from(name);
        match File::create_new(&part) {
            Ok(file) => return Ok((part, file)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists && count < u32::MAX => count += 1,
            Err(source) => return Err(JobsError::io("create", &part, source)),
        }
    }
}

/// Makes a rename in the folder of `path` survive a power cut, if the system supports that.
fn sync_folder(path: &Path) {
    if let Some(Ok(folder)) = path.parent().map(File::open) {
        // Some file systems refuse; the rename is then as durable as they make it.
        let _ = folder.sync_all();
    }
}

/// True if the name is that of a leftover of [`write_atomically`].
pub(crate) fn is_part(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().ends_with(".part")
}

/// The text of a file; `None` if there is no such file.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, JobsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(JobsError::io("read", path, source)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_replaces_and_leaves_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(entries(dir.path()).unwrap(), ["a.json"]);
    }

    #[test]
    fn a_part_file_of_a_killed_process_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let left = format!("a.json.{}-0.part", std::process::id());
        fs::write(dir.path().join(&left), "half").unwrap();
        write_atomically(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn a_failed_write_names_the_file_and_leaves_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "").unwrap();
        let error = write_atomically(&path, b"x").unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(entries(dir.path()).unwrap(), ["taken"]);
    }
}
