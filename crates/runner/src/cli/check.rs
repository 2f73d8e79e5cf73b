//! `omnidraft check`: a check of whether models can be used here, without loading them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use bench::args::ThreadArgs;
use clap::Args;
use cpu_engine::MemoryUse;
use experiment::DecodeConfig;
use hub::local_folder;
use lm::{EngineSettings, KvType, LmConfig, LmError, StoredCheckpoint, TensorSource, WeightType};
use models::{
    ChatTemplate, DRAFT_ROOM, Generation, TorchNeeds, check_model, ends, engine_options,
    torch_model,
};
use serde::Serialize;
use torch_engine::Dtype;
use vocab_align::{Alignment, AlignmentStats, DraftId, MappingMode, TargetId, TokenId, Vocabulary};
use weights::WeightsError;

use super::print;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft check models/D models/L
  omnidraft check models/L --context 512 --kv f16 --json
  omnidraft check models/D torch:models/L
  omnidraft check DIR")]
pub struct CheckArgs {
    /// Model folders; the first of two is the drafter, the second the target. config.json is
    /// enough. torch: in front of a folder says what a worker of PyTorch needs for it.
    #[arg(required = true, value_name = "DIR")]
    models: Vec<PathBuf>,
    /// Tokens of prompt and answer (default: the model's prompt budget, 64 tokens, room for a draft).
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Format of keys and values: f32 or f16.
    #[arg(long, default_value_t = KvType::F32)]
    kv: KvType,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    models: Vec<Entry>,
    /// Alignment of two models.
    pair: Option<AlignmentStats>,
    machine: Machine,
}

/// Bytes of memory; `None` if the system does not report it.
#[derive(Debug, Serialize)]
struct Machine {
    available_bytes: Option<u64>,
}

/// A model, by its decoder.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Entry {
    Own(Box<Model>),
    Torch(TorchModel),
}

/// A model that a worker of PyTorch decodes.
#[derive(Debug, Serialize)]
struct TorchModel {
    path: PathBuf,
    #[serde(flatten)]
    needs: TorchNeeds,
    /// Bytes of weights in a number format of the worker.
    memory: Vec<(Dtype, u64)>,
    /// Number of tokens that the following figure is for.
    context: Option<usize>,
    /// Bytes of keys and values at 16 bits a number.
    kv_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Model {
    path: PathBuf,
    #[serde(flatten)]
    config: LmConfig,
    parameters: usize,
    /// Size of the vocabulary in `tokenizer.json`, if there is one.
    tokenizer: Option<usize>,
    /// Stop tokens; empty without a tokenizer.
    ends: Vec<AnswerEnd>,
    /// Generation settings of the model's owner.
    generation: Generation,
    /// `None` if the folder has no weights.
    files: Option<Files>,
    /// Number of tokens that the following figures are for.
    context: usize,
    kv: KvType,
    kv_bytes: usize,
    memory: Vec<Memory>,
}

/// A stop token, and the files that name it.
#[derive(Debug, Serialize)]
struct AnswerEnd {
    id: u32,
    token: String,
    from: Vec<&'static str>,
}

/// The files of weights.
#[derive(Debug, Serialize)]
struct Files {
    format: String,
    count: usize,
    bytes: u64,
    encoding: Option<String>,
}

/// Memory of an engine at the whole context, in one weight format.
#[derive(Debug, Serialize)]
struct Memory {
    weights: &'static str,
    weights_bytes: usize,
    /// Size in the lossless compact form, which trained weights allow.
    compact_bytes: Option<usize>,
    /// Including the KV cache and working memory.
    total_bytes: usize,
    /// True if all models together fit.
    fits: Option<bool>,
}

impl CheckArgs {
    /// Checks the models and prints the result.
    pub fn execute(self) -> Result<()> {
        if self.context == Some(0) {
            bail!("--context must be at least 1");
        }
        let mut folders = Vec::new();
        let mut models = Vec::new();
        for path in &self.models {
            let model = torch_model(path);
            let folder = local_folder(model.as_deref().unwrap_or(path))?.into_owned();
            models.push(match model {
                Some(_) => Entry::Torch(self.torch_model(path, &folder)?),
                None => Entry::Own(Box::new(self.model(&folder)?)),
            });
            folders.push(folder);
        }
        let machine = Machine {
            available_bytes: available(),
        };
        let all = |kind: usize| {
            let bytes = own(&models).map(|model| model.memory[kind].total_bytes as u64);
            bytes.sum::<u64>()
        };
        let fits: Vec<_> = (0..WeightType::ALL.len())
            .map(|kind| machine.available_bytes.map(|most| all(kind) <= most))
            .collect();
        for entry in &mut models {
            let Entry::Own(model) = entry else { continue };
            for (memory, fits) in model.memory.iter_mut().zip(&fits) {
                memory.fits = *fits;
            }
        }
        let pair = match &folders[..] {
            [drafter, target] => pair(drafter, target)?,
            _ => None,
        };
        let report = Report {
            models,
            pair,
            machine,
        };
        match self.json {
            true => print(&format!("{:#}\n", serde_json::to_value(&report)?)),
            false => print(&report.text()?),
        }
    }

