//! `manifest.json`: everything needed to say what a table's numbers are numbers of.

use super::machine::utc_now;
use super::{BuildInfo, MachineInfo, ResultsError, write_atomically};
use crate::config::Idle;
use crate::step::StepTimes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// File name of the manifest.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Version of the folder's layout. A reader refuses another one.
pub const MANIFEST_SCHEMA: u32 = 1;

/// How far a run got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Going on, or killed without a chance to say so.
    Running,
    /// Everything ran.
    Complete,
    /// Ended by an error.
    Failed,
    /// Ended by the user or by a dropped writer.
    Interrupted,
}

impl RunStatus {
    /// The text in the manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How the segments of the stream relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// Every segment starts from the pretrained drafter and an empty cache (Table 1, Figures 2 and 4).
    Independent,
    /// The drafter and the cache live through all segments (drift, Figures 5 and 6).
    Continual,
}

/// One arm (method) of the run. The order of arms is the order of rows in tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmInfo {
    /// The name in the rows' `arm` column, shown in tables.
    pub name: String,
    /// Draft length k; 0 for plain decoding.
    pub draft_length: u32,
    /// Sampling temperature.
    pub temperature: f64,
}

/// Seconds of one decoding step of drafter and target, for the modelled speedup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepLatency {
    /// Drafter, one step.
    pub draft_s: f64,
    /// Target, one step.
    pub target_s: f64,
    /// Where the numbers come from.
    pub source: String,
}

impl StepLatency {
    /// Llama-68M drafting for Llama3-8B on an A100 (Table 8).
    pub fn paper() -> Self {
        Self {
            draft_s: 0.002_03,
            target_s: 0.028_46,
            source: "Llama-68M and Llama3-8B on an A100 (paper, Table 8)".to_owned(),
        }
    }

    /// c, the drafter's step over the target's.
    pub fn ratio(&self) -> f64 {
        self.draft_s / self.target_s
    }
}

/// Cost padding of a target: its output is unchanged, its steps take longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Padding {
    /// Blocks added to the target.
    pub layers: usize,
    /// Inner columns added to every MLP of the target.
    #[serde(default)]
    pub width: usize,
    /// Blocks added to the drafter.
    #[serde(default)]
    pub draft_layers: usize,
    /// Inner columns added to every MLP of the drafter.
    #[serde(default)]
    pub draft_width: usize,
    /// Step times of both, padded, measured when the run began.
    pub steps: StepTimes,
}

impl Padding {
    /// Of target and drafter.
    pub fn idle(&self) -> (Idle, Idle) {
        let idle = |layers, width| Idle { layers, width };
        (
            idle(self.layers, self.width),
            idle(self.draft_layers, self.draft_width),
        )
    }
}

/// A file the run read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// What it was used as: `drafter model`, `target tokenizer`, `stream`, ...
    pub role: String,
    /// File name as given, without the folders of this machine.
    pub name: String,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Rows of a data set, where it is one.
    pub rows: Option<u64>,
}

impl InputFile {
    /// Hashes the file at `path`.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn hash(role: &str, path: &Path, rows: Option<u64>) -> Result<Self, ResultsError> {
        let io = |source| ResultsError::Io {
            action: "read",
            path: path.to_path_buf(),
            source,
        };
        let mut file = std::fs::File::open(path).map_err(io)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut bytes = 0;
        loop {
            match file.read(&mut buffer).map_err(io)? {
                0 => break,
                n => {
                    hasher.update(&buffer[..n]);
                    bytes += n as u64;
                }
            }
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self {
            role: role.to_owned(),
            name: name.to_string_lossy().into_owned(),
            sha256: hex(&hasher.finalize()),
            bytes,
            rows,
        })
    }

    /// An input that is part of the program (an embedded stream), hashed from memory.
    pub fn embedded(role: &str, name: &str, content: &[u8], rows: Option<u64>) -> Self {
        Self {
            role: role.to_owned(),
            name: name.to_owned(),
            sha256: hex(&Sha256::digest(content)),
            bytes: content.len() as u64,
            rows,
        }
    }
}

/// Rows of each table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Rows of `rounds`.
    pub rounds: u64,
    /// Rows of `prompts`.
    pub prompts: u64,
    /// Rows of `updates`.
    pub updates: u64,
    /// Rows of `heads`.
    #[serde(default)]
    pub heads: u64,
}

