//! Checks of model folders and recordings, and their memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use cpu_engine::MemoryUse;
use experiment::{Job, ModelConfig, Plan, TorchConfig};
use hub::{is_model_name, local_copy, offer};
use jobs::quote;
use lm::{EngineSettings, StoredCheckpoint};
use models::{
    ChatTemplate, DRAFT_ROOM, FolderError, TORCH_PREFIX, TorchNeeds, check_folder, engine_options,
};
use streams::Split;

use super::{Found, keyed};
use crate::cli::check::{size, torch_needs};

impl Found {
    /// Finds model folders that are missing or incomplete.
    pub(super) fn models(&mut self, plan: &Plan, jobs: &[&Job]) {
        for (key, model) in jobs.iter().flat_map(|job| keyed(job)) {
            if is_model_name(&model.path) {
                continue;
            }
            let wrong = match &model.trace {
                Some(_) => wrong_tokenizer(&model.path),
                None => check_folder(&model.path).err(),
            };
            if let Some(wrong) = wrong {
                self.fault(plan, &key, wrong.to_string(), wrong.hint());
            }
        }
    }

    /// Finds missing recordings, each with the command that makes it.
    pub(super) fn recordings(&mut self, plan: &Plan, jobs: &[&Job], data_words: &[String]) {
        let mut wanted: BTreeMap<PathBuf, Recording> = BTreeMap::new();
        for job in jobs {
            for segment in &job.config.segments {
                let target = job.config.models.targets.get(&segment.target);
                let Some((target, trace)) =
                    target.and_then(|target| Some((target, target.trace.as_ref()?)))
                else {
                    continue;
                };
                for (split, count) in [(Split::Train, segment.train), (Split::Test, segment.test)] {
                    if count.is_none() {
                        continue;
                    }
                    let path = trace.path(&segment.task, split.name());
                    let recording = wanted.entry(path).or_insert_with(|| Recording {
                        key: format!("models.targets.{}", segment.target),
                        tokenizer: target.path.clone(),
                        task: segment.task.clone(),
                        split,
                        seeds: BTreeSet::new(),
                        limit: Some(0),
                        max_tokens: 0,
                        weights: job.config.decode().weights.to_string(),
                    });
                    recording.seeds.insert(job.config.seed);
                    let limit = count
                        .limit()
                        .map(|limit| limit.saturating_add(segment.skip));
                    recording.limit = recording.limit.zip(limit).map(|(a, b)| a.max(b));
                    let tokens = job.config.decode().max_new_tokens;
                    recording.max_tokens = recording.max_tokens.max(tokens);
                }
            }
        }
        for (path, recording) in wanted {
            if !path.is_file() {
                let message = format!(
                    "{}: there is no such recording (a command below makes it of a model; docs/traces.md)",
                    path.display()
                );
                let hint = recording.command(&path, data_words);
                self.fault(plan, &recording.key, message, hint);
            }
        }
    }
}

/// A file of a recorded target that a job reads.
struct Recording {
    key: String,
    tokenizer: PathBuf,
    task: String,
    split: Split,
    seeds: BTreeSet<u64>,
    /// Number of prompts; `None` for all.
    limit: Option<usize>,
    max_tokens: usize,
    weights: String,
}

impl Recording {
    fn command(&self, path: &Path, data_words: &[String]) -> String {
        let mut words = vec![format!(
            "omnidraft trace record --target {} --task {}",
            quote(&self.tokenizer.display().to_string()),
            self.task
        )];
        match self.split {
            Split::Train => {
                if let Some(limit) = self.limit {
                    let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
                    words.push(format!("--limit {limit} --seed {}", seeds.join(",")));
                }
            }
            Split::Test => {
                words.push("--split test".to_owned());
                words.extend(self.limit.map(|limit| format!("--limit {limit}")));
            }
        }
        words.push(format!("--max-tokens {}", self.max_tokens));
        words.push(format!("--weights {}", self.weights));
        words.extend(data_words.iter().map(|word| quote(word)));
        words.push(format!("--out {}", quote(&path.display().to_string())));
        words.join(" ")
    }
}

/// The fault of a tokenizer's file, or of its folder.
fn wrong_tokenizer(path: &Path) -> Option<FolderError> {
    match path.is_file() && path.extension().is_some_and(|ending| ending == "json") {
        true => None,
        false => check_folder(path).err(),
    }
}

