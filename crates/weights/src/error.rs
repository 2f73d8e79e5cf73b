//! Errors of reading and writing files of weights.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A symbolic link names a file that does not exist.
    #[error("{path}: a link to {target}, where there is nothing")]
    Link {
        /// The link.
        path: PathBuf,
        /// The file that it names.
        target: PathBuf,
    },
    /// A file is a pointer of git-lfs, which stands for the real file in a repository.
    #[error("{path}: a pointer of git-lfs, not the file itself")]
    Pointer {
        /// The file.
        path: PathBuf,
    },
    /// A folder has no weights in a known format.
    #[error(
        "{path}: there are no weights (model.safetensors, pytorch_model.bin, either with an index, or a .gguf file)"
    )]
    NoWeights {
        /// The folder.
        path: PathBuf,
    },
    /// A folder has several GGUF files that are not the parts of one model.
    #[error("{path}: several .gguf files, which are not parts of one model: `{first}`, `{second}`")]
    Ambiguous {
        /// The folder.
        path: PathBuf,
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
    /// Parts of a GGUF file are missing, or their names are not those of parts.
    #[error(
        "{path}: is one of {count} parts, of which {found} {} found (they are named NAME-00001-of-{count:05}.gguf and so on)",
        if *found == 1 { "is" } else { "are" }
    )]
    Parts {
        /// The first part.
        path: PathBuf,
        /// Number of parts of the model.
        count: i128,
        /// Number of parts that were found.
        found: usize,
    },
    /// A file violates its format, or is cut short.
    #[error("{path}: not a readable {format} file: {message}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Name of the format.
        format: &'static str,
        /// Description of the fault.
        message: String,
    },
    /// The pickle of a PyTorch file names something that is not a tensor or a container.
    #[error(
        "{path}: the pickle names `{global}`, which is not read: only tensors and containers of them are"
    )]
    Global {
        /// The file.
        path: PathBuf,
        /// Module and name.
        global: String,
    },
    /// An index names a file outside its folder.
    #[error("{path}: `{file}` is not the name of a file in this folder")]
    Escape {
        /// The index.
        path: PathBuf,
        /// The name in the index.
        file: String,
    },
    /// A tensor is missing, in two files, not where the index says, of a type that is not read, or
    /// cannot be written, or rows beyond its end are asked for.
    #[error("{0}")]
    Tensor(String),
}

impl WeightsError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Some of the rows `asked` for are beyond the end of a tensor that has `rows` of them.
    pub fn beyond(path: &Path, tensor: &str, rows: usize, asked: Range<usize>) -> Self {
        Self::Tensor(format!(
            "{}: tensor `{tensor}` has {rows} rows; {asked:?} were asked for",
            path.display()
        ))
    }

    /// The values of a tensor have a type that cannot be read as f32.
    pub(crate) fn dtype(path: &Path, tensor: &str, dtype: &str) -> Self {
        let hint = match dtype {
            "F8_E4M3" | "F8_E5M2" | "I32" | "U8" | "I8" => {
                "; is it a checkpoint quantised for another program? Take the one it was made from"
            }
            _ => "",
        };
        Self::Tensor(format!(
            "{}: tensor `{tensor}` has type {dtype}, which is not read (f32, f16, bf16 and, in \
             GGUF, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K are){hint}",
            path.display()
        ))
    }
}