/// The manifest of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Layout version, [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// How far the run got.
    pub status: RunStatus,
    /// Short name of the experiment, shown in titles.
    pub name: String,
    /// The command line.
    pub argv: Vec<String>,
    /// The resolved configuration.
    pub config: serde_json::Value,
    /// SHA-256 of the configuration's JSON.
    pub config_sha256: String,
    /// Arms in table order.
    pub arms: Vec<ArmInfo>,
    /// How the stream's segments relate.
    pub streams: StreamKind,
    /// Seeds of the repetitions.
    pub seeds: Vec<u64>,
    /// Step latencies for the modelled speedup by target name; a target that is not listed uses the paper's.
    pub latencies: BTreeMap<String, StepLatency>,
    /// Padded targets by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub padding: BTreeMap<String, Padding>,
    /// The program.
    pub build: BuildInfo,
    /// The machine.
    pub machine: MachineInfo,
    /// Models, tokenizers and data sets.
    pub inputs: Vec<InputFile>,
    /// Start, UTC, RFC 3339.
    pub started: String,
    /// End, UTC, RFC 3339.
    pub finished: Option<String>,
    /// Rows of each table at the end.
    pub rows: Option<RowCounts>,
    /// While it runs: from where it can go on after an interruption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// A state of a run that depends on nothing before it but its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Independent stretches of the run that are done: segments, or seeds where drafters live through all segments.
    pub done: usize,
    /// Rows recorded by then.
    pub rows: RowCounts,
}

impl Manifest {
    /// A manifest of a run that starts now on this machine. Fill in `arms`, `streams`, `seeds` and `inputs`.
    pub fn new(name: &str, argv: Vec<String>, config: serde_json::Value) -> Self {
        Self {
            schema: MANIFEST_SCHEMA,
            status: RunStatus::Running,
            name: name.to_owned(),
            argv,
            config_sha256: hex(&Sha256::digest(config.to_string())),
            config,
            arms: Vec::new(),
            streams: StreamKind::Independent,
            seeds: Vec::new(),
            latencies: BTreeMap::new(),
            padding: BTreeMap::new(),
            build: BuildInfo::collect(),
            machine: MachineInfo::collect(),
            inputs: Vec::new(),
            started: utc_now(),
            finished: None,
            rows: None,
            progress: None,
        }
    }

    /// Step latencies of a target, the paper's when the manifest has none of its own.
    pub fn latency(&self, target: &str) -> StepLatency {
        self.latencies
            .get(target)
            .cloned()
            .unwrap_or_else(StepLatency::paper)
    }

    /// Reads the manifest of a results folder.
    ///
    /// # Errors
    /// [`ResultsError::NotAResultsFolder`], [`ResultsError::Manifest`] with the line, [`ResultsError::Schema`].
    pub fn read(dir: &Path) -> Result<Self, ResultsError> {
        let path = dir.join(MANIFEST_FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ResultsError::NotAResultsFolder {
                path: dir.to_path_buf(),
            },
            _ => ResultsError::Io {
                action: "read",
                path: path.clone(),
                source,
            },
        })?;
        let malformed = |error: serde_json::Error| ResultsError::Manifest {
            path: path.clone(),
            line: error.line(),
            message: error.to_string(),
        };
        let value: SchemaOnly = serde_json::from_str(&text).map_err(malformed)?;
        if value.schema != MANIFEST_SCHEMA {
            return Err(ResultsError::Schema {
                path,
                found: value.schema,
                expected: MANIFEST_SCHEMA,
            });
        }
        serde_json::from_str(&text).map_err(malformed)
    }

    /// Writes the manifest into a results folder, replacing the one there.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn write(&self, dir: &Path) -> Result<(), ResultsError> {
        let path = dir.join(MANIFEST_FILE);
        let mut text = serde_json::to_string_pretty(self).map_err(|error| ResultsError::Io {
            action: "write",
            path: path.clone(),
            source: error.into(),
        })?;
        text.push('\n');
        write_atomically(&path, text.as_bytes())
    }
}

/// Read first, so that another layout is reported as such and not as a missing key.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: u32,
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_sha256() {
        let file = InputFile::embedded("stream", "abc", b"abc", Some(1));
        assert_eq!(
            file.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn the_paper_ratio() {
        assert!((StepLatency::paper().ratio() - 0.071_33).abs() < 1e-5);
    }
}