    fn torch_model(&self, path: &Path, folder: &Path) -> Result<TorchModel> {
        check_model(folder)?;
        let needs = TorchNeeds::of(folder)?;
        let memory = [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter();
        let memory = memory.filter_map(|dtype| Some((dtype, needs.weights(dtype)?)));
        let cached = needs.cached_a_token.zip(self.context);
        Ok(TorchModel {
            path: path.to_owned(),
            memory: memory.collect(),
            context: self.context,
            kv_bytes: cached.map(|(numbers, context)| 2 * numbers * context as u64),
            needs,
        })
    }

    fn model(&self, folder: &Path) -> Result<Model> {
        check_model(folder)?;
        let stored = match StoredCheckpoint::open(folder) {
            Ok(stored) => Some(stored),
            Err(LmError::Weights(WeightsError::NoWeights { .. })) => None,
            Err(error) => return Err(error.into()),
        };
        let config = match &stored {
            Some(stored) => stored.config().clone(),
            None => StoredCheckpoint::read_config(folder)?,
        };
        let tokenizer = folder.join("tokenizer.json");
        let tokenizer: Option<Vocabulary<TargetId>> = match has_tokenizer(folder) {
            true => Some(Vocabulary::from_file_for(&tokenizer, config.vocab_size)?),
            false => None,
        };
        let ends = match &tokenizer {
            Some(vocabulary) => ends(folder, &config.eos_token_ids, config.vocab_size, vocabulary)?
                .into_iter()
                .map(|end| AnswerEnd {
                    id: end.id.get(),
                    token: vocabulary.content(end.id).unwrap_or_default().to_owned(),
                    from: end.from,
                })
                .collect(),
            None => Vec::new(),
        };
        let context = match self.context {
            Some(context) => context,
            None => {
                let template =
                    ChatTemplate::from_model_dir(folder, config.max_position_embeddings)?;
                let answer = DecodeConfig::default().max_new_tokens;
                template.max_prompt_tokens() + answer + DRAFT_ROOM
            }
        };
        let context = context.min(config.max_context());
        let expected = |weights| {
            let settings = EngineSettings {
                kv: self.kv,
                context: Some(context),
                ..EngineSettings::new(weights, self.threads.count())
            };
            MemoryUse::expected(&config, &engine_options(&config, settings))
        };
        let memory = WeightType::ALL.map(|weights| {
            let expected = expected(weights);
            let narrow = matches!(weights, WeightType::F32 | WeightType::Bf16);
            Memory {
                weights: weights.name(),
                weights_bytes: expected.weights,
                compact_bytes: narrow.then(|| MemoryUse::compact_weights(&config, weights)),
                total_bytes: expected.total(),
                fits: None,
            }
        });
        Ok(Model {
            path: folder.to_owned(),
            parameters: config.num_params(),
            tokenizer: tokenizer.map(|vocabulary| vocabulary.len()),
            ends,
            generation: Generation::read(folder)?,
            files: stored.as_ref().map(|stored| Files {
                format: stored.files().format().to_string(),
                count: stored.files().paths().count(),
                bytes: stored.files().bytes(),
                encoding: stored.encoding().map(|encoding| encoding.to_string()),
            }),
            context,
            kv: self.kv,
            kv_bytes: expected(WeightType::F32).cache,
            memory: memory.into(),
            config,
        })
    }
}

fn has_tokenizer(folder: &Path) -> bool {
    let has = |file: &str| folder.join(file).exists();
    has("tokenizer.json") || has("tokenizer.model")
}

/// The vocabulary of a folder with a tokenizer.
fn vocabulary<I: TokenId>(folder: &Path) -> Result<Option<Vocabulary<I>>> {
    let path = folder.join("tokenizer.json");
    Ok(match has_tokenizer(folder) {
        true => Some(Vocabulary::from_file(&path)?),
        false => None,
    })
}

/// The alignment of drafter and target, if both have tokenizers.
fn pair(drafter: &Path, target: &Path) -> Result<Option<AlignmentStats>> {
    let draft = vocabulary::<DraftId>(drafter)?;
    let target = vocabulary::<TargetId>(target)?;
    Ok(draft.zip(target).map(|(draft, target)| {
        Alignment::build(&draft, &target, MappingMode::Bytes)
            .stats()
            .clone()
    }))
}

/// Bytes of memory that a program may still use on this machine: the available memory that the
/// system reports, or the limit of its control group if that is lower.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    let system = kib << 10;
    Some(group_limit().map_or(system, |limit| limit.min(system)))
}

/// The limit of this process's control group, if it has one.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = format!("/sys/fs/cgroup{group}/memory.max");
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        bytes => format!("{:.1} MB", bytes / 1e6),
    }
}

