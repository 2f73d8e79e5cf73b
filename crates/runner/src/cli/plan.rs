//! Conversion of an experiment's plan to jobs for the crate `jobs`, and the output of a dry run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use experiment::{ArmConfig, Count, Job, JobConfig, ModelConfig, Plan, Segment, Stage};
use jobs::{JobId, JobSpec, Need, RootRecord};
use lm::EngineSettings;
use models::ModelFolder;
use models::step::{STEP_CONTEXT, StepTimes, Stepper, measure};
use report::load_paper;
use results::{ArmInfo, CellSpec, StageSpec};
use streams::{DataSource, Split};
use trace::TraceFile;
use vocab_align::{DraftId, TargetId};

use super::preflight::Models;
use crate::execute::arm_info;

/// Assumed tokens per round in the estimate of a dry run.
const TOKENS_PER_ROUND: f64 = 2.0;

/// The jobs of a plan for the scheduler, in order.
///
/// # Errors
/// Names that are not valid for folders; data that cannot be read.
pub fn specs(plan: &Plan, jobs: &[Job], data: &DataSource) -> Result<Vec<JobSpec>> {
    let mut sizes = Sizes::new(data, true);
    let mut specs = Vec::with_capacity(jobs.len());
    for job in jobs {
        let config = &job.config;
        let needs = match &config.from {
            None => None,
            Some(stage) => {
                let id = JobId::new(stage, &config.cell)?;
                let is_it =
                    |other: &&Job| other.config.stage == *stage && other.config.cell == config.cell;
                let found = plan.jobs.iter().find(is_it);
                let found = found.with_context(|| format!("{config}: there is no job {id}"))?;
                Some(Need {
                    id,
                    hash: found.hash.clone(),
                })
            }
        };
        specs.push(JobSpec {
            id: JobId::new(&config.stage, &config.cell)?,
            hash: job.hash.clone(),
            needs,
            exclusive: config.exclusive,
            prompts: Some(sizes.of_splits(config)?.iter().sum::<usize>() as u64),
            coordinates: job.coordinates.clone(),
        });
    }
    Ok(specs)
}

/// The record of the experiment for the run's folder, with all data for a report.
///
/// # Errors
/// A file of the paper's numbers that cannot be read.
pub fn record(plan: &Plan, all: Vec<JobSpec>) -> Result<RootRecord> {
    let experiment = &plan.experiment;
    let mut arms: Vec<ArmInfo> = Vec::new();
    for arm in plan.jobs.iter().flat_map(|job| &job.config.arms) {
        if !arms.iter().any(|known| known.name == arm.name) {
            arms.push(arm_info(arm));
        }
    }
    let paper = match &experiment.report.paper {
        Some(path) => {
            let paper = load_paper(path)?;
            let renamed = paper.renamed(&experiment.report.paper_names);
            Some(renamed.map_err(|name| {
                anyhow!(
                    "report.paper_names: {} knows no `{name}`\nhint: on the left stands a name of \
                     this experiment, on the right that of the file",
                    path.display()
                )
            })?)
        }
        None => None,
    };
    let cell = |job: &Job| CellSpec {
        stage: job.config.stage.clone(),
        cell: job.config.cell.clone(),
        coordinates: job.coordinates.clone(),
    };
    let stage = |stage: &Stage| StageSpec {
        name: stage.name.clone(),
        from: stage.from.clone(),
        exclusive: stage.exclusive,
    };
    Ok(RootRecord {
        title: experiment.title.clone(),
        axes: serde_json::to_value(&experiment.axes)?,
        stages: experiment.stages.iter().map(stage).collect(),
        cells: plan.jobs.iter().map(cell).collect(),
        arms,
        models: serde_json::to_value(&experiment.models)?,
        report: serde_json::to_value(&experiment.report)?,
        paper_data: paper.map(serde_json::to_value).transpose()?,
        ..RootRecord::new(&experiment.name, &experiment.hash, all)
    })
}

/// Numbers of prompts in the splits of tasks.
pub(super) struct Sizes<'a> {
    data: &'a DataSource,
    pub(super) known: HashMap<(String, Split), usize>,
    /// True if a missing task may be downloaded; otherwise it is assumed to have the requested
    /// prompts.
    downloads: bool,
}

impl<'a> Sizes<'a> {
    pub(super) fn new(data: &'a DataSource, downloads: bool) -> Self {
        Self {
            data,
            known: HashMap::new(),
            downloads,
        }
    }

    /// Numbers of streamed prompts and of held-out prompts.
    pub(super) fn of_splits(&mut self, job: &JobConfig) -> Result<[usize; 2]> {
        let mut prompts = [0; 2];
        for segment in &job.segments {
            prompts[0] += self.of_split(&segment.task, Split::Train, segment.train)?;
            prompts[1] += self.of_split(&segment.task, Split::Test, segment.test)?;
        }
        Ok(prompts)
    }

