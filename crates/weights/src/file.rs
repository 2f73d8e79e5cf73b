//! Files that several threads read at offsets.

use std::path::{Path, PathBuf};

use crate::WeightsError;

/// First words of a git-lfs pointer, and the largest size of one.
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
const LONGEST_POINTER: u64 = 1024;

/// True if a file is a pointer of git-lfs: a short text that stands for the file in a repository
/// until `git lfs pull` fetches it.
pub fn is_pointer(path: &Path) -> bool {
    let short = |about: std::fs::Metadata| about.is_file() && about.len() <= LONGEST_POINTER;
    let short = std::fs::metadata(path).is_ok_and(short);
    short && std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(POINTER))
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    #[cfg(unix)]
    handle: std::fs::File,
    #[cfg(not(unix))]
    handle: std::sync::Mutex<std::fs::File>,
}

impl OpenFile {
    pub(crate) fn open(path: &Path) -> Result<Self, WeightsError> {
        let handle = std::fs::File::open(path).map_err(|source| match path.read_link() {
            Ok(target) if source.kind() == std::io::ErrorKind::NotFound => WeightsError::Link {
                path: path.to_owned(),
                target,
            },
            _ => WeightsError::io(path)(source),
        })?;
        let about = handle.metadata().map_err(WeightsError::io(path))?;
        if about.is_dir() {
            let source = std::io::ErrorKind::IsADirectory;
            return Err(WeightsError::io(path)(source.into()));
        }
        if is_pointer(path) {
            return Err(WeightsError::Pointer {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            len: about.len(),
            #[cfg(unix)]
            handle,
            #[cfg(not(unix))]
            handle: std::sync::Mutex::new(handle),
        })
    }

    /// Fills `to` with the bytes from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), WeightsError> {
        self.read_exact_at(offset, to)
            .map_err(WeightsError::io(&self.path))
    }

    #[cfg(unix)]
    fn read_exact_at(&self, offset: u64, to: &mut [u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.handle, to, offset)
    }

    #[cfg(not(unix))]
    fn read_exact_at(&self, offset: u64, to: &mut [u8]) -> std::io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
        let mut handle = self
            .handle
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        handle.seek(SeekFrom::Start(offset))?;
        handle.read_exact(to)
    }

    /// The `len` bytes from `offset` on. They must lie inside the file; otherwise nothing is
    /// allocated.
    pub(crate) fn bytes(
        &self,
        format: &'static str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, WeightsError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let Some(len) = usize::try_from(len).ok().filter(|_| inside) else {
            let size = self.len;
            let message = format!("{len} bytes from {offset} on are beyond its end ({size} bytes)");
            return Err(self.malformed(format, message));
        };
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn malformed(
        &self,
        format: &'static str,
        message: impl Into<String>,
    ) -> WeightsError {
        WeightsError::Malformed {
            path: self.path.clone(),
            format,
            message: message.into(),
        }
    }
}
