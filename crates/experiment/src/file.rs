//! The sections of an experiment file.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::count::PromptCounts;

/// A patch: dotted keys and their values.
pub(crate) type Patch = BTreeMap<String, serde_json::Value>;

/// The first keys of a file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(
    dead_code,
    reason = "`include` is consumed while loading; its documentation stands here"
)]
pub(crate) struct Heading {
    /// Short name: the folder below `runs/`; letters, digits, `.`, `_`, `+` and `-`.
    pub(crate) name: String,
    /// Title of the page; left out, the name.
    pub(crate) title: Option<String>,
    /// Files read before this one, relative to it. Later files take precedence over earlier ones,
    /// and keys of this file over all. Tables merge key by key, other values replace.
    #[serde(default)]
    include: Vec<String>,
}

/// A stage.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StageFile {
    /// Number of prompts of each split for its jobs: numbers or `"all"`; a split that is left out
    /// has none. `[[when]]` and `[[segment]]` may replace the numbers of splits named here.
    pub(crate) prompts: Option<PromptCounts>,
    /// The `[[segment]]` tables for its jobs, counted from 1; left out, all of them. Segments keep
    /// their prompts: those of a segment that is left out are not streamed by another one.
    pub(crate) segments: Option<Vec<usize>>,
    /// The arms that answer streamed prompts; held-out prompts are answered by all arms.
    pub(crate) on_stream: OnStream,
    /// The stage whose learnt state its jobs start from, cell by cell: drafters, n-grams, heads.
    pub(crate) from: Option<String>,
    /// True if its jobs run alone on their machine, because their times count.
    pub(crate) exclusive: bool,
    /// Number of prompts between checkpoints, at which a job writes its learnt state and continues
    /// from the written files, so that a killed job can resume there; 0 for no checkpoints. State
    /// that is not written starts anew at each checkpoint, in interrupted and uninterrupted runs
    /// alike: examples to replay.
    pub(crate) checkpoint: usize,
    /// Keys of `decode`, `learn`, `cache`, `head` and `models` that differ in this stage.
    pub(crate) set: Patch,
}

/// The arms that answer streamed prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnStream {
    /// Only arms that change on the stream, because they learn or cache. The others would only
    /// repeat there what they do on held-out prompts.
    #[default]
    Learning,
    /// All arms, plain decoding included: speedups are measured on the stream too.
    All,
}

/// An arm.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ArmFile {
    /// The preset that it starts from, by name (see the presets below); left out, the defaults of
    /// the file.
    pub(crate) preset: Option<String>,
    /// Label in tables and figures; left out, the preset's name.
    pub(crate) name: Option<String>,
    /// Keys of `decode`, `learn`, `cache` and `head` that it changes.
    pub(crate) set: Patch,
    /// Name of the arm whose drafter, n-grams and acceptance head this arm uses for held-out
    /// prompts. This arm does not answer streamed prompts.
    pub(crate) learnt_by: Option<String>,
    /// Values of a sweep for this arm, in place of those of `[sweep]`: the arm is repeated for
    /// every combination; `{}` for a single arm.
    pub(crate) sweep: Option<BTreeMap<String, Vec<serde_json::Value>>>,
}

/// A patch of some cells. Every other key is an axis of the grid, or `stage`, with a value or a
/// list of values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct WhenFile {
    /// Keys of `decode`, `learn`, `cache`, `head` and `models` that differ in these cells.
    #[serde(default)]
    pub(crate) set: Patch,
    /// Numbers that replace those of the stage, for splits that the stage names.
    #[serde(default)]
    pub(crate) prompts: PromptCounts,
}

/// A segment of a drift stream.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentFile {
    /// Task: a folder of the data directory, or a mini stream.
    pub(crate) task: String,
    /// Name of the target; left out, that of the grid or the only one.
    pub(crate) target: Option<String>,
    /// Numbers that replace those of the stage, for splits that the stage names.
    #[serde(default)]
    pub(crate) prompts: PromptCounts,
}

/// The axes of the grid. Any other dotted key of `decode`, `learn`, `cache`, `head` or `models` is
/// an axis too, and so is any word that a `[[when]]` names.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(
    dead_code,
    reason = "documentation: axes are read by hand, in the order of the file"
)]
pub(crate) struct GridFile {
    /// Root seeds, integers from 0; each one is a full repetition.
    pub(crate) seed: Vec<u64>,
    /// Targets, names of `[models.targets]`; may be left out if there is only one, or if every
    /// `[[segment]]` names its own.
    pub(crate) target: Option<Vec<String>>,
    /// Tasks: folders of the data directory, or mini streams; left out if there are `[[segment]]`
    /// tables.
    pub(crate) task: Option<Vec<String>>,
}

impl Default for GridFile {
    fn default() -> Self {
        Self {
            seed: vec![1],
            target: None,
            task: None,
        }
    }
}
