//! A job: a stream under one seed, answered by every arm.
//!
//! [`Job::stream`] is the main loop.

mod checkpoint;
mod going_on;
mod inputs;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use experiment::{JobConfig, Segment};
use models::{ModelFolder, Talk};
use results::{CellWriter, Manifest};
use spec_decode::{NoSink, PlainConfig, SessionConfig, VerifyMode, decode_plain};
use streams::{DataSource, Prompt, Split};
use vocab_align::DraftId;

use self::checkpoint::Spot;
use crate::arm::DraftingArm;
use crate::error::{OnlineError, Result, in_full};
use crate::ngrams::ngram_rows;
use crate::prompt::{EncodedPrompt, Position};
use crate::question::Question;
use crate::record::{Answer, Lessons, Made, Recording, ends};
use crate::target::Target;

/// The splits of a segment, in the order of answering.
const SPLITS: [Split; 2] = [Split::Train, Split::Test];

/// The environment of a job.
#[derive(Debug, Clone, Copy)]
pub struct JobSetting<'a> {
    /// Source of prompts.
    pub data: &'a DataSource,
    /// The job's folder.
    pub out: &'a Path,
    /// Folder for the arms' learnt state, if a later stage starts from it.
    pub state: &'a Path,
    /// Folder of the learnt state that the arms start from.
    pub start: Option<&'a Path>,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Number of prompts answered by all arms.
    pub done: usize,
    /// Number of all prompts.
    pub of: usize,
    /// Mean acceptance rate over the prompts so far; `None` without proposals. Each prompt counts
    /// with the last arm that answered it: arms with `learnt_by` answer held-out prompts only.
    pub acceptance: Option<f64>,
    /// Tokens per second of the last arm that answered the last prompt.
    pub tokens_per_s: f64,
}

/// Runs a job into its folder: rows, n-grams and, if a later stage starts from it, the learnt
/// state. `manifest` describes the job; inputs and measured step times are added here.
///
/// # Errors
/// Unusable models or data; failing rounds. Recorded rows stay in the folder, whose manifest then
/// says `failed`; the job is later started anew, or from its last checkpoint.
pub fn run_job(
    config: &JobConfig,
    manifest: Manifest,
    setting: JobSetting<'_>,
    watch: &mut dyn FnMut(Progress),
) -> Result<Manifest> {
    let mut job = Job::load(config, setting.data)?;
    let mut manifest = manifest;
    manifest.inputs.extend(job.inputs(setting.start)?);
    manifest.recorded.extend(job.recorded());
    manifest.torch.extend(job.workers());
    if config.exclusive {
        job.measure_steps(&mut manifest)?;
    }
    let (mut writer, arms, start) = match job.resume(setting.out, &manifest)? {
        Some(resumed) => resumed,
        None => {
            let writer = CellWriter::create(setting.out, &manifest)?;
            let mut arms = job.fresh_arms(setting.start)?;
            for arm in &mut arms {
                if let Arm::Own(state) = arm {
                    state.forget_costs();
                }
            }
            (writer, arms, Spot::default())
        }
    };
    match job.run(&mut writer, setting, arms, start, watch) {
        Ok(()) => {
            let manifest = writer.finish()?;
            checkpoint::remove(setting.out)?;
            Ok(manifest)
        }
        Err(error) => {
            // The first error is the one to report.
            let _ = writer.fail(&in_full(&error));
            Err(error)
        }
    }
}

/// One arm of a running job.
enum Arm {
    /// Plain decoding of the target.
    Plain,
    /// Drafts with a drafter, n-grams and a learner of its own.
    Own(Box<DraftingArm>),
    /// Answers held-out prompts with the state of the arm at this index.
    GuestOf(usize),
}

struct Job<'a> {
    config: &'a JobConfig,
    data: &'a DataSource,
    drafter: ModelFolder<DraftId>,
    targets: BTreeMap<String, Target>,
    tally: Tally,
}

/// Counts the progress of a job.
#[derive(Default)]
struct Tally {
    done: usize,
    of: usize,
    /// Sum and number of the last arm's acceptance rates.
    acceptance: (f64, u32),
}

impl Tally {
    /// Counts a prompt; `last` is the answer of the last arm that answered it.
    fn note(&mut self, last: Option<&Answer>) -> Progress {
        self.done += 1;
        if let Some(rate) = last.and_then(Answer::acceptance) {
            self.acceptance.0 += rate;
            self.acceptance.1 += 1;
        }
        let (sum, count) = self.acceptance;
        Progress {
            done: self.done,
            of: self.of,
            acceptance: (count > 0).then(|| sum / f64::from(count)),
            tokens_per_s: last.map_or(0.0, Answer::tokens_per_s),
        }
    }
}

