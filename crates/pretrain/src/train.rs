//! The training loop: next-token cross entropy, AdamW, warm-up and cosine.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use lm::{AdamW, AdamWConfig, Checkpoint, random_checkpoint};
use serde::Serialize;
use serde_json::Value;
use trainer::{Backend, Step};

use super::config::Recipe;
use super::data::TokenData;
use super::error::{PretrainError, Result};
use super::loops::Phase;
use super::state;
use crate::Request;

/// One line of `training.jsonl`.
#[derive(Debug, Serialize)]
struct StepRow {
    step: u64,
    tokens: u64,
    loss: f64,
    lr: f64,
    grad_norm: f64,
    /// Share of looping tokens in the answers of a step against loops.
    #[serde(skip_serializing_if = "Option::is_none")]
    looping: Option<f64>,
    seconds: f64,
}

/// One measurement on held-out text.
#[derive(Debug, Clone, Serialize)]
pub struct HeldOutRow {
    /// Number of steps taken.
    pub step: u64,
    /// Source of the text.
    pub held_out: String,
    /// Mean negative log-likelihood, in nats per token.
    pub loss: f64,
    /// Number of tokens measured.
    pub tokens: usize,
}

/// Result of a training.
pub struct Trained {
    /// Final weights.
    pub checkpoint: Checkpoint,
    /// Last measurement, one row per source.
    pub held_out: Vec<HeldOutRow>,
    /// Number of all steps taken.
    pub steps: u64,
}

/// A training run.
pub struct Run<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// Folder, device and limits of the run.
    pub request: &'a Request,
}

impl Run<'_> {
    /// Trains to the end of the recipe, from the last checkpoint in its folder if there is one.
    ///
    /// Returns `None` if `stop_after` ended the call early.
    ///
    /// # Errors
    /// Initial weights or a state that cannot be read or belong to another model; files that cannot
    /// be written; a loss or gradient that is not finite; errors of the device.
    pub fn train(&self, config: lm::LmConfig, data: &mut TokenData) -> Result<Option<Trained>> {
        let (recipe, request) = (self.recipe, self.request);
        let (out, device) = (request.out.as_path(), request.device);
        let (steps, limit) = (recipe.steps(), request.stop_after.unwrap_or(u64::MAX));
        let optimizer_config = AdamWConfig {
            beta2: 0.95,
            weight_decay: recipe.train.weight_decay,
            max_grad_norm: Some(recipe.train.max_grad_norm),
            ..AdamWConfig::default()
        };
        let (checkpoint, optimizer, start) = match state::load(out, &config)? {
            Some(saved) => {
                let optimizer = AdamW::resume(optimizer_config, saved.step, saved.moments);
                (saved.checkpoint, optimizer, saved.step)
            }
            None => (self.beginning(&config)?, AdamW::new(optimizer_config), 0),
        };
        let mut model = Backend::new(&checkpoint, optimizer, device, recipe.train.products)?;
        drop(checkpoint);
        let mut log = Log::open(out, start)?;
        let bar = progress_bar(("pretrain", "steps"), start, steps, request.progress);
        let mut held_out = Vec::new();
        let mut phase: Option<Phase<'_>> = None;
        for step in start..steps {
            if step - start >= limit {
                state::save(out, &model.checkpoint()?, &*model.optimizer()?)?;
                return Ok(None);
            }
            let began = Instant::now();
            let batch = recipe.train.batch as u64;
            let sequences: Vec<Vec<u32>> = (0..batch)
                .map(|i| data.sequence(step * batch + i))
                .collect();
            let lr = recipe.learning_rate(step);
            let own = recipe.unlikelihood.as_ref();
            if let Some(own) = own.filter(|_| phase.is_none() && step >= recipe.text_steps()) {
                phase = Some(Phase::at((recipe, own), &mut model, out, step)?);
            }
            let (Step { loss, grad_norm }, looping) = match &phase {
                None => (model.step(&sequences, lr)?, None),
                Some(phase) => {
                    let done = phase.step(&mut model, data, &sequences, step)?;
                    (done.0, Some(done.1))
                }
            };
            if !loss.is_finite() {
                return Err(PretrainError::Fault(format!(
                    "step {step}: the loss is {loss}; lower train.lr"
                )));
            }
            let done = step + 1;
            let seconds = began.elapsed().as_secs_f64();
            let tokens = done * recipe.tokens_per_step();
            log.write(&StepRow {
                step: done,
                tokens,
                loss,
                lr,
                grad_norm,
                looping,
                seconds,
            })?;
            bar.set_position(done);
            let speed = recipe.tokens_per_step() as f64 / seconds;
            bar.set_message(format!("loss {loss:.3}, {speed:.0} tokens/s"));
            let last = done == steps;
            if last || done % recipe.train.eval_every == 0 {
                held_out = self.measure(&mut model, data, done)?;
                held_out.iter().try_for_each(|row| log.write(row))?;
            }
            if done % recipe.train.save_every == 0 && !last {
                state::save(out, &model.checkpoint()?, &*model.optimizer()?)?;
            }
        }
        bar.finish_and_clear();
        Ok(Some(Trained {
            checkpoint: model.checkpoint()?,
            held_out,
            steps,
        }))
    }

    /// Weights before the first step.
    fn beginning(&self, config: &lm::LmConfig) -> Result<Checkpoint> {
        if let Some(cut) = &self.recipe.train.cut {
            return cut.weights(config);
        }
        let Some(folder) = &self.recipe.train.from else {
            return Ok(random_checkpoint(config, self.recipe.seed));
        };
        let loaded = Checkpoint::load(folder).map_err(|error| {
            PretrainError::within(format!("train.from = {}", folder.display()), error)
        })?;
        let checkpoint = Checkpoint {
            config: config.clone(),
            tensors: loaded.tensors,
        };
        let place = "train.from: that model has another shape than [model]";
        checkpoint
            .check(folder)
            .map_err(|error| PretrainError::within(place, error))?;
        Ok(checkpoint)
    }

    fn measure(&self, model: &mut Backend, data: &TokenData, step: u64) -> Result<Vec<HeldOutRow>> {
        data.held_out
            .iter()
            .map(|(source, sequences)| {
                let found = model.evaluate(sequences, self.recipe.train.batch)?;
                Ok(HeldOutRow {
                    step,
                    held_out: source.clone(),
                    loss: found.mean(),
                    tokens: found.tokens,
                })
            })
            .collect()
    }
}

