//! What can go wrong with a results folder.

use std::path::PathBuf;

/// An error of the results folder: which file, which line or column, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// The folder of a new run already has files in it.
    #[error(
        "results folder {} already exists and is not empty\n  hint: choose another folder with --out, remove it, or go on with an unfinished run there with --resume",
        path.display()
    )]
    FolderExists {
        /// The folder.
        path: PathBuf,
    },
    /// Another process records into the folder.
    #[error("{}: another process is writing it\n  hint: wait for that run, or stop it", path.display())]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// A finished run cannot go on.
    #[error("{}: this run is complete\n  hint: `omnidraft report` shows it; start another one with --out", path.display())]
    Complete {
        /// The folder.
        path: PathBuf,
    },
    /// What a run would go on with is not what it began with.
    #[error(
        "{}: the run there began with another {what}\n  hint: go on with the same one, or start anew with --out",
        path.display()
    )]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// The folder holds no manifest.
    #[error(
        "{} is not a results folder: it has no manifest.json\n  hint: give the folder that `omnidraft run` printed",
        path.display()
    )]
    NotAResultsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest was written by another version of this program.
    #[error(
        "{}: manifest schema {found}, this program reads {expected}\n  hint: use the version named in the manifest",
        path.display()
    )]
    Schema {
        /// The manifest.
        path: PathBuf,
        /// Schema number in the file.
        found: u32,
        /// Schema number this program writes.
        expected: u32,
    },
    /// The manifest is not the JSON it should be.
    #[error("{}:{line}: malformed manifest: {message}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// One-based line.
        line: usize,
        /// What the JSON reader said.
        message: String,
    },
    /// A journal line is not the JSON object of its row.
    #[error(
        "{}:{line}: malformed row: {message}\n  hint: the journal was edited or damaged; remove the line to read the rest",
        path.display()
    )]
    Journal {
        /// The journal.
        path: PathBuf,
        /// One-based line.
        line: usize,
        /// What the JSON reader said.
        message: String,
    },
    /// Neither the parquet file nor the journal of a table exists.
    #[error("{}: missing, and no {journal} beside it", path.display())]
    MissingTable {
        /// The parquet file.
        path: PathBuf,
        /// Name of the journal looked for.
        journal: String,
    },
    /// A parquet file could not be written or read.
    #[error("{}: {message}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What polars said.
        message: String,
    },
    /// A parquet column is missing, has another type, or holds a value its row does not allow.
    #[error("{}: column `{column}` is not a column of {expected} values", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// Name of the value type wanted.
        expected: &'static str,
    },
    /// A table holds another number of rows than the manifest says.
    #[error("{}: {found} rows, the manifest says {expected}", path.display())]
    RowCount {
        /// The table.
        path: PathBuf,
        /// Rows in the table.
        found: u64,
        /// Rows in the manifest.
        expected: u64,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write` or `create`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}
