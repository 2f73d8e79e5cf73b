//! Expansion of stages, cells and arms, with checks of each.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::arm::ArmConfig;
use crate::check;
use crate::count::{Count, PromptCounts};
use crate::file::SegmentFile;
use crate::grid::{Cell, Grid, SECTIONS};
use crate::job::{Job, JobConfig};
use crate::lineup::ArmDef;
use crate::load::{Faults, Node, Place, read};
use crate::plan::LearnPlaces;
use crate::segments;
use crate::settings::{CacheOptions, DecodeConfig, HeadOptions, LearnConfig, ModelsConfig, Wrong};
use crate::stage::StageDef;
use crate::when::When;

/// The four sections of an arm.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sections {
    decode: DecodeConfig,
    learn: LearnConfig,
    cache: CacheOptions,
    head: HeadOptions,
}

/// Selects the number of one split.
type OfSplit = fn(&PromptCounts) -> Option<Count>;

/// The parsed parts of an experiment, which are expanded into jobs.
pub(crate) struct Parts<'a> {
    /// The merged files, which know the places of all keys.
    pub(crate) root: &'a Node,
    pub(crate) name: String,
    pub(crate) models: ModelsConfig,
    /// `decode`, `learn`, `cache`, `head` and `models` as written.
    pub(crate) defaults: Node,
    pub(crate) grid: Grid,
    pub(crate) whens: Vec<When>,
    pub(crate) segments: Vec<SegmentFile>,
    pub(crate) stages: Vec<StageDef>,
    pub(crate) arms: Vec<ArmDef>,
}

/// An arm with the tree that it was read from, which knows the places of its keys.
struct Resolved {
    config: ArmConfig,
    node: Node,
    place: Option<Place>,
}