impl<'a> Job<'a> {
    fn run(
        &mut self,
        writer: &mut CellWriter,
        setting: JobSetting<'_>,
        mut arms: Vec<Arm>,
        start: Spot,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let config = self.config;
        for (index, segment) in config.segments.iter().enumerate() {
            if index < start.segment {
                continue;
            }
            turn_to(&mut arms, segment)?;
            for (place, split) in SPLITS.into_iter().enumerate() {
                if start.is_behind(index, place) {
                    continue;
                }
                let spot = Spot {
                    segment: index,
                    split: place,
                    next: start.first(index, place),
                };
                let prompts = self.prompts(index, split)?;
                let place = format!("segment {index} (`{}`)", segment.task);
                self.stream(spot, prompts, &mut arms, writer, setting.out, watch)
                    .map_err(OnlineError::at(place))?;
            }
        }
        let Tally { done, of, .. } = self.tally;
        if done != of {
            return Err(OnlineError::Unanswered { done, of });
        }
        let names = config.arms.iter().map(|arm| arm.name.as_str());
        let owned = names.zip(&arms).filter_map(|(name, run)| match run {
            Arm::Own(state) => Some((name, &**state)),
            _ => None,
        });
        let owned: Vec<(&str, &DraftingArm)> = owned.collect();
        for (name, state) in &owned {
            let specials = state.specials().list(name);
            writer.manifest_mut().specials.extend(specials);
        }
        writer.write_ngrams(&ngram_rows(owned.into_iter(), self.pairs()))?;
        if config.save {
            self.save(setting.state, &mut arms)?;
        }
        Ok(())
    }

    /// The loop: `stream -> prompt -> draft -> translate -> verify -> commit -> learn -> record`,
    /// from a position to the end of its split.
    fn stream(
        &mut self,
        spot: Spot,
        prompts: Vec<Prompt>,
        arms: &mut Vec<Arm>,
        writer: &mut CellWriter,
        out: &Path,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let config = self.config;
        let (segment, split) = (spot.segment, SPLITS[spot.split]);
        let Some(named) = config.segments.get(segment) else {
            return Ok(());
        };
        let target = target_of(&mut self.targets, named)?;
        let vocabulary = target.text.vocabulary.clone();
        let mut recording = Recording {
            writer,
            config,
            segment,
            split,
            vocabulary: &vocabulary,
        };
        let count = prompts.len();
        let mut talk = Talk::default();
        for (index, prompt) in prompts.into_iter().enumerate().skip(spot.next) {
            let position = Position {
                seed: config.seed,
                segment,
                split,
                index,
            };
            let place = format!("prompt `{}`", prompt.id);
            let target = target_of(&mut self.targets, named)?;
            let before = target
                .said_before(&mut talk, &prompt.earlier, &config.decode())
                .map_err(OnlineError::at(&place))?;
            let prompt = EncodedPrompt::new(prompt, &before, &self.drafter, &target.text);
            let prompt = prompt.map_err(OnlineError::at(&place))?;
            let mut answers = Vec::new();
            for turn in 0..arms.len() {
                let arm = position.arm_of_turn(turn, arms.len());
                let answer = answer(config, arm, arms, target, &prompt, position)
                    .map_err(|error| target.explain(error));
                let place = format!("{place}, arm `{}`", config.arms[arm].name);
                answers.extend(answer.map_err(OnlineError::at(place))?);
            }
            answers.sort_by_key(|answer| answer.arm);
            let done = self.tally.done + 1;
            let due = config.checkpoint > 0 && done.is_multiple_of(config.checkpoint);
            let due = due && done < self.tally.of;
            let settled = match due || index + 1 == count {
                true => settle(split, arms, &mut answers)?,
                false => Vec::new(),
            };
            for answer in &answers {
                let cache = drafting(arms, answer.arm).and_then(|arm| arm.cache(&target.pair));
                recording.answer(&prompt, index, answer, cache)?;
            }
            for (arm, lessons) in &settled {
                recording.lessons(*arm, lessons)?;
            }
            watch(self.tally.note(answers.last()));
            if due {
                let next = Spot {
                    next: index + 1,
                    ..spot
                };
                self.checkpoint(next, arms, recording.writer, out)?;
                turn_to(arms, named)?;
            }
        }
        Ok(())
    }
}

