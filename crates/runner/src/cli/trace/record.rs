//! `omnidraft trace record`: a target's answers to a task, in a trace that replays them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use ::trace::{DEFAULT_TAIL, FORMAT, Source, TraceInfo, Values, file_sha256};
use anyhow::{Context, Result, bail};
use clap::Args;
use lm::{EngineSettings, KvType, WeightType};
use models::{Talk, TargetFolder};
use sha2::{Digest, Sha256};
use streams::Split;
use vocab_align::TokenId;

use super::progress::Recording;
use super::prompts::{PromptArgs, program, spell, template_of};
use super::several::{Asked, Several};
use crate::cli::DataArgs;
use bench::args::{ThreadArgs, TorchArgs};

/// Tokens recorded at each position.
#[derive(Debug, Clone, Copy)]
pub(super) enum Top {
    /// The whole vocabulary, as logits.
    All,
    /// The K most probable ones.
    Some(usize),
}

impl FromStr for Top {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            text => match text.parse() {
                Ok(top) if top > 0 => Ok(Self::Some(top)),
                _ => Err("a number of at least 1, or `all`".to_owned()),
            },
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft trace record --target models/L --task mini-math --limit 50 --out traces/L-mini-math.parquet
  omnidraft trace record --target models/L --task gsm8k --data-dir DATA --split test --out traces/L-gsm8k-test.parquet
  omnidraft trace record --target models/L --task mini-math --limit 50 --seed 1,2,3 --top all --out traces/L-exact.parquet
  omnidraft trace record --target torch:models/L --torch-dtype float32 --task mini-math --limit 50 --out traces/L-torch.parquet

Records greedy answers. With --top all a replay equals the live run bit for bit, learning included;
with fewer tokens, whatever does not learn does. A call that was interrupted goes on when it is
typed again, and leaves the same file. With a larger --limit it adds prompts to a finished one.")]
pub struct RecordArgs {
    /// Model folder of the target, or hf:owner/name[@revision]; torch: in front of it for a worker
    /// of PyTorch.
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    #[command(flatten)]
    prompts: PromptArgs,
    /// K: tokens recorded at each position, or `all`.
    #[arg(long, default_value = "64", value_name = "K|all")]
    top: Top,
    /// Maximum tokens of an answer.
    #[arg(long, default_value_t = 256)]
    max_tokens: usize,
    /// Tokens recorded after an answer that is cut: as many as a round may propose there.
    #[arg(long, default_value_t = DEFAULT_TAIL)]
    tail: usize,
    /// Weight format while decoding.
    #[arg(long, default_value_t = WeightType::F32)]
    weights: WeightType,
    /// Format of keys and values: f32 or f16.
    #[arg(long, default_value_t = KvType::F32)]
    kv: KvType,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Answers at a time: weights are read once for a token of each. The file is the same.
    #[arg(long, default_value_t = 8, value_name = "N")]
    together: usize,
    /// File to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Stop after this many prompts; the next call continues there.
    #[arg(long, value_name = "N")]
    stop_after: Option<usize>,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    torch: TorchArgs,
}

impl RecordArgs {
    pub(super) fn execute(self, progress: bool) -> Result<()> {
        if self.max_tokens == 0 || self.together == 0 {
            bail!("--max-tokens and --together must be at least 1");
        }
        let target = self.torch.load(&self.target, self.threads)?;
        let info = self.info(&target)?;
        info.check(&self.out)?;
        let prompts = self.prompts.load(&self.data.source()?)?;
        let mut recording =
            Recording::open(&self.out, &info, prompts.len(), self.stop_after, progress)?;
        let settings = EngineSettings {
            kv: self.kv,
            context: Some(target.context_for(self.max_tokens + self.tail)),
            ..EngineSettings::new(self.weights, self.threads.count())
        };
        let mut several = Several::new(&target, settings, self.together, &info)?;
        // A conversation goes on with answers that this call may not have recorded itself.
        let mut asks = match prompts.iter().any(|prompt| !prompt.earlier.is_empty()) {
            true => Some((Talk::default(), target.engine(settings)?)),
            false => None,
        };
        let mut prompts = prompts.iter();
        loop {
            while several.has_room()
                && !recording.is_full()
                && let Some(prompt) = prompts.next()
            {
                let named = || format!("prompt `{}`", prompt.id);
                let before = match &mut asks {
                    Some((talk, engine)) => {
                        let long = (self.max_tokens, false);
                        let before = talk.before(&prompt.earlier, &target, engine, long);
                        before.with_context(named)?
                    }
                    None => Default::default(),
                };
                let (rendered, prompt_ids) =
                    spell(&target, before, &prompt.prompt).with_context(named)?;
                if recording.wants(&prompt.id, &prompt_ids) {
                    several.ask(Asked {
                        id: prompt.id.clone(),
                        prompt: rendered,
                        prompt_ids,
                    })?;
                }
            }
            if several.is_empty() {
                break;
            }
            for record in several.step()? {
                recording.push(&record)?;
            }
        }
        recording.finish()
    }

    fn info(&self, target: &TargetFolder) -> Result<TraceInfo> {
        let vocab_size = target.vocab_size();
        let (top, values) = match self.top {
            Top::All => (vocab_size, Values::Logits),
            Top::Some(top) if top == vocab_size => (top, Values::Logits),
            Top::Some(top) => (top, Values::LogProbs),
        };
        Ok(TraceInfo {
            format: FORMAT,
            source: Source::Model {
                name: self.target.display().to_string(),
                sha256: weights_sha256(&target.path)?,
                weights: match target.worker() {
                    Some(torch) => torch.facts().dtype.clone(),
                    None if self.kv == KvType::F32 => self.weights.to_string(),
                    None => format!("{}, keys and values {}", self.weights, self.kv),
                },
            },
            task: self.prompts.task.clone(),
            split: Split::from(self.prompts.split).name().to_owned(),
            tokenizer_sha256: file_sha256(Path::new(target.vocabulary.file()))?,
            template: template_of(target),
            max_prompt_tokens: target.template.max_prompt_tokens(),
            vocab_size,
            context: target.max_context(),
            stop: target.stop_tokens().iter().map(|id| id.get()).collect(),
            max_tokens: self.max_tokens,
            tail: self.tail,
            top,
            values,
            temperature: 0.0,
            program: program(),
        })
    }
}

/// SHA-256 over a line `NAME SHA256` for every file of weights, in the order of their names.
pub(super) fn weights_sha256(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if models::is_weight_file(&path) {
            files.push(path);
        }
    }
    files.sort();
    let mut hasher = Sha256::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        hasher.update(format!("{name} {}\n", file_sha256(&path)?));
    }
    Ok(format!("{:x}", hasher.finalize()))
}