impl Parts<'_> {
    /// All jobs, by stage, then in the order of the grid, and the places of their arms' `learn`;
    /// `None` after a fault.
    pub(crate) fn jobs(&self, faults: &mut Faults) -> Option<(Vec<Job>, LearnPlaces)> {
        let cells = &self.grid.cells;
        if !segments::check(&self.segments, cells, &self.models, self.root, faults) {
            return None;
        }
        self.check_counts(faults);
        let mut jobs: Vec<Job> = Vec::new();
        let mut learn = LearnPlaces::new();
        let mut known: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut whole = true;
        for stage in &self.stages {
            for cell in cells {
                let Some((mut job, arms)) = self.job(stage, cell, faults) else {
                    whole = false;
                    continue;
                };
                let from = stage.file.from.as_deref();
                let before = from.and_then(|from| known.get(&(from, &*cell.name)));
                let before = before.and_then(|at| jobs.get(*at));
                if let Some(before) = before {
                    hand_over(&arms, before, faults);
                    job.config.from_sha256 = Some(before.hash.clone());
                    job.hash = job.config.hash();
                }
                known.insert((&*stage.name, &*cell.name), jobs.len());
                let places = arms.iter().map(Resolved::learn_places).collect();
                learn.insert(job.hash.clone(), places);
                jobs.push(job);
            }
        }
        whole.then_some((jobs, learn))
    }

    fn job(
        &self,
        stage: &StageDef,
        cell: &Cell,
        faults: &mut Faults,
    ) -> Option<(Job, Vec<Resolved>)> {
        let whens = self.whens.iter();
        let whens: Vec<&When> = whens
            .filter(|when| when.is_for(&stage.name, cell))
            .collect();
        let patch = cell_patch(stage, &whens, cell);
        let counts: Vec<_> = whens.iter().map(|when| when.prompts).collect();
        let segments = segments::of_cell(&self.segments, cell, &self.models, &stage.file, &counts);
        if segments
            .iter()
            .all(|own| own.train.is_none() && own.test.is_none())
        {
            let message = format!("no prompts are left for the cell {}", cell.name);
            let key = format!("stage.{}.prompts", stage.name);
            faults.add(stage.place.as_ref(), &key, message);
            return None;
        }
        let mut models = self.models_of(&patch, faults)?;
        models
            .targets
            .retain(|name, _| segments.iter().any(|segment| segment.target == *name));
        if let Some((key, message)) = check::models(&models) {
            faults.add(self.root.place_at(&key), &key, message);
            return None;
        }
        let arms = self.arms_of(&patch, faults)?;
        for arm in &arms {
            let recorded = check::recorded(&models);
            let replayed = recorded.flat_map(|(target, _)| check::replayed(&arm.config, target));
            for wrong in replayed.chain(check::drafter_learns(&arm.config, &models)) {
                arm.tell(wrong, faults);
            }
        }
        if !stage.file.exclusive {
            for arm in &arms {
                if let Some(wrong) = check::untimed(&arm.config, &stage.name) {
                    arm.advise(wrong, check::UNTIMED_HINT, faults);
                }
            }
        }
        let seed = cell.label("seed").and_then(|seed| seed.parse().ok());
        let config = JobConfig {
            experiment: self.name.clone(),
            stage: stage.name.clone(),
            cell: cell.name.clone(),
            seed: seed?,
            models,
            segments,
            on_stream: stage.file.on_stream,
            arms: arms.iter().map(|arm| arm.config.clone()).collect(),
            exclusive: stage.file.exclusive,
            checkpoint: stage.file.checkpoint,
            save: self.is_read(&stage.name),
            from: stage.file.from.clone(),
            from_sha256: None,
        };
        let coordinates = cell.coordinates.iter();
        let job = Job {
            hash: config.hash(),
            config,
            coordinates: coordinates
                .map(|own| (own.axis.clone(), own.label.clone()))
                .collect(),
        };
        Some((job, arms))
    }

    /// True if another stage starts from this one.
    fn is_read(&self, stage: &str) -> bool {
        let mut stages = self.stages.iter();
        stages.any(|other| other.file.from.as_deref() == Some(stage))
    }

    /// Checks for stages without prompts, and for numbers that no stage uses.
    fn check_counts(&self, faults: &mut Faults) {
        let Parts { stages, whens, .. } = self;
        let drift = !self.segments.is_empty();
        for stage in stages {
            segments::check_selection(stage, self.segments.len(), faults);
            let none = stage.file.prompts.is_none_or(|counts| counts.is_none());
            if none && (stage.file.prompts.is_some() || !drift) {
                let key = format!("stage.{}.prompts", stage.name);
                let hint = "write prompts = { train = 1000, test = \"all\" }";
                let message = "the stage answers no prompts";
                faults.advise(stage.place.as_ref(), &key, message, hint);
            }
        }
        let asked = |split: OfSplit, when: Option<&When>| {
            let named = |stage: &&StageDef| when.is_none_or(|when| when.is_for_stage(&stage.name));
            let of_stage = |stage: &StageDef| stage.file.prompts.as_ref().and_then(split);
            let mut counts = stages.iter().filter(named).filter_map(of_stage);
            counts.any(|count| !count.is_none())
        };
        let named = |count: Option<Count>| count.is_some_and(|count| !count.is_none());
        // A stage without numbers takes those of the segments.
        let replaced = stages.iter().all(|stage| stage.file.prompts.is_some());
        let splits: [(&str, OfSplit); 2] = [
            ("train", |counts| counts.train),
            ("test", |counts| counts.test),
        ];
        let mut refuse = |place: Option<&Place>, table: &str, split: &str| {
            let key = format!("{table}.prompts.{split}");
            let message = format!("no stage has prompts.{split}, whose number this replaces");
            faults.add(place, &key, message);
        };
        for (split, of) in splits {
            for (i, when) in whens.iter().enumerate() {
                if named(of(&when.prompts)) && !asked(of, Some(when)) {
                    refuse(when.place.as_ref(), &format!("when.{i}"), split);
                }
            }
            for (i, segment) in self.segments.iter().enumerate() {
                if named(of(&segment.prompts)) && replaced && !asked(of, None) {
                    let table = format!("segment.{i}");
                    refuse(self.root.place_at(&table), &table, split);
                }
            }
        }
    }

    fn models_of(&self, patch: &Node, faults: &mut Faults) -> Option<ModelsConfig> {
        let Some(own) = patch.at("models") else {
            return Some(self.models.clone());
        };
        let mut node = self.defaults.at("models")?.clone();
        node.merge(own.clone());
        read(&node, "models", faults)
    }

    /// The arms of a cell, checked together.
    fn arms_of(&self, patch: &Node, faults: &mut Faults) -> Option<Vec<Resolved>> {
        let mut arms = Vec::new();
        for def in &self.arms {
            arms.push(resolve(&self.defaults, def, patch, faults)?);
        }
        let configs: Vec<ArmConfig> = arms.iter().map(|arm| arm.config.clone()).collect();
        for arm in &arms {
            for wrong in check::arm(&arm.config, &configs) {
                arm.tell(wrong, faults);
            }
        }
        for (i, wrong) in check::shared(&configs) {
            if let Some(arm) = arms.get(i) {
                arm.tell(wrong, faults);
            }
        }
        Some(arms)
    }
}

