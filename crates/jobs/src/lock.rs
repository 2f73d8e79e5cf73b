//! Locks between processes. The system releases them when the holder ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use crate::{JobFolder, JobsError, RunRoot};

/// Pause before a second try for a lock: [`CellLock::holder`] takes a lock for a moment to see if
/// it is free.
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// Pause between two tries while a job waits for its machine.
const MACHINE_POLL: Duration = Duration::from_millis(100);

/// The exclusive right to run a job and to write its folder, held until dropped.
#[derive(Debug)]
pub struct CellLock {
    _held: FileLock,
}

impl CellLock {
    /// Takes the lock of a job's folder, which must exist; `None` if another process or thread
    /// holds it.
    ///
    /// # Errors
    /// A file system without locks, [`JobsError::Io`].
    pub fn try_take(folder: &JobFolder) -> Result<Option<Self>, JobsError> {
        let path = folder.lock();
        let mut file = open(&path)?;
        if !try_lock_twice(&path, || file.try_lock())? {
            return Ok(None);
        }
        // This text is informative only; `holder` shows it.
        let _ = file
            .set_len(0)
            .and_then(|()| write!(file, "process {} on {}", std::process::id(), host_name()));
        Ok(Some(Self {
            _held: FileLock(file),
        }))
    }

    /// The holder of the lock of a job's folder, as `process 7 on HOST`; `None` if the lock is
    /// free.
    ///
    /// # Errors
    /// A file system without locks, [`JobsError::Io`].
    pub fn holder(folder: &JobFolder) -> Result<Option<String>, JobsError> {
        let path = folder.lock();
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(source) => return Err(JobsError::io("open", &path, source)),
        };
        if try_lock_twice(&path, || file.try_lock_shared())? {
            return Ok(None);
        }
        let mut text = String::new();
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.read_to_string(&mut text));
        match read {
            Ok(_) if !text.is_empty() => Ok(Some(text)),
            _ => Ok(Some("another process".to_owned())),
        }
    }
}

/// Waits for a job's permission to use this machine, held until dropped: `alone` among the jobs of
/// the run if it is timed, otherwise together with others. `waits` is called before every pause; if
/// it returns false, the result is `None`.
pub(crate) fn take_machine(
    root: &RunRoot,
    alone: bool,
    mut waits: impl FnMut() -> bool,
) -> Result<Option<FileLock>, JobsError> {
    let path = root.machine_lock(&host_name());
    let file = open(&path)?;
    loop {
        let taken = try_lock_once(&path, || match alone {
            true => file.try_lock(),
            false => file.try_lock_shared(),
        })?;
        if taken {
            return Ok(Some(FileLock(file)));
        }
        if !waits() {
            return Ok(None);
        }
        std::thread::sleep(MACHINE_POLL);
    }
}

/// Opens a lock file without changing its text; creates it if there is none.
fn open(path: &Path) -> Result<File, JobsError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|source| JobsError::io("open", path, source))
}

/// Tries to take a lock once. Returns true if it was taken.
fn try_lock_once(
    path: &Path,
    lock: impl Fn() -> Result<(), TryLockError>,
) -> Result<bool, JobsError> {
    match lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(JobsError::refused(
            format!("cannot lock {}: {source}", path.display()),
            "the run's folder must be on a file system with locks: choose another with --out",
        )),
    }
}

/// Tries twice, so that a process that only checks the lock does not count as its holder.
fn try_lock_twice(
    path: &Path,
    lock: impl Fn() -> Result<(), TryLockError>,
) -> Result<bool, JobsError> {
    if try_lock_once(path, &lock)? {
        return Ok(true);
    }
    std::thread::sleep(LOCK_RETRY);
    try_lock_once(path, &lock)
}

/// A locked file. It is unlocked explicitly: a child process that is just being started has the
/// file open as well for a moment, so that closing it here would not release the lock.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Takes a short-lived lock that only calls of this function contend for; `None` if another
    /// process holds it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Self>, JobsError> {
        let file = open(path)?;
        let taken = try_lock_once(path, || file.try_lock())?;
        Ok(taken.then_some(Self(file)))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If unlocking fails, closing the file has to suffice.
        let _ = self.0.unlock();
    }
}

/// Name of this machine, reduced to characters that are valid in a file name.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default();
    let name: String = name
        .trim()
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
            _ => '-',
        })
        .collect();
    if name.is_empty() {
        "machine".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;

    fn run() -> (tempfile::TempDir, RunRoot) {
        let dir = tempfile::tempdir().unwrap();
        let root = RunRoot::new(dir.path());
        (dir, root)
    }

    #[test]
    fn one_holder_at_a_time() {
        let (_dir, root) = run();
        let folder = root.folder(&JobId::new("stream", "seed=1").unwrap());
        assert_eq!(CellLock::holder(&folder).unwrap(), None);
        folder.create().unwrap();
        let lock = CellLock::try_take(&folder).unwrap();
        assert!(lock.is_some());
        assert!(CellLock::try_take(&folder).unwrap().is_none());
        let holder = CellLock::holder(&folder).unwrap().unwrap();
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        drop(lock);
        assert_eq!(CellLock::holder(&folder).unwrap(), None);
        assert!(CellLock::try_take(&folder).unwrap().is_some());
    }

    #[test]
    fn a_timed_job_is_alone() {
        let (_dir, root) = run();
        let take = |alone| take_machine(&root, alone, || false).unwrap();
        let (a, b) = (take(false), take(false));
        assert!(a.is_some() && b.is_some());
        assert!(take(true).is_none());
        drop((a, b));
        let alone = take(true);
        assert!(alone.is_some());
        assert!(take(false).is_none());
        assert!(take(true).is_none());
    }

    #[test]
    fn host_names_are_file_names() {
        assert!(!host_name().is_empty());
        assert!(!host_name().contains(['/', ' ', '\n']));
    }
}
