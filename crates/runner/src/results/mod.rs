//! The results folder of a run: what is recorded, how it is stored, how it is summarised.
//!
//! ```text
//! manifest.json     what was run, on what, with which inputs; written first as `running`, finalised last
//! rounds.parquet    one row per speculative round     (RoundRow)
//! prompts.parquet   one row per prompt                (PromptRow)
//! updates.parquet   one row per optimiser update      (UpdateRow)
//! heads.parquet     one row per step of a head        (HeadRow), where there are any
//! report/           made from the files above by `report::write_report`
//! ```
//!
//! While a run is going the rows live in journals (`rounds.jsonl`, `prompts.jsonl`, `updates.jsonl`, one JSON
//! object a line) that are handed to the operating system after every prompt, so a process that dies loses at
//! most the prompt it was working on; [`RunWriter::resume`] goes on from the last finished stretch. [`RunWriter::finish`] turns the journals into parquet (written as
//! `*.part`, then renamed), removes them and finalises the manifest. [`RunReader`] reads either form.
//!
//! The row structs in [`rows`] are the only description of the tables: parquet columns, journal keys and the
//! documentation of each column come from them.

mod error;
mod journal;
mod machine;
mod manifest;
mod parquet;
mod reader;
mod rows;
pub mod stats;
mod writer;

pub use error::ResultsError;
pub use machine::{BuildInfo, MachineInfo};
pub use manifest::{
    ArmInfo, InputFile, MANIFEST_FILE, MANIFEST_SCHEMA, Manifest, Padding, Progress, RowCounts,
    RunStatus, StepLatency, StreamKind,
};
pub(crate) use parquet::read_rows;
pub use reader::{RunReader, Table};
pub use rows::{
    Column, ColumnData, ColumnKind, Finish, HeadRow, Phase, PromptRow, RoundRow, Row, UpdateRow,
};
pub use writer::RunWriter;

/// Writes a file through a temporary neighbour, so that a reader sees the old content or the new, never half.
pub(crate) fn write_atomically(path: &std::path::Path, bytes: &[u8]) -> Result<(), ResultsError> {
    let part = part_path(path);
    std::fs::write(&part, bytes)
        .and_then(|()| std::fs::rename(&part, path))
        .map_err(|source| ResultsError::Io {
            action: "write",
            path: path.to_path_buf(),
            source,
        })
}

/// `<name>.part` beside `path`.
pub(crate) fn part_path(path: &std::path::Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