/// Descriptions of the models of jobs.
pub(in crate::cli) struct Models {
    /// Name and description of each.
    lines: Vec<(String, String)>,
    /// Models of the hub that are not downloaded.
    pub(in crate::cli) absent: Vec<String>,
    /// True if a worker of PyTorch decodes a target, whose steps are not timed before it is loaded.
    pub(in crate::cli) worker: bool,
}

impl Models {
    /// The models of `jobs`, each once.
    pub(in crate::cli) fn of(jobs: &[&Job]) -> Result<Self> {
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut absent = Vec::new();
        let mut worker = false;
        for job in jobs {
            for (key, model) in keyed(job) {
                let name = key.rsplit('.').next().unwrap_or_default().to_owned();
                if lines.iter().any(|(known, _)| *known == name) {
                    continue;
                }
                worker |= model.torch.is_some();
                let shown = match &model.torch {
                    Some(_) => format!("{TORCH_PREFIX}{}", model.path.display()),
                    None => model.path.display().to_string(),
                };
                let line = match (&model.trace, is_model_name(&model.path)) {
                    (Some(trace), _) => format!("{} (recorded), tokenizer {shown}", trace.file),
                    (None, false) => format!("{shown}: {}", takes(job, model, &model.path)?),
                    (None, true) => match local_copy(&model.path)? {
                        Some(folder) => {
                            format!("{shown}: downloaded, {}", takes(job, model, &folder)?)
                        }
                        None => {
                            absent.push(model.path.display().to_string());
                            let offered = model.torch.as_ref().map(|_| offered(&model.path));
                            format!("{shown}: not here{}", offered.unwrap_or_default())
                        }
                    },
                };
                lines.push((name, line));
            }
        }
        Ok(Self {
            lines,
            absent,
            worker,
        })
    }

    /// One line per model, then the models to download.
    pub(in crate::cli) fn text(&self) -> String {
        let mut text = String::from("models\n");
        let names = self.lines.iter().map(|(name, _)| name.len());
        let width = names.max().unwrap_or(0);
        for (name, line) in &self.lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<width$}  {line}");
        }
        if !self.absent.is_empty() {
            let _ = writeln!(
                text,
                "  a run downloads {} from the Hugging Face hub first (a dry run downloads nothing, so it knows no sizes and no times); \
                 a gated one needs its terms accepted on its page and HF_TOKEN",
                self.absent.join(", ")
            );
        }
        text
    }
}

/// Size and access of a model that is not here, as the hub reports them; empty if it does not
/// answer.
fn offered(path: &Path) -> String {
    let Ok(Some(offer)) = offer(path) else {
        return String::new();
    };
    let bytes = offer
        .bytes
        .map(|bytes| format!(", a download of {}", size(bytes)));
    let memory = offer.parameters.map(|count| {
        let (full, half) = (size(4 * count), size(2 * count));
        let millions = count as f64 / 1e6;
        format!(", {millions:.0}M parameters: {full} in 32 bits, {half} in 16")
    });
    let gated = match offer.gated {
        true => ", gated",
        false => ", not gated",
    };
    [bytes.as_deref(), memory.as_deref(), Some(gated)]
        .into_iter()
        .flatten()
        .collect()
}

/// Parameters of a model and the memory for decoding with it, in the job's weight format.
fn takes(job: &Job, model: &ModelConfig, folder: &Path) -> Result<String> {
    if let Some(torch) = &model.torch {
        let needs = torch_needs(&TorchNeeds::of(folder)?);
        let TorchConfig { dtype, device_map } = torch;
        return Ok(format!(
            "{needs}; a worker of PyTorch, dtype {dtype}, device {device_map}"
        ));
    }
    let decode = job.config.decode();
    let config = StoredCheckpoint::read_config(folder)?;
    let template = ChatTemplate::from_model_dir(folder, config.max_position_embeddings)?;
    let context = template.max_prompt_tokens() + decode.max_new_tokens + DRAFT_ROOM;
    let settings = EngineSettings {
        context: Some(context.min(config.max_context())),
        ..decode.engine()
    };
    let mut padded = config.clone();
    padded.intermediate_size += model.pad_width;
    let memory = MemoryUse::expected(&padded, &engine_options(&padded, settings));
    let padding = match model.pad_width {
        0 => String::new(),
        width => format!(" padded by {width} inner columns an MLP"),
    };
    Ok(format!(
        "{:.1}M parameters{padding}, decoding in {} takes {}",
        config.num_params() as f64 / 1e6,
        decode.weights,
        size(memory.total() as u64)
    ))
}