/// Merges the defaults, the preset, the patches of stage, `[[when]]` and grid, and the arm's own
/// keys.
fn resolve(defaults: &Node, def: &ArmDef, patch: &Node, faults: &mut Faults) -> Option<Resolved> {
    let mut node = defaults.clone();
    node.merge(def.preset.clone());
    node.merge(patch.clone());
    node.merge(def.set.clone());
    node.remove(&["models"]);
    let Sections {
        decode,
        learn,
        cache,
        head,
    } = read(&node, "", faults)?;
    Some(Resolved {
        config: ArmConfig {
            name: def.name.clone(),
            decode,
            learn,
            cache,
            head,
            learnt_by: def.learnt_by.clone(),
            swept_from: def.swept_from.clone(),
        },
        node,
        place: def.place.clone(),
    })
}

/// The patch of a cell of a stage, for all arms.
fn cell_patch(stage: &StageDef, whens: &[&When], cell: &Cell) -> Node {
    let mut patch = Node::table(None);
    patch.merge(stage.set.clone());
    for when in whens {
        patch.merge(when.set.clone());
    }
    for coordinate in &cell.coordinates {
        let section = coordinate.axis.split_once('.').map(|(section, _)| section);
        if section.is_some_and(|section| SECTIONS.contains(&section)) {
            patch.put(&coordinate.axis, coordinate.value.clone());
        }
    }
    patch
}

fn hand_over(arms: &[Resolved], before: &Job, faults: &mut Faults) {
    for arm in arms {
        let mut earlier = before.config.arms.iter();
        if let Some(earlier) = earlier.find(|own| own.name == arm.config.name) {
            for wrong in check::handed_over(&arm.config, earlier, &before.config.stage) {
                arm.tell(wrong, faults);
            }
        }
    }
}

impl Resolved {
    /// Reports a fault at the line of the key, or of the arm if the key is in no file.
    fn tell(&self, (key, message): Wrong, faults: &mut Faults) {
        faults.add(self.place_of(&key), &key, message);
    }

    /// Like [`tell`](Self::tell), with advice.
    fn advise(&self, (key, message): Wrong, hint: &str, faults: &mut Faults) {
        faults.advise(self.place_of(&key), &key, message, hint);
    }

    fn place_of(&self, key: &str) -> Option<&Place> {
        self.node.place_at(key).or(self.place.as_ref())
    }

    /// The places of its keys of `learn`, without those of presets.
    fn learn_places(&self) -> BTreeMap<String, String> {
        let learn = self.node.at("learn");
        learn.map(Node::places).unwrap_or_default()
    }
}
