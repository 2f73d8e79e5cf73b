//! The online loop: `stream -> prompt -> draft -> translate -> verify -> commit -> learn -> record`.
//!
//! Every prompt is answered once by each arm, the arms taking turns to go first, so that whatever
//! disturbs the machine disturbs all of them. Plain decoding of the same prompt in the same turn is
//! the reference of every measured speedup.

mod adaptive;
mod batch;
mod learner;
mod lesson;
mod method;
mod prompt;
mod record;
mod rehearsal;
mod replay;
mod state;
mod student;
mod target;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use vocab_align::DraftId;

pub use adaptive::HeadUpdate;
pub use learner::{Learner, Learnt};
pub use lesson::{Chunk, Lesson, Recorder, Taught, TeacherRow};
pub use method::{Method, Task};
pub use rehearsal::{Rehearsal, Rehearsed};
pub use student::Update;

use crate::arm::Arm;
use crate::config::{RunConfig, SegmentConfig, StreamMode};
use crate::models::ModelFolder;
use crate::results::{InputFile, Manifest, Phase, RunStatus, RunWriter};
use crate::streams::{DataSource, Prompt, Split, StreamSpec};
use prompt::{Place, Player, Ready, Table};
use record::Recording;
use target::Target;

/// Folder of what arms learnt, inside a results folder.
const STATE: &str = "state";

/// The phases of a segment, in order.
const PHASES: [Phase; 2] = [Phase::Train, Phase::Test];

/// Runs a configuration into a results folder.
///
/// A run that was cut short can go on: what depends on nothing before it, a segment or, where drafters
/// live through all of them, a seed, is done again or left alone as a whole, so that tokens, losses and
/// tables are those of an uninterrupted run.
///
/// # Errors
/// Unusable models or data, failing rounds; what was recorded before stays in the folder, whose
/// manifest then says `failed`.
pub fn run(config: &RunConfig, data: &DataSource, out: &Path, options: RunOptions) -> Result<()> {
    let mut runner = Runner::load(config, data)?;
    let mut manifest = runner.manifest(options.argv)?;
    manifest.inputs.extend(runner.inputs()?);
    let mut writer = if options.resume {
        RunWriter::resume(out, &manifest)?
    } else {
        RunWriter::create(out, &manifest)?
    };
    if let Err(error) = runner.run(&mut writer, out, options.progress) {
        // The first error is the one to tell.
        let _ = writer.fail();
        return Err(error);
    }
    writer.finish(RunStatus::Complete)?;
    Ok(())
}

/// How to run, apart from what.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// The command line, for the manifest.
    pub argv: Vec<String>,
    /// Whether to show progress on stderr.
    pub progress: bool,
    /// Whether to go on with the unfinished run in the results folder.
    pub resume: bool,
}

struct Runner<'a> {
    config: &'a RunConfig,
    data: &'a DataSource,
    arms: Vec<Arm>,
    drafter: ModelFolder<DraftId>,
    targets: BTreeMap<String, Target>,
}

impl<'a> Runner<'a> {
    fn load(config: &'a RunConfig, data: &'a DataSource) -> Result<Self> {
        let drafter = ModelFolder::load(&config.models.drafter.path)?;
        let mut targets = BTreeMap::new();
        for (name, target) in &config.models.targets {
            targets.insert(
                name.clone(),
                Target::load(target, &drafter, &config.decode)?,
            );
        }
        Ok(Self {
            config,
            data,
            arms: config.arms()?,
            drafter,
            targets,
        })
    }

