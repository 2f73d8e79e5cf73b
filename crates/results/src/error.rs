//! Errors of a cell's folder.

use std::path::{Path, PathBuf};

/// An error of a cell's folder, with file and line or column.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// A complete cell would be overwritten.
    #[error("{}: this cell is complete", path.display())]
    Complete {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds no manifest.
    #[error("{} is not the folder of a cell: it has no manifest.json", path.display())]
    NotACell {
        /// The folder.
        path: PathBuf,
    },
    /// A manifest or record was written by another version of this program.
    #[error("{}: layout {found}, this program reads layout {expected}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// The layout that this program writes.
        expected: u32,
    },
    /// A manifest, a record or a row is not valid JSON for its type.
    #[error("{}:{line}: {what}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// One-based line.
        line: usize,
        /// `malformed` or `malformed row`.
        what: &'static str,
        /// The parser's error.
        message: String,
    },
    /// A table of a complete cell is missing.
    #[error("{}: missing", path.display())]
    MissingTable {
        /// The parquet file.
        path: PathBuf,
    },
    /// A parquet file could not be written or read.
    #[error("{}: {message}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The parquet library's error.
        message: String,
    },
    /// A parquet column is missing, has another type, or holds a value that its row does not allow.
    #[error("{}: column `{column}` is not a column of {expected} values", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// Name of the expected value type.
        expected: &'static str,
    },
    /// A table has an unexpected number of rows.
    #[error("{}: {found} rows, should be {expected}", path.display())]
    RowCount {
        /// The table.
        path: PathBuf,
        /// Rows in the table.
        found: u64,
        /// Rows in the manifest.
        expected: u64,
    },
    /// A folder has no cell to read rows of.
    #[error("{}: no cell{} with rows", path.display(), of_stage(stage.as_deref()))]
    NoCells {
        /// The folder of the run.
        path: PathBuf,
        /// The stage that was asked for.
        stage: Option<String>,
    },
    /// Rows are to be published into the folder they come from.
    #[error("{}: cannot publish a folder into itself", path.display())]
    IntoItself {
        /// The folder.
        path: PathBuf,
    },
    /// Rows are to be published over those of another experiment.
    #[error("{}: holds experiment `{other}`", path.display())]
    OtherExperiment {
        /// The folder.
        path: PathBuf,
        /// Name of the experiment in it.
        other: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that failed: `read`, `write`, `create`, `open`, `resume`, `cut` or
        /// `remove`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

fn of_stage(stage: Option<&str>) -> String {
    stage.map_or_else(String::new, |stage| format!(" of stage `{stage}`"))
}

impl ResultsError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Complete { .. } => {
                "`omnidraft report` shows it; remove the folder to run it again"
            }
            Self::NotACell { .. } | Self::NoCells { .. } => {
                "give a folder that `omnidraft run` made"
            }
            Self::Schema { .. } => {
                "use the program that wrote the folder, or give another one with --out"
            }
            Self::Malformed { path, .. } if path.ends_with(crate::EXPERIMENT_FILE) => {
                "the file was changed or damaged; remove it, `omnidraft run` writes it again"
            }
            Self::Malformed { .. } => {
                "the file was edited or damaged; remove the folder and run the cell again"
            }
            Self::MissingTable { .. }
            | Self::Parquet { .. }
            | Self::Column { .. }
            | Self::RowCount { .. } => {
                "the folder is damaged or of another version; remove it and run the cell again"
            }
            Self::IntoItself { .. } | Self::OtherExperiment { .. } => "choose another folder",
            Self::Io { .. } => return None,
        };
        Some(text.to_owned())
    }

    /// An I/O error of a path.
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }
}
