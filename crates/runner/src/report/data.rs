//! A run's rows, ordered and joined for reporting.

use super::ReportError;
use crate::results::stats::Timing;
use crate::results::{
    HeadRow, Manifest, Phase, PromptRow, RunReader, RunStatus, StreamKind, UpdateRow,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// One arm of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// Name in the rows and tables.
    pub name: String,
    /// Draft length k, when the manifest knows the arm.
    pub draft_length: Option<u32>,
    /// Sampling temperature, when the manifest knows the arm.
    pub temperature: Option<f64>,
    /// Plain decoding, the reference of every speedup.
    pub plain: bool,
}

/// One segment of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Number in the rows.
    pub index: u32,
    /// What distinguishes it: the task, the target, or both.
    pub title: String,
    /// Prompts in its stream (not counting repetitions with other seeds).
    pub prompts: usize,
}

/// (segment, phase, prompt index) of a prompt: the same prompt in every arm and seed.
type PromptKey = (u32, Phase, u32);

/// Everything the report reads, ordered.
#[derive(Debug)]
pub struct RunData {
    /// The manifest.
    pub manifest: Manifest,
    /// Arms in table order.
    pub arms: Vec<Arm>,
    /// Segments with a train stream, in order.
    pub segments: Vec<Segment>,
    /// Seeds found in the rows.
    pub seeds: Vec<u64>,
    /// All prompts.
    pub prompts: Vec<PromptRow>,
    /// All updates.
    pub updates: Vec<UpdateRow>,
    /// All steps of acceptance heads.
    pub heads: Vec<HeadRow>,
    /// What the reader of the tables has to be told.
    pub notes: Vec<String>,
    plain: HashMap<(PromptKey, Option<u64>), Timing>,
}

impl RunData {
    /// Reads a results folder.
    ///
    /// # Errors
    /// A damaged folder, or [`ReportError::Empty`] when it holds no prompt.
    pub fn read(dir: &Path) -> Result<Self, ReportError> {
        let reader = RunReader::open(dir)?;
        let manifest = reader.manifest().clone();
        let prompts = reader.prompts()?;
        let updates = reader.updates()?;
        if prompts.rows.is_empty() {
            return Err(ReportError::Empty {
                dir: dir.to_path_buf(),
                status: manifest.status.as_str(),
            });
        }
        let mut notes = Vec::new();
        if manifest.status != RunStatus::Complete {
            notes.push(format!(
                "This run is not complete (status `{}`): the numbers cover only what was recorded.",
                manifest.status.as_str()
            ));
        }
        notes.extend(prompts.warning);
        notes.extend(updates.warning);
        let heads = reader.heads()?;
        notes.extend(heads.warning);
        let data = Self::new(manifest, prompts.rows, updates.rows, notes);
        Ok(Self {
            heads: heads.rows,
            ..data
        })
    }

    /// Orders rows that were already read.
    pub fn new(
        manifest: Manifest,
        prompts: Vec<PromptRow>,
        updates: Vec<UpdateRow>,
        notes: Vec<String>,
    ) -> Self {
        let arms = arms(&manifest, &prompts);
        let segments = segments(&prompts);
        let seeds: BTreeSet<u64> = prompts.iter().map(|row| row.seed).collect();
        let mut plain = HashMap::new();
        for row in &prompts {
            if arms.iter().any(|arm| arm.plain && arm.name == row.arm) {
                let timing = Timing {
                    baseline_tokens: f64::from(row.new_tokens),
                    baseline_seconds: row.seconds,
                    ..Timing::default()
                };
                plain.insert((key(row), Some(row.seed)), timing);
                plain.entry((key(row), None)).or_insert(timing);
            }
        }
        Self {
            manifest,
            arms,
            segments,
            seeds: seeds.into_iter().collect(),
            prompts,
            updates,
            heads: Vec::new(),
            notes,
            plain,
        }
    }

    /// Whether drafter and cache live through several segments, so that there is drift to show.
    pub fn has_drift(&self) -> bool {
        self.manifest.streams == StreamKind::Continual && self.segments.len() > 1
    }

