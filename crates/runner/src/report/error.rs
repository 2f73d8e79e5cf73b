//! What can keep a report from being written.

use crate::results::ResultsError;
use std::path::PathBuf;

/// An error of the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The results folder cannot be read.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The run recorded no prompt at all.
    #[error(
        "{}: the run recorded no prompt, so there is nothing to report\n  hint: the manifest says `{status}`; see its command line",
        dir.display()
    )]
    Empty {
        /// The results folder.
        dir: PathBuf,
        /// Status in the manifest.
        status: &'static str,
    },
    /// The drawing library refused a figure.
    #[error("cannot draw {}: {message}", path.display())]
    Drawing {
        /// The image file.
        path: PathBuf,
        /// What the library said.
        message: String,
    },
    /// A file of the report could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}