    /// The prompts of one phase of a segment; empty where the configuration wants none.
    fn stream(&self, index: usize, phase: Phase, seed: u64) -> Result<Vec<Prompt>> {
        let segment = &self.config.segments[index];
        let (split, limit) = match phase {
            Phase::Train => (Split::Train, segment.train),
            Phase::Test => (Split::Test, segment.test),
        };
        if limit == Some(0) {
            return Ok(Vec::new());
        }
        let task = segment.task.clone();
        let shuffle = phase == Phase::Train;
        let skip = if shuffle && self.config.streams == StreamMode::Continual {
            let earlier = self.config.segments[..index].iter();
            let same = earlier.filter(|before| before.task == task);
            same.map(|before| before.train.unwrap_or(usize::MAX))
                .fold(0, usize::saturating_add)
        } else {
            0
        };
        let spec = StreamSpec {
            task,
            split,
            limit,
            skip,
            shuffle,
        };
        Ok(spec.load(self.data, seed)?)
    }

    /// Reads every stream once, so that bad data is told before anything is written, and says what
    /// was read.
    fn inputs(&self) -> Result<Vec<InputFile>> {
        let seed = self.config.seeds.first().copied().unwrap_or_default();
        let mut inputs = Vec::new();
        for (index, segment) in self.config.segments.iter().enumerate() {
            for phase in PHASES {
                let prompts = self.stream(index, phase, seed)?;
                let rows = Some(prompts.len() as u64);
                let name = format!("{} {} (seed {seed})", segment.task, phase.as_str());
                let content = serde_json::to_vec(&prompts)?;
                inputs.push(InputFile::embedded("stream", &name, &content, rows));
            }
        }
        if let Some(root) = &self.config.state.load {
            for path in state::files(root).context("state.load")? {
                inputs.push(InputFile::hash("state", &path, None)?);
            }
        }
        Ok(inputs)
    }

    fn manifest(&self, argv: Vec<String>) -> Result<Manifest> {
        let targets = self
            .targets
            .iter()
            .map(|(name, target)| (name.as_str(), target.folder.path.as_path()));
        let mut manifest =
            record::manifest(self.config, &self.arms, &self.drafter.path, targets, argv)?;
        for (name, target) in &self.targets {
            if let Some(padded) = &target.padded {
                let padding = padded.measure(
                    &self.drafter,
                    self.config.models.drafter.idle,
                    &self.config.decode,
                )?;
                manifest.padding.insert(name.clone(), padding);
            }
        }
        Ok(manifest)
    }

    fn run(&mut self, writer: &mut RunWriter, out: &Path, progress: bool) -> Result<()> {
        // What starts from fresh drafters and caches can be left out when an interrupted run goes on.
        let stretch = match self.config.streams {
            StreamMode::Independent => 1,
            StreamMode::Continual => self.config.segments.len(),
        };
        let segments: Vec<_> = self.config.segments.iter().enumerate().collect();
        let seeds = self.config.seeds.iter();
        let stretches =
            seeds.flat_map(|seed| segments.chunks(stretch).map(move |part| (*seed, part)));
        for (seed, part) in stretches.skip(writer.done()) {
            let own = state_segment(self.config, part)?;
            let mut players = self.fresh_players(seed, own)?;
            for (index, segment) in part {
                self.segment(*index, segment, seed, &mut players, writer, progress)
                    .with_context(|| {
                        format!("seed {seed}, segment {index} (`{}`)", segment.task)
                    })?;
            }
            if self.config.state.save {
                self.save(&out.join(STATE), seed, own, &mut players)?;
            }
            writer.checkpoint()?;
        }
        Ok(())
    }

    /// Writes what the arms learnt.
    fn save(
        &self,
        root: &Path,
        seed: u64,
        segment: Option<(&str, &str)>,
        players: &mut [Player],
    ) -> Result<()> {
        for (arm, player) in self.arms.iter().zip(players) {
            if let Player::Method(method) = player
                && arm.changes()
            {
                let folder = state::arm_folder(root, seed, segment, &arm.name);
                method.save(&folder, &self.drafter)?;
            }
        }
        Ok(())
    }