    fn of_split(&mut self, task: &str, split: Split, count: Count) -> Result<usize> {
        if count.is_none() {
            return Ok(0);
        }
        let key = (task.to_owned(), split);
        let held = match self.known.get(&key) {
            Some(held) => *held,
            None if !self.downloads && !self.data.is_here(task) => {
                return Ok(count.limit().unwrap_or(0));
            }
            None => {
                let held = self.data.load(task, split)?.len();
                self.known.insert(key, held);
                held
            }
        };
        Ok(count.limit().map_or(held, |limit| limit.min(held)))
    }
}

/// The description of the incomplete jobs in a dry run: models, cells, prompts, and an estimate of
/// the time.
///
/// # Errors
/// Models or data that cannot be loaded.
pub fn dry_run(
    plan: &Plan,
    open: &[&Job],
    models: &Models,
    out: &Path,
    data: &DataSource,
    workers: usize,
) -> Result<String> {
    let mut sizes = Sizes::new(data, false);
    let mut clock = Clock::default();
    let mut text = format!(
        "{} -> {}\n{}",
        plan.experiment.name,
        out.display(),
        models.text()
    );
    let complete = plan.jobs.len() - open.len();
    if complete > 0 {
        writeln!(
            text,
            "{complete} of {} jobs are complete and left alone",
            plan.jobs.len()
        )?;
    }
    let segments = open.iter().flat_map(|job| &job.config.segments);
    let absent: BTreeSet<&str> = segments
        .map(|segment| &*segment.task)
        .filter(|task| !data.is_here(task))
        .collect();
    if !absent.is_empty() {
        let absent: Vec<&str> = absent.into_iter().collect();
        writeln!(
            text,
            "tasks\n  a run downloads {} from the Hugging Face hub first; numbers of their prompts are those asked for",
            absent.join(", ")
        )?;
    }
    // A missing model cannot be timed; a worker would have to be started.
    let timed = models.absent.is_empty() && !models.worker;
    let mut total = 0.0;
    for stage in &plan.experiment.stages {
        let jobs: Vec<&Job> = open
            .iter()
            .copied()
            .filter(|job| job.config.stage == stage.name)
            .collect();
        if jobs.is_empty() {
            continue;
        }
        let mut seconds = 0.0;
        let mut lines = String::new();
        for job in &jobs {
            let prompts = sizes.of_splits(&job.config)?;
            let takes = match timed {
                true => clock.seconds(&job.config, prompts)?,
                false => 0.0,
            };
            seconds += takes;
            write!(
                lines,
                "  {:<44} {}",
                job.config.cell,
                answers(&job.config, prompts)
            )?;
            match timed {
                true => writeln!(lines, ", about {}", duration(takes))?,
                false => writeln!(lines)?,
            }
        }
        let at_once = match stage.exclusive {
            true => 1,
            false => workers.min(jobs.len()).max(1),
        };
        let took = seconds / at_once as f64;
        total += took;
        let from = stage.from.as_ref().map(|from| format!(", from {from}"));
        let about = match timed {
            true => format!(", about {}", duration(took)),
            false => String::new(),
        };
        writeln!(
            text,
            "stage {}{}: {} cells, {at_once} at a time{about}{}",
            stage.name,
            from.unwrap_or_default(),
            jobs.len(),
            if stage.exclusive { " (timed)" } else { "" },
        )?;
        text.push_str(&lines);
    }
    match timed {
        true => writeln!(
            text,
            "an estimate: about {} of decoding, if every answer is as long as decode.max_new_tokens allows (recorded ones as \
             long as they are), a round gives {TOKENS_PER_ROUND} tokens and steps take what they took here just now; \
             learning and loading come on top and can double it",
            duration(total)
        )?,
        false => {
            let why = match models.absent.is_empty() {
                true => "a worker of PyTorch is not started before a run",
                false => "not all models are here",
            };
            writeln!(text, "no estimate of the time: {why}")?;
        }
    }
    Ok(text)
}

/// `60 prompts, 5 arms`, or the numbers of arms that answer streamed and held-out prompts.
fn answers(job: &JobConfig, [train, test]: [usize; 2]) -> String {
    let streaming = job.arms.iter().filter(|arm| job.streams_to(arm)).count();
    let all = job.arms.len();
    let part = |prompts: usize, kind: &str, arms: usize| match arms {
        1 => format!("{prompts:>4} {kind} prompts, 1 arm"),
        arms => format!("{prompts:>4} {kind} prompts, {arms} arms"),
    };
    match (train, test) {
        (train, 0) => part(train, "streamed", streaming),
        (0, test) => part(test, "held-out", all),
        (train, test) => format!(
            "{}; {}",
            part(train, "streamed", streaming),
            part(test, "held-out", all)
        ),
    }
}