/// The models that an engine of this program decodes.
fn own(models: &[Entry]) -> impl Iterator<Item = &Model> {
    models.iter().filter_map(|entry| match entry {
        Entry::Own(model) => Some(&**model),
        Entry::Torch(_) => None,
    })
}

impl TorchModel {
    fn write(&self, text: &mut String) -> Result<()> {
        let needs = torch_needs(&self.needs);
        writeln!(text, "{}\n  {needs}", self.path.display())?;
        if let (Some(context), Some(bytes)) = (self.context, self.kv_bytes) {
            let bytes = size(bytes);
            writeln!(
                text,
                "  a context of {context} tokens: KV cache at 16 bits {bytes}"
            )?;
        }
        Ok(())
    }
}

/// The needs of a worker of PyTorch for a model: `LlamaForCausalLM, 0.3M parameters: 1.2 MB in
/// float32, 0.6 MB in float16, 0.6 MB in bfloat16 (auto is float32)`.
pub(super) fn torch_needs(needs: &TorchNeeds) -> String {
    let mut text = needs
        .architecture
        .clone()
        .unwrap_or_else(|| "a model".to_owned());
    let sizes: Vec<String> = [Dtype::F32, Dtype::F16, Dtype::Bf16]
        .into_iter()
        .filter_map(|dtype| Some(format!("{} in {dtype}", size(needs.weights(dtype)?))))
        .collect();
    match (needs.parameters, &needs.quantised, needs.file_bytes) {
        (Some(parameters), ..) => {
            let millions = parameters as f64 / 1e6;
            text += &format!(", {millions:.1}M parameters: {}", sizes.join(", "));
        }
        (None, Some(method), Some(bytes)) => {
            text += &format!(", quantised by {method}: {} as stored", size(bytes));
        }
        _ => text += ", of unknown size",
    }
    if let Some(dtype) = &needs.dtype {
        text += &format!(" (auto is {dtype})");
    }
    if let Some(numbers) = needs.cached_a_token {
        let bytes = 2 * numbers * 1000;
        text += &format!("; KV cache {} for 1000 tokens at 16 bits", size(bytes));
    }
    text
}

impl Report {
    fn text(&self) -> Result<String> {
        let mut text = String::new();
        for model in &self.models {
            match model {
                Entry::Own(model) => model.write(&mut text)?,
                Entry::Torch(model) => model.write(&mut text)?,
            }
        }
        if let Some(pair) = &self.pair {
            writeln!(
                text,
                "pair\n  {} of the drafter's {} tokens are tokens of the target ({:.1}%), which reach {:.1}% of the target's {}",
                pair.direct_tokens,
                pair.draft_vocab,
                100.0 * pair.draft_coverage,
                100.0 * pair.target_coverage,
                pair.target_vocab
            )?;
        } else if self.models.len() == 2 {
            writeln!(text, "pair\n  unknown: both folders need a tokenizer.json")?;
        }
        let Some(first) = own(&self.models).next() else {
            return Ok(text);
        };
        match self.machine.available_bytes {
            Some(bytes) => {
                let fits = |index: usize| first.memory[index].fits == Some(true);
                let names = (0..WeightType::ALL.len()).filter(|index| fits(*index));
                let names: Vec<_> = names.map(|index| WeightType::ALL[index].name()).collect();
                let fit = match names.is_empty() {
                    true => "nothing fits".to_owned(),
                    false => format!("{} fit", names.join(", ")),
                };
                writeln!(
                    text,
                    "this machine\n  {} of memory available: {fit}",
                    size(bytes)
                )?;
            }
            None => writeln!(
                text,
                "this machine\n  does not say how much memory is available"
            )?,
        }
        Ok(text)
    }
}