/// A progress bar with a label, a unit, a start and an end.
pub(crate) fn progress_bar(
    (doing, unit): (&'static str, &str),
    start: u64,
    end: u64,
    visible: bool,
) -> ProgressBar {
    if !visible {
        return ProgressBar::hidden();
    }
    let template = format!("{{prefix}} {{bar:30}} {{pos}}/{{len}} {unit}  {{msg}}  ETA {{eta}}");
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(end)
        .with_style(style)
        .with_prefix(doing)
        .with_position(start)
}

/// Approximate number of steps that the log of a finished model keeps.
const KEPT: u64 = 1000;

/// Thins the log of a finished model to about [`KEPT`] of all `steps`, evenly spaced, and keeps all
/// measurements. This suffices for a curve, and the log is stored beside the weights.
pub(crate) fn thin_log(out: &Path, steps: u64) -> Result<()> {
    let every = steps.div_ceil(KEPT).max(1);
    let path = out.join("training.jsonl");
    let text = std::fs::read_to_string(&path).map_err(PretrainError::io(&path))?;
    keep_rows(&path, &text, |row| {
        let step = row["step"].as_u64();
        row.get("held_out").is_some() || step.is_some_and(|step| step % every == 0)
    })
}

/// Writes those lines of a log's `text` that hold a row that `stays`.
fn keep_rows(path: &Path, text: &str, stays: impl Fn(&Value) -> bool) -> Result<()> {
    let kept: String = text
        .lines()
        .filter(|line| serde_json::from_str(line).is_ok_and(|row: Value| stays(&row)))
        .flat_map(|line| [line, "\n"])
        .collect();
    std::fs::write(path, kept).map_err(PretrainError::io(path))
}

/// The file `training.jsonl`, cut back to the step from which training resumes.
struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    fn open(out: &Path, start: u64) -> Result<Self> {
        std::fs::create_dir_all(out).map_err(PretrainError::create(out))?;
        let path = out.join("training.jsonl");
        let text = if start > 0 {
            std::fs::read_to_string(&path).unwrap_or_default()
        } else {
            String::new()
        };
        keep_rows(&path, &text, |row| {
            row["step"].as_u64().is_some_and(|step| step <= start)
        })?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(PretrainError::io(&path))?;
        Ok(Self { file, path })
    }

    fn write<R: Serialize>(&mut self, row: &R) -> Result<()> {
        let line = serde_json::to_string(row)? + "\n";
        self.file
            .write_all(line.as_bytes())
            .map_err(PretrainError::io(&self.path))
    }
}