    fn fresh_players(&self, seed: u64, segment: Option<(&str, &str)>) -> Result<Vec<Player>> {
        let player = |arm: &Arm| {
            let lender = arm.learnt_by.as_ref();
            let lender = lender.and_then(|name| self.arms.iter().position(|a| a.name == *name));
            Ok(match (arm.verify, lender) {
                (None, _) => Player::Plain,
                (_, Some(lender)) => Player::Borrower(lender),
                _ => {
                    let name = Some(&arm.name);
                    let all = self.arms.iter();
                    let borrowers: Vec<&Arm> =
                        all.filter(|a| a.learnt_by.as_ref() == name).collect();
                    let mut method =
                        Method::new(arm, &borrowers, &self.drafter, self.config, seed)?;
                    if let Some(root) = self.config.state.load.as_ref().filter(|_| arm.changes()) {
                        let folder = state::arm_folder(root, seed, segment, &arm.name);
                        method
                            .load(&folder, &self.drafter)
                            .with_context(|| format!("state.load: arm `{}`", arm.name))?;
                    }
                    Player::Method(Box::new(method))
                }
            })
        };
        self.arms.iter().map(player).collect()
    }

    fn segment(
        &mut self,
        index: usize,
        segment: &SegmentConfig,
        seed: u64,
        players: &mut [Player],
        writer: &mut RunWriter,
        progress: bool,
    ) -> Result<()> {
        let name = self.config.target_of(segment)?.to_owned();
        for player in players.iter_mut() {
            if let Player::Method(method) = player {
                method.turn_to(&name, &segment.task)?;
            }
        }
        for phase in PHASES {
            let prompts = self.stream(index, phase, seed)?;
            if prompts.is_empty() {
                continue;
            }
            let bar = progress_bar(prompts.len(), &segment.task, phase, seed, progress);
            let Some(target) = self.targets.get_mut(&name) else {
                continue;
            };
            let mut recording = Recording {
                writer,
                arms: &self.arms,
                seed,
                segment: index,
                phase,
                task: &segment.task,
                target: &name,
                vocabulary: target.folder.vocabulary.clone(),
            };
            let mut table = Table {
                config: self.config,
                arms: &self.arms,
                players: &mut *players,
                target,
            };
            for (position, prompt) in prompts.into_iter().enumerate() {
                let ready = Ready::new(prompt, &self.drafter, &table.target.folder)?;
                let place = Place {
                    position,
                    segment: index,
                    seed,
                    gamma: segment.gamma,
                };
                table
                    .answer(&ready, place, &mut recording, &bar)
                    .with_context(|| format!("prompt `{}`", ready.record.id))?;
                bar.inc(1);
            }
            for (arm, player) in self.arms.iter().zip(players.iter_mut()) {
                if let Player::Method(method) = player {
                    for update in method.flush()? {
                        recording.update(&arm.name, &update)?;
                    }
                }
                if let Player::Method(method) = player
                    && phase == Phase::Train
                    && let Some(step) = method.train_head(false, true)?
                {
                    recording.head(&arm.name, &step)?;
                }
            }
            bar.finish_and_clear();
        }
        Ok(())
    }
}

/// Task and target of a segment that starts from fresh drafters, under which its state is kept.
fn state_segment<'a>(
    config: &'a RunConfig,
    part: &[(usize, &'a SegmentConfig)],
) -> Result<Option<(&'a str, &'a str)>> {
    match (config.streams, part) {
        (StreamMode::Independent, [(_, segment)]) => {
            Ok(Some((&segment.task, config.target_of(segment)?)))
        }
        _ => Ok(None),
    }
}

fn progress_bar(prompts: usize, task: &str, phase: Phase, seed: u64, visible: bool) -> ProgressBar {
    if !visible {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix:28} {bar:30} {pos}/{len}  {msg}  ETA {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let prefix = format!("{task} {} (seed {seed})", phase.as_str());
    ProgressBar::new(prompts as u64)
        .with_style(style)
        .with_prefix(prefix)
}
