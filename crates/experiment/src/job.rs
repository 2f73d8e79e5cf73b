//! A job: a cell of a stage.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arm::ArmConfig;
use crate::canonical;
use crate::check;
use crate::count::Count;
use crate::error::ExperimentError;
use crate::file::OnStream;
use crate::settings::{DecodeConfig, ModelsConfig, Wrong, is_default, wrong};

/// A job of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its configuration.
    pub config: JobConfig,
    /// [`JobConfig::hash`] of it, by which a folder is recognised as made from it.
    pub hash: String,
    /// Axes and values, in the order of the grid, as written.
    pub coordinates: Vec<(String, String)>,
}

/// All settings that determine a job's tokens; stored in its manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobConfig {
    /// Name of the experiment.
    pub experiment: String,
    /// The stage.
    pub stage: String,
    /// The cell, `target=L,task=gsm8k,seed=1`; also the name of its folder.
    pub cell: String,
    /// Root of every random stream.
    pub seed: u64,
    /// The drafter and the targets in use. Paths stay as written.
    pub models: ModelsConfig,
    /// Segments of the stream, in order; drafters keep their state through all of them.
    pub segments: Vec<Segment>,
    /// The arms that answer streamed prompts.
    pub on_stream: OnStream,
    /// The arms, in table order, at least one.
    pub arms: Vec<ArmConfig>,
    /// True if it runs alone on its machine, because its times count.
    pub exclusive: bool,
    /// Number of prompts between two checkpoints; 0 for none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub checkpoint: usize,
    /// True if the arms' learnt state is written, because a stage starts from it.
    pub save: bool,
    /// The stage that it starts from, in the same cell.
    pub from: Option<String>,
    /// Hash of the configuration of the job that it starts from; a state learnt with another
    /// configuration does not count.
    #[serde(default)]
    pub from_sha256: Option<String>,
}

/// A segment of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Task: a folder of the data directory, or a mini stream.
    pub task: String,
    /// Name of the target.
    pub target: String,
    /// Number of streamed prompts.
    pub train: Count,
    /// Number of held-out prompts.
    pub test: Count,
    /// Number of streamed prompts of the task in earlier segments that the stage leaves out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skip: usize,
}

impl fmt::Display for JobConfig {
    /// Name of the job: the cell of a stage.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stage, self.cell)
    }
}

impl JobConfig {
    /// The decoding settings that all arms share: sampling, `max_new_tokens`, `ignore_eos`,
    /// `weights`, `kv` and `threads`; the other keys are those of the first arm.
    pub fn decode(&self) -> DecodeConfig {
        let first = self.arms.first();
        first.map(|arm| arm.decode.clone()).unwrap_or_default()
    }

    /// True if an arm answers streamed prompts.
    pub fn streams_to(&self, arm: &ArmConfig) -> bool {
        arm.learnt_by.is_none() && (self.on_stream == OnStream::All || arm.changes())
    }

    /// The form that a manifest stores.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Reads the form that a manifest stores, and checks it like the jobs of a file. Keys that this
    /// program no longer has are accepted with the value that is a constant now.
    ///
    /// # Errors
    /// [`ExperimentError::Job`] with the key.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, ExperimentError> {
        let mut json = json.clone();
        for arm in json
            .get_mut("arms")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            gone_keys(arm)?;
        }
        let job: Self = serde_path_to_error::deserialize(&json)
            .map_err(|e| ExperimentError::Job(format!("{}: {}", e.path(), e.inner())))?;
        match job.wrongs().into_iter().next() {
            None => Ok(job),
            Some((key, message)) => Err(ExperimentError::Job(format!("{key}: {message}"))),
        }
    }

    /// Faults of a stored job, by key.
    fn wrongs(&self) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        for (key, empty) in [
            ("arms", self.arms.is_empty()),
            ("segments", self.segments.is_empty()),
        ] {
            if empty {
                wrongs.push(wrong(key, "at least one is needed"));
            }
        }
        let mut names = BTreeSet::new();
        for own in &self.arms {
            if !names.insert(&own.name) {
                wrongs.push(wrong(
                    "arms",
                    format!("two arms have the name `{}`", own.name),
                ));
            }
            wrongs.extend(check::arm(own, &self.arms));
        }
        let shared = check::shared(&self.arms).into_iter();
        wrongs.extend(shared.map(|(_, fault)| fault));
        wrongs.extend(check::models(&self.models));
        for own in &self.arms {
            wrongs.extend(check::drafter_learns(own, &self.models));
        }
        if !self.exclusive {
            for own in &self.arms {
                wrongs.extend(check::untimed(own, &self.stage));
            }
        }
        for (name, _) in check::recorded(&self.models) {
            wrongs.extend(self.arms.iter().flat_map(|own| check::replayed(own, name)));
        }
        for segment in &self.segments {
            if !self.models.targets.contains_key(&segment.target) {
                let message = format!("target `{}` is not in models.targets", segment.target);
                wrongs.push(wrong("segments", message));
            }
        }
        wrongs
    }

    /// SHA-256 of its canonical JSON, hexadecimal.
    pub fn hash(&self) -> String {
        canonical::hash(self.to_json())
    }
}

/// Keys that are constants of this program, with their values as JSON.
const GONE: [(&str, &str, &str); 15] = [
    ("decode", "entropy_scale", "0.2"),
    ("decode", "explore", "8"),
    ("decode", "hold_ngrams", "true"),
    ("learn", "beta", "0.5"),
    ("learn", "columns", "\"shared\""),
    ("learn", "max_grad_norm", "1.0"),
    ("learn", "normaliser", "\"tokens\""),
    ("learn", "weight_decay", "0.01"),
    ("head", "batch", "256"),
    ("head", "buffer", "8192"),
    ("head", "hidden", "32"),
    ("head", "lr", "0.003"),
    ("head", "reject_weight", "1.0"),
    ("head", "unjudged", "false"),
    ("head", "weight_decay", "0.01"),
];

/// Removes keys that became constants if they have the constant's value. A key with another value
/// stays, and is refused as unknown.
fn gone_keys(arm: &mut Value) -> Result<(), ExperimentError> {
    if arm["learn"].is_object() && arm["learn"].get("ends").is_none() {
        let message = "learn.ends: missing, so an older program with another loss wrote this";
        return Err(ExperimentError::Job(message.to_owned()));
    }
    for (section, key, constant) in GONE {
        let Some(keys) = arm.get_mut(section).and_then(Value::as_object_mut) else {
            continue;
        };
        let found = keys.get(key).map(Value::to_string);
        if found.is_some_and(|found| found == constant) {
            keys.remove(key);
        }
    }
    Ok(())
}
