//! The streams of a stage, ordered for figures.

use crate::estimates::distinct;
use crate::root::{Cell, Stage};
use crate::spec::{Experiment, shows};
use results::{Answer, ArmInfo, HeadRow, Metric, Split, Sums, UpdateRow};
use std::collections::{BTreeMap, BTreeSet};

/// The paper's method.
pub const METHOD: &str = "L_DM+L_N-gram";

/// A part of a stream: one task of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Number in this set of streams.
    pub index: u32,
    /// Words that distinguish it from the others.
    pub title: String,
    /// Number of prompts in its stream with one seed.
    pub prompts: usize,
    pub task: String,
    pub target: String,
    /// Other axes of its cells, except the seed: `axis=value`.
    pub other: Vec<String>,
}

/// Task, target and other axes, by which prompts of two stages are alike.
pub type Place = (String, String, Vec<String>);

impl Segment {
    pub fn place(&self) -> Place {
        (self.task.clone(), self.target.clone(), self.other.clone())
    }
}

/// The streams of one figure: the cells of a grid beside each other, or the segments of a drift one
/// after the other.
#[derive(Debug)]
pub struct Streams<'a> {
    /// Coordinates that distinguish the figure, if there are several.
    pub of: String,
    /// True if drafter and cache are kept through the segments.
    pub continual: bool,
    /// True if times are valid.
    pub timed: bool,
    /// True if its steps cost less than those of held-out prompts, whose models were padded.
    pub cheaper: bool,
    /// Its cells' threads, formats and models.
    pub decoding: Vec<serde_json::Value>,
    /// Arms with answers, in table order.
    pub arms: Vec<ArmInfo>,
    pub segments: Vec<Segment>,
    pub seeds: Vec<u64>,
    /// The first arm of the page's first ratio.
    about: Option<&'a str>,
    /// Arms whose drafters learn.
    learning: BTreeSet<String>,
    /// Answers by segment, arm and seed.
    answers: BTreeMap<u32, BTreeMap<&'a str, BTreeMap<u64, Vec<&'a Answer>>>>,
    updates: Vec<(u32, &'a UpdateRow)>,
    heads: Vec<(u32, &'a HeadRow)>,
}

/// Cells that share every coordinate but the seed, with these coordinates.
type Cells<'a> = (Vec<(String, String)>, Vec<&'a Cell>);

