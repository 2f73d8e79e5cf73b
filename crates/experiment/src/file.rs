//! The sections of an experiment file, as written.

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
    /// Files read first, relative to this one. Later ones win over earlier ones, keys of this file
    /// over all. Tables merge key by key, other values replace.
    #[serde(default)]
    include: Vec<String>,
}

/// A stage.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StageFile {
    /// How many prompts of each split its jobs answer: numbers or `"all"`; none of a split that is
    /// left out. `[[when]]` and `[[segment]]` may replace the numbers of splits named here.
    pub(crate) prompts: Option<PromptCounts>,
    /// Which `[[segment]]` tables its jobs answer, counted from 1; left out, all of them. They keep
    /// their prompts: what a segment that is left out would have streamed, no other one streams.
    pub(crate) segments: Option<Vec<usize>>,
    /// Which arms answer streamed prompts; all of them answer held-out ones.
    pub(crate) on_stream: OnStream,
    /// The stage whose jobs wrote what this one starts from, cell by cell: drafters, n-grams, heads.
    pub(crate) from: Option<String>,
    /// Whether its jobs run alone on their machine, because their times are read.
    pub(crate) exclusive: bool,
    /// Prompts after which a job writes everything learnt so far and goes on from what it wrote, so
    /// that a job that was killed goes on there too; 0 for never. What is not written begins anew each
    /// time, in every run alike: examples to replay, measured costs.
    pub(crate) checkpoint: usize,
    /// Keys of `decode`, `learn`, `cache`, `head` and `models` that differ in this stage.
    pub(crate) set: Patch,
}

/// Which arms answer streamed prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnStream {
    /// Only arms that change while they stream, because they learn or cache: what the others would
    /// do there, they do on held-out prompts.
    #[default]
    Learning,
    /// Every arm, plain decoding included: speedups are measured on the stream too.
    All,
}

/// An arm.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ArmFile {
    /// What it starts from, by name (see the presets below); left out, the defaults of the file.
    pub(crate) preset: Option<String>,
    /// Label in tables and figures; left out, the preset's name.
    pub(crate) name: Option<String>,
    /// Keys of `decode`, `learn`, `cache` and `head` that it changes.
    pub(crate) set: Patch,
    /// Held-out prompts are answered with the drafter, the n-grams and the acceptance head of the
    /// arm of this name; the stream is left to that one.
    pub(crate) learnt_by: Option<String>,
    /// This arm once for every combination of these values, instead of those of `[sweep]`; `{}` for
    /// this arm once.
    pub(crate) sweep: Option<BTreeMap<String, Vec<serde_json::Value>>>,
}

/// A patch of some cells. Every other key is an axis of the grid, or `stage`, with a value or a list
/// of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct WhenFile {
    /// Keys of `decode`, `learn`, `cache`, `head` and `models` that differ in these cells.
    #[serde(default)]
    pub(crate) set: Patch,
    /// Numbers that replace those of the stage, for splits that the stage names.
    #[serde(default)]
    pub(crate) prompts: PromptCounts,
}

/// One stretch of a drift stream.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentFile {
    /// Task: a folder of the data directory, or a mini stream.
    pub(crate) task: String,
    /// Target by name; left out, that of the grid or the only one.
    pub(crate) target: Option<String>,
    /// Numbers that replace those of the stage, for splits that the stage names.
    #[serde(default)]
    pub(crate) prompts: PromptCounts,
}

/// The axes of the grid. Any other dotted key of `decode`, `learn`, `cache`, `head` or `models` is
/// an axis too, and so is any word that some `[[when]]` names.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(
    dead_code,
    reason = "documentation: axes are read by hand, in the order of the file"
)]
pub(crate) struct GridFile {
    /// Root seeds, whole numbers from 0; every one is a full repetition.
    pub(crate) seed: Vec<u64>,
    /// Targets, names of `[models.targets]`; may be left out where there is one, or where every
    /// `[[segment]]` names its own.
    pub(crate) target: Option<Vec<String>>,
    /// Tasks: folders of the data directory, or mini streams; left out where there are `[[segment]]`
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
