//! `manifest.json`: the description of a cell, sufficient to run it again.

use crate::common;
use crate::machine::utc_now;
use crate::record;
use crate::schema::text_enum;
use crate::{BuildInfo, InputFile, MachineInfo, ResultsError, read_if_there, write_atomically};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// File name of the manifest.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Version of the folder's layout. A reader refuses another one.
pub const MANIFEST_SCHEMA: u32 = 2;

text_enum! {
    /// Status of a cell.
    CellStatus {
        /// Running, or killed without a chance to change the status.
        #[default]
        Running = "running",
        /// Finished.
        Complete = "complete",
        /// Ended by an error.
        Failed = "failed",
        /// Ended by the user, or by a dropped writer.
        Interrupted = "interrupted",
    }
}

/// The job whose results are in a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellInfo {
    /// Name of the experiment.
    pub experiment: String,
    /// SHA-256 of the experiment with everything it includes, hexadecimal.
    pub experiment_sha256: String,
    /// Name of the stage.
    pub stage: String,
    /// Name of the cell, which is that of its folder: `target=L,task=gsm8k,seed=1`.
    pub name: String,
    /// All axes of the grid with this cell's values, in the file's order.
    pub coordinates: Vec<(String, String)>,
    /// Root seed of all random streams of the cell.
    pub seed: u64,
    /// True if the cell ran alone on its machine; only then its times are valid.
    pub exclusive: bool,
    /// Stage whose learnt state the cell started from.
    #[serde(default)]
    pub from: Option<String>,
}

impl CellInfo {
    /// The cell's value on an axis.
    pub fn coordinate(&self, axis: &str) -> Option<&str> {
        let found = self.coordinates.iter().find(|(name, _)| name == axis)?;
        Some(&found.1)
    }
}

/// A special token that a target emitted in streamed answers of an arm that learns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecialInfo {
    /// The arm.
    pub arm: String,
    /// The token's name.
    pub token: String,
    /// Number of times that it was emitted.
    pub emitted: u64,
    /// Number of times that it was learnt; less than emitted if the drafter has no counterpart of
    /// it.
    pub learnt: u64,
}

/// The values by which a sweep made an arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweptFrom {
    /// The swept arm.
    pub arm: String,
    /// All swept keys with their values.
    pub values: Vec<(String, String)>,
}

/// An arm (method). The order of arms is that of rows in tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmInfo {
    /// The name in the rows' `arm` column, shown in tables.
    pub name: String,
    /// True for plain decoding, the reference of every speedup.
    pub is_plain: bool,
    /// Draft length k; 0 for plain decoding.
    pub k: u32,
    /// Sampling temperature.
    pub temperature: f64,
    /// The sweep that made the arm, if any.
    #[serde(default)]
    pub swept_from: Option<SweptFrom>,
}

/// Seconds of one decoding step of drafter and target, for the modelled speedup.
#[derive(Debug, Clone, PartialEq)]
pub struct StepLatency {
    /// Drafter, one step.
    pub draft_s: f64,
    /// Target, one step.
    pub target_s: f64,
    /// Source of the numbers.
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

    /// c, the drafter's step time over the target's.
    pub fn ratio(&self) -> f64 {
        self.draft_s / self.target_s
    }
}

/// Measured seconds of decoding steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// The drafter, one token.
    pub draft_s: f64,
    /// The target, one token.
    pub target_s: f64,
    /// The target, five tokens at once.
    pub verify_s: f64,
}

/// Cost padding of a target and its drafter: outputs do not change, steps take longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Padding {
    /// Number of inner columns added to every MLP of the target.
    #[serde(default)]
    pub width: usize,
    /// Number of inner columns added to every MLP of the drafter.
    #[serde(default)]
    pub draft_width: usize,
    /// Step times of both padded models, measured at the start of the cell.
    pub steps: StepTimes,
}

/// A recorded target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTarget {
    /// The recorded model, or `reference text, no model`.
    pub source: String,
}

/// A target that a worker of PyTorch decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchTarget {
    /// Class of the model in transformers.
    pub architecture: String,
    /// Number format of weights and computation.
    pub dtype: String,
    /// Device, such as `cuda:0`.
    pub device: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Version of torch.
    pub torch: String,
    /// Version of transformers.
    pub transformers: String,
}

/// Number of rows of each table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Rows of `rounds`.
    pub rounds: u64,
    /// Rows of `prompts`.
    pub prompts: u64,
    /// Rows of `updates`.
    pub updates: u64,
    /// Rows of `heads`.
    pub heads: u64,
}

