#![doc = include_str!("../README.md")]

mod engine;
mod error;
mod file;
mod info;
mod law;
mod record;
mod recorder;
mod text;
mod writer;

pub use engine::{TraceEngine, Traces};
pub use error::{RowFault, TraceError};
pub use file::{Entry, TraceFile};
pub use info::{DEFAULT_TAIL, FORMAT, Source, Template, TraceInfo, Values};
pub use law::{Law, largest, log_sum_exp};
pub use record::Record;
pub use recorder::{Answering, answer};
pub use text::{MOST_ORDER, NgramModel, TextLaw};
pub use writer::TraceWriter;

use std::path::Path;

use sha2::{Digest, Sha256};

/// SHA-256 of a file, hexadecimal. Traces identify tokenizers by it.
///
/// # Errors
/// The file cannot be read.
pub fn file_sha256(path: &Path) -> Result<String, TraceError> {
    let io = |source| TraceError::io("read", path)(source);
    let mut file = std::fs::File::open(path).map_err(io)?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).map_err(io)?;
    Ok(hex::encode(hasher.finalize()))
}