/// Step times by pairs of models, and the mean lengths of recorded answers by file.
#[derive(Default)]
struct Clock {
    steps: BTreeMap<String, StepTimes>,
    lengths: BTreeMap<PathBuf, Option<f64>>,
}

impl Clock {
    /// Estimated seconds of a job's answers: streamed prompts by the arms that answer them,
    /// held-out prompts by all arms.
    fn seconds(&mut self, job: &JobConfig, prompts: [usize; 2]) -> Result<f64> {
        let mut seconds = 0.0;
        for segment in &job.segments {
            let steps = self.steps(job, &segment.target)?;
            let recorded =
                [Split::Train, Split::Test].map(|split| self.recorded(job, segment, split));
            for arm in &job.arms {
                let streams = job.streams_to(arm);
                let full = arm.decode.max_new_tokens as f64;
                let tokens: f64 = prompts
                    .iter()
                    .zip(recorded)
                    .zip([streams, true])
                    .filter(|(_, answers)| *answers)
                    .map(|((prompts, length), _)| {
                        *prompts as f64 * length.unwrap_or(full).min(full)
                    })
                    .sum();
                seconds += tokens * of_token(arm, &steps);
            }
        }
        // Prompts are spread over the segments; their mean is accurate enough.
        Ok(seconds / job.segments.len().max(1) as f64)
    }

    /// The mean length of a recorded target's answers to a split, if its file exists.
    fn recorded(&mut self, job: &JobConfig, segment: &Segment, split: Split) -> Option<f64> {
        let trace = job.models.targets.get(&segment.target)?.trace.as_ref()?;
        let path = trace.path(&segment.task, split.name());
        let read = |path: &PathBuf| {
            let file = TraceFile::open(path).ok()?;
            let tokens: usize = file.entries().iter().map(|e| e.answer_len).sum();
            Some(tokens as f64 / file.entries().len().max(1) as f64)
        };
        *self.lengths.entry(path).or_insert_with_key(read)
    }

    fn steps(&mut self, job: &JobConfig, target: &str) -> Result<StepTimes> {
        let padded = job.exclusive || job.models.pad_stream;
        let decode = job.decode();
        let device = job.models.device_of(&job.models.drafter);
        let drafts = decode.drafter_engine(device);
        let key = format!(
            "{target} {padded} {device} {} {} {}",
            decode.threads,
            decode.weights,
            decode.drafts_in()
        );
        if let Some(known) = self.steps.get(&key) {
            return Ok(*known);
        }
        let config = job.models.targets.get(target);
        let config = config.with_context(|| format!("models.targets: there is no `{target}`"))?;
        let scores = job.models.device_of(config);
        let drafter: ModelFolder<DraftId> = ModelFolder::load(&job.models.drafter.path)?;
        if config.trace.is_some() {
            let steps = recorded_steps(&drafter, drafts)?;
            self.steps.insert(key, steps);
            return Ok(steps);
        }
        let target: ModelFolder<TargetId> = ModelFolder::load(&config.path)?;
        let width = |model: &ModelConfig| if padded { model.pad_width } else { 0 };
        let drafter = drafter.padded(width(&job.models.drafter));
        let target = target.padded(width(config));
        let mut draft = Stepper::new(&drafter, drafts, STEP_CONTEXT)?;
        let mut verify = Stepper::new(&target, decode.engine().on(scores), STEP_CONTEXT)?;
        let steps = measure(&mut draft, &mut verify)?;
        self.steps.insert(key, steps);
        Ok(steps)
    }
}

/// Step times of a recorded target, whose own steps take none.
fn recorded_steps(drafter: &ModelFolder<DraftId>, drafts: EngineSettings) -> Result<StepTimes> {
    let mut draft = Stepper::new(drafter, drafts, STEP_CONTEXT)?;
    let mut again = Stepper::new(drafter, drafts, STEP_CONTEXT)?;
    Ok(StepTimes {
        target_s: 0.0,
        verify_s: 0.0,
        ..measure(&mut draft, &mut again)?
    })
}

/// Seconds per token of an answer.
fn of_token(arm: &ArmConfig, steps: &StepTimes) -> f64 {
    if arm.is_plain() {
        return steps.target_s;
    }
    let draft = match arm.looks_up() {
        true => 0.0,
        false => arm.decode.k as f64 * steps.draft_s,
    };
    (steps.verify_s + draft) / TOKENS_PER_ROUND
}

fn duration(seconds: f64) -> String {
    let minutes = seconds / 60.0;
    match minutes {
        m if m < 1.5 => format!("{seconds:.0} s"),
        m if m < 90.0 => format!("{m:.0} min"),
        m => format!("{:.1} h", m / 60.0),
    }
}