impl<'a> Streams<'a> {
    /// The sets of streams of a stage: one for all cells of a single segment, one for every drift.
    pub fn of_stage(experiment: &'a Experiment, stage: &'a Stage) -> Vec<Self> {
        let mut groups: Vec<Cells> = Vec::new();
        for cell in &stage.cells {
            let mut at = cell.manifest.cell.coordinates.clone();
            at.retain(|(axis, _)| axis != "seed");
            match groups.iter_mut().find(|(own, _)| *own == at) {
                Some((_, cells)) => cells.push(cell),
                None => groups.push((at, vec![cell])),
            }
        }
        let is_drift = |cells: &[&Cell]| {
            let answers = cells.iter().flat_map(|cell| &cell.answers);
            let trained = answers.filter(|answer| answer.row.split == Split::Train);
            trained
                .map(|answer| answer.row.segment)
                .collect::<BTreeSet<_>>()
                .len()
                > 1
        };
        let (drifts, single): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(_, cells)| is_drift(cells));
        let mut sets = Vec::new();
        if !single.is_empty() {
            sets.push(Self::new(experiment, stage, String::new(), false, &single));
        }
        for group in drifts {
            let of: Vec<String> = group.0.iter().map(|(a, v)| format!("{a}={v}")).collect();
            sets.push(Self::new(experiment, stage, of.join(", "), true, &[group]));
        }
        sets.retain(|set| !set.segments.is_empty());
        sets
    }

    fn new(
        experiment: &'a Experiment,
        stage: &Stage,
        of: String,
        continual: bool,
        groups: &[Cells<'a>],
    ) -> Self {
        let mut set = Self {
            of,
            continual,
            timed: stage.spec.exclusive,
            cheaper: false,
            decoding: distinct(
                groups
                    .iter()
                    .flat_map(|(_, cells)| cells)
                    .map(|c| c.decoding()),
            ),
            arms: Vec::new(),
            segments: Vec::new(),
            seeds: Vec::new(),
            about: experiment
                .report
                .ratios
                .first()
                .map(|(above, _)| above.as_str()),
            learning: BTreeSet::new(),
            answers: BTreeMap::new(),
            updates: Vec::new(),
            heads: Vec::new(),
        };
        let mut seeds = BTreeSet::new();
        for (at, cells) in groups {
            // Segment numbers of the rows, renumbered over all groups.
            let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
            for cell in cells {
                let seed = cell.manifest.cell.seed;
                let padded = &cell.manifest.config["models"]["pad_stream"];
                set.cheaper |= !cell.manifest.padding.is_empty() && *padded != true;
                let arms = experiment.arms.iter().map(|arm| &arm.name);
                let learning = arms.filter(|arm| cell.manifest.learns(arm));
                set.learning.extend(learning.cloned());
                for answer in cell.answers.iter().filter(|a| a.row.split == Split::Train) {
                    let next = set.segments.len() as u32;
                    let index = *numbers.entry(answer.row.segment).or_insert(next);
                    if index == next {
                        set.segments.push(Segment {
                            index,
                            title: String::new(),
                            prompts: 0,
                            task: answer.row.task.clone(),
                            target: answer.row.target.clone(),
                            other: other_axes(at),
                        });
                    }
                    seeds.insert(seed);
                    let streams = set.answers.entry(index).or_default();
                    let streams = streams.entry(answer.row.arm.as_str()).or_default();
                    streams.entry(seed).or_default().push(answer);
                }
                let number = |segment: &u32| numbers.get(segment).copied();
                let updates = cell.updates.iter();
                set.updates
                    .extend(updates.filter_map(|row| Some((number(&row.segment)?, row))));
                let heads = cell.heads.iter();
                set.heads
                    .extend(heads.filter_map(|row| Some((number(&row.segment)?, row))));
            }
        }
        let by_arm = set.answers.values_mut().flat_map(BTreeMap::values_mut);
        for streams in by_arm.flat_map(BTreeMap::values_mut) {
            streams.sort_by_key(|answer| answer.row.prompt_index);
        }
        let answered = |name: &str| set.answers.values().any(|arms| arms.contains_key(name));
        let arms = experiment.arms.iter();
        set.arms = arms.filter(|arm| answered(&arm.name)).cloned().collect();
        set.arms.retain(|arm| shows(experiment, &arm.name));
        set.seeds = seeds.into_iter().collect();
        for segment in &mut set.segments {
            let by_arm = set.answers.get(&segment.index).into_iter();
            let by_seed = by_arm.flat_map(BTreeMap::values);
            let answers = by_seed.flat_map(BTreeMap::values).flatten();
            let prompts = answers.map(|answer| answer.row.prompt_index);
            segment.prompts = prompts.collect::<BTreeSet<_>>().len();
        }
        give_titles(&mut set.segments);
        set
    }

    /// Answers of an arm in a segment by seed, each in stream order.
    pub fn streams(&self, arm: &str, segment: u32) -> Vec<&[&'a Answer]> {
        let by_seed = self.by_seed(arm, segment);
        let by_seed = by_seed.into_iter().flat_map(BTreeMap::values);
        by_seed.map(Vec::as_slice).collect()
    }

    /// Answers of an arm in a segment with one seed.
    pub fn stream(&self, arm: &str, segment: u32, seed: u64) -> &[&'a Answer] {
        let by_seed = self.by_seed(arm, segment);
        by_seed
            .and_then(|by_seed| by_seed.get(&seed))
            .map_or(&[], Vec::as_slice)
    }

    pub fn answers<'b>(&'b self, arm: &'b str) -> impl Iterator<Item = &'a Answer> + 'b {
        let segments = self.segments.iter();
        segments.flat_map(move |segment| {
            let seeds = self.streams(arm, segment.index);
            seeds.into_iter().flatten().copied().collect::<Vec<_>>()
        })
    }

    /// Answers of an arm in a segment, each seed's in stream order; `None` if there are none.
    pub fn by_seed(&self, arm: &str, segment: u32) -> Option<&BTreeMap<u64, Vec<&'a Answer>>> {
        self.answers.get(&segment)?.get(arm)
    }

    /// Names of the arms that draft, in table order.
    pub fn drafting(&self) -> impl Iterator<Item = &str> {
        let drafting = self.arms.iter().filter(|arm| !arm.is_plain);
        drafting.map(|arm| arm.name.as_str())
    }

    pub fn updates<'b>(
        &'b self,
        arm: &'b str,
        segment: u32,
    ) -> impl Iterator<Item = &'a UpdateRow> + 'b {
        let own = move |(at, row): &&(u32, &'a UpdateRow)| *at == segment && row.arm == arm;
        self.updates.iter().filter(own).map(|(_, row)| *row)
    }

    /// Training steps of an arm's acceptance head in a segment.
    pub fn heads<'b>(
        &'b self,
        arm: &'b str,
        segment: u32,
    ) -> impl Iterator<Item = &'a HeadRow> + 'b {
        let own = move |(at, row): &&(u32, &'a HeadRow)| *at == segment && row.arm == arm;
        self.heads.iter().filter(own).map(|(_, row)| *row)
    }

    pub fn learnt(&self, arm: &str) -> bool {
        self.learning.contains(arm) || self.updates.iter().any(|(_, row)| row.arm == arm)
    }

    pub fn looks_up(&self, arm: &str) -> bool {
        self.answers(arm).any(|answer| answer.looks_up)
    }

    /// The arm that a learning drafter is compared with: the first one whose drafter does not
    /// learn.
    pub fn untrained(&self) -> Option<&str> {
        let mut arms = self.drafting();
        arms.find(|arm| !self.learnt(arm) && !self.looks_up(arm))
    }

    /// Arms that learn, in table order.
    pub fn learning(&self) -> Vec<&str> {
        self.drafting().filter(|arm| self.learnt(arm)).collect()
    }

    /// The arm that a figure names, if it names one: the first one that the page divides by another
    /// (`ratios`), else the paper's method, else the last learning arm, else the last drafting arm.
    pub fn method(&self) -> Option<&str> {
        let learning = self.learning();
        let about = self.drafting().find(|arm| self.about == Some(arm));
        let own = learning.iter().find(|arm| **arm == METHOD);
        let own = own.or(learning.last()).copied();
        about.or(own).or(self.drafting().last())
    }

    /// Number of prompts of the stream before a segment; 0 if segments stand beside each other.
    pub fn before(&self, segment: u32) -> usize {
        if !self.continual {
            return 0;
        }
        let earlier = self.segments.iter().filter(|other| other.index < segment);
        earlier.map(|segment| segment.prompts).sum()
    }
}

