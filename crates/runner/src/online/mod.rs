//! The online loop: `stream -> prompt -> draft -> translate -> verify -> commit -> learn -> record`.
//!
//! Every prompt is answered once by each arm, the arms taking turns to go first, so that whatever
//! disturbs the machine disturbs all of them. Plain decoding of the same prompt in the same turn is
//! the reference of every measured speedup.

mod batch;
mod learner;
mod lesson;
mod method;
mod record;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use lm::Checkpoint;
use spec_decode::{
    NoSink, Pair, PlainConfig, PlainGeneration, Prompt as PromptIds, SessionConfig, StreamName,
    VerifyMode, decode_plain,
};
use vocab_align::{DraftId, TargetId};

pub use learner::{Learner, Update};
pub use lesson::{Chunk, Lesson, Recorder, Taught, TeacherRow};
pub use method::{Method, Task};

use crate::arm::Arm;
use crate::config::{OnStream, RunConfig, SegmentConfig, StreamMode};
use crate::models::{Engine, ModelFolder, align};
use crate::results::{InputFile, Manifest, Padding, Phase, RunStatus, RunWriter};
use crate::step::{Stepper, measure};
use crate::streams::{DataSource, Prompt, Split, StreamSpec};
use record::Recording;

/// The phases of a segment, in order.
const PHASES: [Phase; 2] = [Phase::Train, Phase::Test];

/// Context at which the step times of padded targets are measured, in tokens.
const STEP_CONTEXT: usize = 128;

/// A target with everything that belongs to it.
struct Target {
    folder: ModelFolder<TargetId>,
    pair: Pair,
    engine: Engine,
    /// The padded model, on which held-out prompts are timed. Its tokens are the same, so the
    /// stream is learnt from on the cheaper one.
    padded: Option<Padded>,
}

struct Padded {
    checkpoint: Checkpoint,
    engine: Engine,
}

/// A prompt ready for both models.
struct Ready {
    record: Prompt,
    draft: Vec<DraftId>,
    target: Vec<TargetId>,
}

/// Runs a configuration into a results folder.
///
/// # Errors
/// Unusable models or data, failing rounds; what was recorded before stays in the folder, whose
/// manifest then says `failed`.
pub fn run(
    config: &RunConfig,
    data: &DataSource,
    out: &Path,
    argv: Vec<String>,
    progress: bool,
) -> Result<()> {
    let mut runner = Runner::load(config, data)?;
    let mut manifest = runner.manifest(argv)?;
    manifest.inputs.extend(runner.inputs()?);
    let mut writer = RunWriter::create(out, &manifest)?;
    let outcome = runner.run(&mut writer, progress);
    let status = if outcome.is_ok() {
        RunStatus::Complete
    } else {
        RunStatus::Failed
    };
    let finished = writer.finish(status);
    outcome?;
    finished?;
    Ok(())
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
        let drafter = ModelFolder::load(&config.models.drafter)?;
        let mut targets = BTreeMap::new();
        for (name, target) in &config.models.targets {
            let folder = ModelFolder::load(&target.path)?;
            let pair = align(&drafter, &folder);
            let engine = folder.engine(&config.decode)?;
            let padded = if target.pad_layers > 0 {
                let padded = folder.padded(target.pad_layers);
                Some(Padded {
                    engine: padded.engine(&config.decode)?,
                    checkpoint: padded.checkpoint,
                })
            } else {
                None
            };
            targets.insert(
                name.clone(),
                Target {
                    folder,
                    pair,
                    engine,
                    padded,
                },
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
                let layers = self.config.models.targets[name].pad_layers;
                let padding = self.padding(&padded.checkpoint, layers)?;
                manifest.padding.insert(name.clone(), padding);
            }
        }
        Ok(manifest)
    }

    /// What the padding of a target makes of the step times.
    fn padding(&self, padded: &Checkpoint, layers: usize) -> Result<Padding> {
        let stepper = |checkpoint| Stepper::new(checkpoint, &self.config.decode, STEP_CONTEXT);
        let mut drafter = stepper(&self.drafter.checkpoint)?;
        let steps = measure(&mut drafter, &mut stepper(padded)?)?;
        Ok(Padding { layers, steps })
    }

    fn run(&mut self, writer: &mut RunWriter, progress: bool) -> Result<()> {
        for &seed in &self.config.seeds {
            let mut methods = self.fresh_methods(seed)?;
            for (index, segment) in self.config.segments.iter().enumerate() {
                if index > 0 && self.config.streams == StreamMode::Independent {
                    methods = self.fresh_methods(seed)?;
                }
                self.segment(index, segment, seed, &mut methods, writer, progress)
                    .with_context(|| {
                        format!("seed {seed}, segment {index} (`{}`)", segment.task)
                    })?;
            }
        }
        Ok(())
    }

    fn fresh_methods(&self, seed: u64) -> Result<Vec<Option<Method>>> {
        self.arms
            .iter()
            .map(|arm| Method::new(arm, &self.drafter, self.config, seed))
            .collect()
    }

    fn segment(
        &mut self,
        index: usize,
        segment: &SegmentConfig,
        seed: u64,
        methods: &mut [Option<Method>],
        writer: &mut RunWriter,
        progress: bool,
    ) -> Result<()> {
        let name = self.config.target_of(segment)?.to_owned();
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
            for (position, prompt) in prompts.into_iter().enumerate() {
                let ready = ready(prompt, &self.drafter, &target.folder)?;
                let place = Place {
                    position,
                    segment: index,
                    seed,
                };
                one_prompt(
                    self.config,
                    &ready,
                    place,
                    target,
                    methods,
                    &mut recording,
                    &bar,
                )
                .with_context(|| format!("prompt `{}`", ready.record.id))?;
                bar.inc(1);
            }
            for method in methods.iter_mut().flatten() {
                if let Some(update) = method.flush()? {
                    recording.update(&method.arm.name, &update)?;
                }
            }
            bar.finish_and_clear();
        }
        Ok(())
    }
}