    /// Tokens and seconds of a prompt and of its plain decoding: the row's own baseline, else the plain arm's row of
    /// the same prompt (same seed first). `None` when plain decoding of the prompt was not timed.
    pub fn timing(&self, row: &PromptRow) -> Option<Timing> {
        let plain = self.arms.iter().any(|arm| arm.plain && arm.name == row.arm);
        let (baseline_tokens, baseline_seconds) = if plain {
            (f64::from(row.new_tokens), row.seconds)
        } else if row.baseline_tokens > 0 && row.baseline_s.is_finite() {
            (f64::from(row.baseline_tokens), row.baseline_s)
        } else {
            let found = self
                .plain
                .get(&(key(row), Some(row.seed)))
                .or_else(|| self.plain.get(&(key(row), None)))?;
            (found.baseline_tokens, found.baseline_seconds)
        };
        Some(Timing {
            tokens: f64::from(row.new_tokens),
            seconds: row.seconds,
            baseline_tokens,
            baseline_seconds,
        })
    }

    /// Rows of one arm, segment and phase by seed, each in stream order.
    pub fn streams(&self, arm: &str, segment: u32, phase: Phase) -> Vec<Vec<&PromptRow>> {
        let mut by_seed: BTreeMap<u64, Vec<&PromptRow>> = BTreeMap::new();
        for row in &self.prompts {
            if row.arm == arm && row.segment == segment && row.phase == phase {
                by_seed.entry(row.seed).or_default().push(row);
            }
        }
        by_seed
            .into_values()
            .map(|mut rows| {
                rows.sort_by_key(|row| row.prompt_index);
                rows
            })
            .collect()
    }
}

/// Identity of a prompt across arms and seeds.
pub fn key(row: &PromptRow) -> PromptKey {
    (row.segment, row.phase, row.prompt_index)
}

/// The manifest's arms that have rows, in its order, then arms it does not know in order of appearance.
fn arms(manifest: &Manifest, prompts: &[PromptRow]) -> Vec<Arm> {
    let mut seen = Vec::new();
    for row in prompts {
        if !seen.contains(&row.arm.as_str()) {
            seen.push(row.arm.as_str());
        }
    }
    let known = |name: &str| manifest.arms.iter().position(|arm| arm.name == name);
    seen.sort_by_key(|name| known(name).unwrap_or(usize::MAX));
    seen.into_iter()
        .map(|name| {
            let info = known(name).map(|index| &manifest.arms[index]);
            Arm {
                name: name.to_owned(),
                draft_length: info.map(|arm| arm.draft_length),
                temperature: info.map(|arm| arm.temperature),
                plain: info.map_or(name == "autoregressive", |arm| arm.draft_length == 0),
            }
        })
        .collect()
}

/// What the rows say about a segment.
#[derive(Default)]
struct SegmentFacts<'a> {
    tasks: Vec<&'a str>,
    targets: Vec<&'a str>,
    prompts: BTreeSet<u32>,
}

/// Segments of the train stream, titled by what tells them apart: the task, the target, or both.
fn segments(prompts: &[PromptRow]) -> Vec<Segment> {
    let mut facts: BTreeMap<u32, SegmentFacts> = BTreeMap::new();
    for row in prompts.iter().filter(|row| row.phase == Phase::Train) {
        let segment = facts.entry(row.segment).or_default();
        if !segment.tasks.contains(&row.task.as_str()) {
            segment.tasks.push(&row.task);
        }
        if !segment.targets.contains(&row.target.as_str()) {
            segment.targets.push(&row.target);
        }
        segment.prompts.insert(row.prompt_index);
    }
    let tasks: BTreeSet<_> = facts.values().map(|f| f.tasks.clone()).collect();
    let targets: BTreeSet<_> = facts.values().map(|f| f.targets.clone()).collect();
    let title = |facts: &SegmentFacts| match (tasks.len() > 1, targets.len() > 1) {
        (_, false) => facts.tasks.join("+"),
        (false, true) => facts.targets.join("+"),
        (true, true) => format!("{}, {}", facts.tasks.join("+"), facts.targets.join("+")),
    };
    facts
        .iter()
        .map(|(&index, facts)| Segment {
            index,
            title: title(facts),
            prompts: facts.prompts.len(),
        })
        .collect()
}