/// Coordinates other than task, target and seed: `axis=value`.
pub fn other_axes(at: &[(String, String)]) -> Vec<String> {
    let known = |axis: &str| matches!(axis, "task" | "target" | "seed");
    let others = at.iter().filter(|(axis, _)| !known(axis));
    others.map(|(a, v)| format!("{a}={v}")).collect()
}

/// Gives segments titles that distinguish them.
fn give_titles(segments: &mut [Segment]) {
    let distinct = |value: fn(&Segment) -> &str| {
        let values: BTreeSet<&str> = segments.iter().map(value).collect();
        values.len() > 1
    };
    let (tasks, targets) = (distinct(|s| &s.task), distinct(|s| &s.target));
    let others: BTreeSet<&Vec<String>> = segments.iter().map(|s| &s.other).collect();
    let others = others.len() > 1;
    for segment in segments {
        let mut words: Vec<&str> = Vec::new();
        words.extend(targets.then_some(segment.target.as_str()));
        words.extend((tasks || !targets).then_some(segment.task.as_str()));
        if others {
            words.extend(segment.other.iter().map(String::as_str));
        }
        segment.title = words.join(", ");
    }
}

/// A metric over some answers; `None` if it is not defined.
pub fn over<'a>(metric: Metric, answers: impl IntoIterator<Item = &'a Answer>) -> Option<f64> {
    let answers = answers.into_iter();
    Sums::total(answers.filter_map(|answer| metric.sums(answer)))
}