/// The manifest of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Layout version, [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// Status of the cell.
    pub status: CellStatus,
    /// The error of a failed cell.
    #[serde(default)]
    pub error: Option<String>,
    /// The job.
    pub cell: CellInfo,
    /// The resolved configuration, which determines the cell's tokens.
    pub config: serde_json::Value,
    /// SHA-256 of the configuration's JSON with sorted keys and no spaces, as the program that
    /// planned the job wrote it, hexadecimal.
    pub config_sha256: String,
    /// Arms in table order.
    pub arms: Vec<ArmInfo>,
    /// Cost padding by target.
    #[serde(default)]
    pub padding: BTreeMap<String, Padding>,
    /// Recorded targets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recorded: BTreeMap<String, RecordedTarget>,
    /// Targets that a worker decoded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub torch: BTreeMap<String, TorchTarget>,
    /// The program.
    pub build: BuildInfo,
    /// The machine.
    pub machine: MachineInfo,
    /// Special tokens that targets emitted on the stream, by learning arm.
    #[serde(default)]
    pub specials: Vec<SpecialInfo>,
    /// Input files.
    #[serde(default)]
    pub inputs: Vec<InputFile>,
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// End, RFC 3339 in UTC.
    #[serde(default)]
    pub finished: Option<String>,
    /// Wall time from start to end.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Number of rows of each table, once complete.
    #[serde(default)]
    pub rows: Option<RowCounts>,
}

impl Manifest {
    /// The manifest of a cell that starts now. The caller sets arms, padding and inputs.
    pub fn new(
        cell: CellInfo,
        config: serde_json::Value,
        config_sha256: String,
        build: BuildInfo,
    ) -> Self {
        Self {
            schema: MANIFEST_SCHEMA,
            status: CellStatus::Running,
            error: None,
            cell,
            config,
            config_sha256,
            arms: Vec::new(),
            padding: BTreeMap::new(),
            recorded: BTreeMap::new(),
            torch: BTreeMap::new(),
            specials: Vec::new(),
            build,
            machine: MachineInfo::collect(),
            inputs: Vec::new(),
            started: utc_now(),
            finished: None,
            seconds: None,
            rows: None,
        }
    }

    /// True if an arm's draft tokens were copied from earlier text, without a drafter.
    pub fn looks_up(&self, arm: &str) -> bool {
        let own = self.arm(arm);
        own.is_some_and(|own| own["decode"]["draft"] == "prompt-lookup")
    }

    /// True if an arm's drafter learns from the stream.
    pub fn learns(&self, arm: &str) -> bool {
        let objective = self.arm(arm).map(|own| &own["learn"]["objective"]);
        objective.is_some_and(|objective| objective.is_string() && objective != "none")
    }

    /// Cost of decoding a token plainly, at `decode.costs`, in steps of the target; 1 without such
    /// costs.
    pub fn plain_step(&self, arm: &str) -> f64 {
        let verify = self.arm(arm).map(|own| &own["decode"]["costs"]["verify"]);
        verify.and_then(|costs| costs[0].as_f64()).unwrap_or(1.0)
    }

    /// The configuration of an arm.
    fn arm(&self, name: &str) -> Option<&serde_json::Value> {
        let arms = self.config["arms"].as_array()?;
        arms.iter().find(|own| own["name"] == name)
    }

    /// Reads the manifest of a cell's folder. In manifests of published runs arms are stored as
    /// differences from the first one; these are resolved.
    ///
    /// # Errors
    /// [`ResultsError::NotACell`], [`ResultsError::Malformed`] with the line,
    /// [`ResultsError::Schema`].
    pub fn read(dir: &Path) -> Result<Self, ResultsError> {
        let path = dir.join(MANIFEST_FILE);
        let text = read_if_there(&path)?.ok_or_else(|| ResultsError::NotACell {
            path: dir.to_path_buf(),
        })?;
        let mut manifest: Self = record::parse(&path, &text, MANIFEST_SCHEMA)?;
        common::put_back(&mut manifest.config);
        Ok(manifest)
    }

    /// Writes the manifest into a cell's folder, replacing the one there.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn write(&self, dir: &Path) -> Result<(), ResultsError> {
        let path = dir.join(MANIFEST_FILE);
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| ResultsError::io("write", &path, error.into()))?;
        text.push('\n');
        write_atomically(&path, text.as_bytes())
    }
}

/// True if a folder has all results of its cell. A folder without a manifest is not complete; a
/// damaged manifest is an error.
///
/// # Errors
/// As [`Manifest::read`], except for a missing manifest.
pub fn is_complete(dir: &Path) -> Result<bool, ResultsError> {
    match Manifest::read(dir) {
        Ok(manifest) => Ok(manifest.status == CellStatus::Complete),
        Err(ResultsError::NotACell { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_says_who_drafts_and_learns() {
        let arm = |name: &str, draft: &str, objective: &str| {
            serde_json::json!({
                "name": name,
                "decode": { "draft": draft, "costs": { "verify": [2.0, 3.0] } },
                "learn": { "objective": objective },
            })
        };
        let arms = [
            arm("lookup", "prompt-lookup", "none"),
            arm("L_DM", "model", "hybrid"),
        ];
        let config = serde_json::json!({ "arms": arms });
        let build = BuildInfo::unknown("0.1.0");
        let manifest = Manifest::new(CellInfo::default(), config, String::new(), build);
        assert!(manifest.looks_up("lookup"));
        assert!(!manifest.looks_up("L_DM") && !manifest.looks_up("other"));
        assert!(manifest.learns("L_DM"));
        assert!(!manifest.learns("lookup") && !manifest.learns("other"));
        assert_eq!(
            (manifest.plain_step("L_DM"), manifest.plain_step("other")),
            (2.0, 1.0)
        );
    }
}