impl Model {
    /// The generation settings of the owner, and their use here.
    fn write_generation(&self, text: &mut String) -> Result<()> {
        let Generation {
            file,
            by_flag,
            unknown,
            ..
        } = &self.generation;
        if !by_flag.is_empty() {
            let said: Vec<String> = by_flag.iter().map(ToString::to_string).collect();
            let flags: BTreeSet<&str> = by_flag.iter().filter_map(|own| own.flag).collect();
            let flags: Vec<&str> = flags.into_iter().collect();
            writeln!(
                text,
                "  {file} has {}; here {}, or fields of requests, say so",
                said.join(", "),
                flags.join(", ")
            )?;
        }
        if let Some(note) = self.generation.note(&[]) {
            writeln!(text, "  {note}")?;
        }
        if !unknown.is_empty() {
            let names = unknown.join(", ");
            writeln!(text, "  {file} has keys that are not known here: {names}")?;
        }
        Ok(())
    }

    fn write(&self, text: &mut String) -> Result<()> {
        let LmConfig {
            num_layers,
            hidden_size,
            intermediate_size,
            num_heads,
            num_kv_heads,
            head_dim,
            vocab_size,
            tie_word_embeddings,
            ..
        } = self.config;
        let architecture = serde_json::to_value(self.config.architecture)?;
        writeln!(
            text,
            "{}\n  {}, {:.1}M parameters: {num_layers} blocks of {hidden_size}, inner {intermediate_size}, {num_heads} heads of {head_dim} on {num_kv_heads}, vocabulary {vocab_size}, {} head",
            self.path.display(),
            architecture.as_str().unwrap_or("model"),
            self.parameters as f64 / 1e6,
            if tie_word_embeddings { "tied" } else { "own" },
        )?;
        match self.tokenizer {
            Some(tokens) => writeln!(text, "  tokenizer of {tokens} tokens")?,
            None => writeln!(text, "  no tokenizer.json: it cannot read or write text")?,
        }
        let ends = self.ends.iter().map(|end| {
            let from = end.from.join(", ");
            format!("{} {} ({from})", end.id, end.token)
        });
        let ends: Vec<String> = ends.collect();
        match (self.tokenizer, ends.is_empty()) {
            (None, _) => {}
            (Some(_), true) => writeln!(text, "  no token ends an answer")?,
            (Some(_), false) => writeln!(text, "  answers end at {}", ends.join("; "))?,
        }
        self.write_generation(text)?;
        match &self.files {
            Some(files) => writeln!(
                text,
                "  weights in {} {} file{}, {}, mostly {}",
                files.count,
                files.format,
                if files.count == 1 { "" } else { "s" },
                size(files.bytes),
                files
                    .encoding
                    .as_deref()
                    .unwrap_or("of a type that is not read"),
            )?,
            None => writeln!(text, "  no weights: sizes are those of its configuration")?,
        }
        writeln!(
            text,
            "  a context of {} tokens, of {}: KV cache in {} {}",
            self.context,
            self.config.max_context(),
            self.kv,
            size(self.kv_bytes as u64)
        )?;
        for memory in &self.memory {
            write!(
                text,
                "  {:<5} weights {:>9}, in all {:>9}",
                memory.weights,
                size(memory.weights_bytes as u64),
                size(memory.total_bytes as u64)
            )?;
            let compact = memory.compact_bytes.map(|bytes| size(bytes as u64));
            match (memory.weights, compact) {
                ("bf16", Some(bytes)) => {
                    writeln!(
                        text,
                        "; {bytes} of weights where they pack well, without loss"
                    )?;
                }
                ("f32", Some(bytes)) => writeln!(
                    text,
                    "; {bytes} of weights where they pack well, without loss: if bf16 holds each of them"
                )?,
                _ => writeln!(text)?,
            }
        }
        Ok(())
    }
}