/// Where a prompt stands in the run.
#[derive(Clone, Copy)]
struct Place {
    position: usize,
    segment: usize,
    seed: u64,
}

/// Fits the prompt to the target's budget and spells it for both models; they read the same text.
fn ready(
    prompt: Prompt,
    drafter: &ModelFolder<DraftId>,
    target: &ModelFolder<TargetId>,
) -> Result<Ready> {
    let fitted = target.template.fit(&prompt.prompt, |rendered| {
        target.encode(rendered).map(|ids| ids.len())
    })?;
    let draft = drafter.encode(&drafter.template.render(&fitted.rendered.body)?)?;
    let target = target.encode(&fitted.rendered)?;
    Ok(Ready {
        record: prompt,
        draft,
        target,
    })
}

fn one_prompt(
    config: &RunConfig,
    ready: &Ready,
    place: Place,
    target: &mut Target,
    methods: &mut [Option<Method>],
    recording: &mut Recording<'_>,
    bar: &ProgressBar,
) -> Result<()> {
    let stop = target.folder.stop_tokens();
    let session = SessionConfig {
        sampling: config.decode.sampling()?,
        stop: stop.clone(),
        ..SessionConfig::new(VerifyMode::Paper, config.decode.max_new_tokens)
    };
    // Segment and phase are part of the name: no two prompts of a run share a random stream.
    let held_out = u64::from(recording.phase == Phase::Test);
    let name = StreamName::new(
        place.seed,
        ((place.segment as u64) << 33) + (held_out << 32) + place.position as u64,
    );
    let plain_config = PlainConfig {
        sampling: session.sampling,
        max_new_tokens: config.decode.max_new_tokens,
        stop,
    };
    let mut plain: Option<PlainGeneration> = None;
    let mut answers = Vec::new();
    let engine = match &mut target.padded {
        Some(padded) if recording.phase == Phase::Test => &mut padded.engine,
        _ => &mut target.engine,
    };
    let turns = methods.len();
    let all = recording.phase == Phase::Test || config.on_stream == OnStream::All;
    for turn in 0..turns {
        let i = (turn + place.position) % turns;
        if !(all || recording.arms[i].changes()) {
            continue;
        }
        match &mut methods[i] {
            None => {
                plain = Some(decode_plain(
                    engine,
                    &ready.target,
                    &plain_config,
                    name,
                    &mut NoSink,
                )?)
            }
            Some(method) => {
                let task = Task {
                    pair: &target.pair,
                    session: &session,
                    prompt: PromptIds {
                        draft: &ready.draft,
                        target: &ready.target,
                    },
                    name,
                    phase: recording.phase,
                };
                let (answer, lesson) = method.answer(engine, &task)?;
                let began = std::time::Instant::now();
                let update = match lesson {
                    Some(lesson) => method.learn(lesson)?,
                    None => None,
                };
                answers.push((i, answer, update, began.elapsed().as_secs_f64()));
            }
        }
    }
    answers.sort_by_key(|(i, ..)| *i);
    if let Some(plain) = &plain {
        recording.plain(ready, place.position, plain)?;
    }
    for (i, answer, update, learn_seconds) in &answers {
        let Some(method) = &methods[*i] else { continue };
        let cache = method.cache(&target.pair);
        recording.answer(
            &method.arm.name,
            ready,
            place.position,
            answer,
            plain.as_ref(),
            cache,
            *learn_seconds,
        )?;
        if let Some(update) = update {
            recording.update(&method.arm.name, update)?;
        }
    }
    if let Some((_, answer, ..)) = answers.last() {
        let speed = answer.tokens.len() as f64 / answer.totals.timings.total().max(1e-9);
        bar.set_message(format!(
            "{speed:.0} tokens/s, acceptance {:.2}",
            answer.totals.acceptance_rate()
        ));
    }
    Ok(())
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