/// The target of a segment.
fn target_of<'a>(
    targets: &'a mut BTreeMap<String, Target>,
    segment: &Segment,
) -> Result<&'a mut Target> {
    let found = targets.get_mut(&segment.target);
    found.ok_or_else(|| OnlineError::NoTarget(segment.target.clone()))
}

/// Switches the arms to the target and the task of a segment.
fn turn_to(arms: &mut [Arm], segment: &Segment) -> Result<()> {
    for arm in arms {
        if let Arm::Own(state) = arm {
            state.turn_to(&segment.target, &segment.task)?;
        }
    }
    Ok(())
}

/// Learns from the remaining examples of a split, or of its part so far; the result is by index of
/// the arm. The seconds are charged to the arm's last answer.
fn settle(split: Split, arms: &mut [Arm], answers: &mut [Answer]) -> Result<Vec<(usize, Lessons)>> {
    let mut all = Vec::new();
    for (arm, run) in arms.iter_mut().enumerate() {
        let Arm::Own(state) = run else { continue };
        let began = Instant::now();
        let updates = state.flush()?;
        let head = match split {
            Split::Train => state.train_head(false, true)?,
            Split::Test => None,
        };
        if let Some(answer) = answers.iter_mut().find(|answer| answer.arm == arm) {
            answer.charge(began.elapsed().as_secs_f64(), state.account());
        }
        all.push((arm, Lessons { updates, head }));
    }
    Ok(all)
}

/// One arm's answer to a prompt, and its learning from it; `None` if it does not answer this
/// prompt.
fn answer(
    config: &JobConfig,
    index: usize,
    arms: &mut [Arm],
    target: &mut Target,
    prompt: &EncodedPrompt,
    position: Position,
) -> Result<Option<Answer>> {
    let arm = &config.arms[index];
    let streamed = position.split == Split::Train;
    if streamed && !config.streams_to(arm) {
        return Ok(None);
    }
    let host = match arms[index] {
        Arm::GuestOf(host) => host,
        _ => index,
    };
    let padded = !streamed || config.models.pad_stream;
    let stop = target.text.stop_tokens_unless(arm.decode.ignore_eos);
    let sampling = arm.decode.sampling()?;
    let max_new_tokens = arm.decode.max_new_tokens;
    let name = position.stream_name();
    let Arm::Own(state) = &mut arms[host] else {
        let plain = PlainConfig {
            sampling,
            max_new_tokens,
            stop,
        };
        let engine = target.engine(padded);
        let done = decode_plain(engine, &prompt.target, &plain, name, &mut NoSink)?;
        let made = Made::Plain(done);
        return Ok(Some(Answer { arm: index, made }));
    };
    let session = SessionConfig {
        sampling,
        stop: stop.clone(),
        ..SessionConfig::new(VerifyMode::Paper, max_new_tokens)
    };
    let is_live = target.recorded.is_none();
    let pair = target.pair.clone();
    let question = Question {
        pair: &pair,
        session: &session,
        prompt: spec_decode::Prompt {
            draft: &prompt.draft,
            target: &prompt.target,
        },
        name,
        streamed,
        padded,
    };
    let engine = target.engine(padded);
    if is_live {
        state.measure_start(engine, padded)?;
    }
    let began = Instant::now();
    let answered = state.answer(arm, engine, &question)?;
    let mut updates = answered.updates;
    if let Some(example) = answered.example {
        updates.extend(state.learn(example)?);
    }
    let head = match streamed {
        true => state.train_head(!updates.is_empty(), false)?,
        false => None,
    };
    // All seconds outside of prefill and rounds count as learning. They include the comparison of
    // ways and the keeping of texts, which delay the stream as well.
    let generation = answered.generation;
    let prefill = generation.prefill.draft + generation.prefill.target;
    let counted = prefill + generation.totals.timings.total();
    let learn_seconds = (began.elapsed().as_secs_f64() - counted).max(0.0);
    let made = Made::Drafted {
        ends: ends(&generation, &stop),
        generation: Box::new(generation),
        lessons: Lessons { updates, head },
        learn_seconds,
        account: state.account().filter(|_| streamed),
    };
    Ok(Some(Answer { arm: index, made }))
}

/// The state that an arm answers with.
fn drafting(arms: &[Arm], index: usize) -> Option<&DraftingArm> {
    match arms.get(index)? {
        Arm::Plain => None,
        Arm::Own(state) => Some(state),
        Arm::GuestOf(host) => drafting(arms, *host),
    }
}
