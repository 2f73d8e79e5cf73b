//! The pretraining recipe: one TOML file a model, kept beside the shipped weights it produced.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lm::host::Products;
use lm::{Architecture, LmConfig};
use serde::{Deserialize, Serialize};

use crate::CorpusSource;
use crate::cut::CutRecipe;
use models::PromptTemplate;

/// Everything that determines a model, apart from the data files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Root seed: weights, order of the documents.
    pub seed: u64,
    /// How text becomes tokens.
    pub tokenizer: TokenizerRecipe,
    /// The words around a prompt.
    #[serde(default)]
    pub template: PromptTemplate,
    /// Shape of the decoder.
    pub model: ModelRecipe,
    /// What it reads.
    pub data: DataRecipe,
    /// How it learns.
    pub train: TrainRecipe,
    /// How it unlearns loops behind that; absent: not at all.
    #[serde(default)]
    pub unlikelihood: Option<UnlikelihoodRecipe>,
}

/// Families of tokenizers that can be trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenizerStyle {
    /// Byte-level BPE as in Llama 3 and Qwen2.
    ByteLevel,
    /// BPE over characters with a visible space and byte fallback, as in Llama 2.
    Sentencepiece,
}

/// How the tokenizer is trained.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerRecipe {
    /// Family.
    pub style: TokenizerStyle,
    /// Tokens, specials included.
    pub vocab_size: usize,
    /// Longest run of digits in one token (1 to 3).
    pub digits: usize,
    /// Opens every text.
    pub bos: String,
    /// Ends every text; the template's end of turn must be it.
    pub eos: String,
    /// Further special tokens, such as chat markers.
    #[serde(default)]
    pub specials: Vec<String>,
    /// A `tokenizer.json` to take instead of training one, relative to the recipe, or a model of the
    /// hub (`hf:owner/name`): models of one family share theirs. The other keys must still describe it.
    #[serde(default)]
    pub from: Option<PathBuf>,
}

/// Shape of the decoder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecipe {
    /// Llama or Qwen2.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated MLP.
    pub intermediate_size: usize,
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Longest context, in tokens.
    pub max_positions: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
}

/// What the model reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataRecipe {
    /// `{ task = NAME }`, `{ text = PATH }`, the path relative to the data folder, or
    /// `{ trace = { file = PATH, tokenizer = PATH } }`, these relative to the recipe.
    pub sources: Vec<CorpusSource>,
    /// Share of the documents kept aside for measuring, in `[0, 1)`.
    pub held_out: f64,
}

/// How the model learns.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainRecipe {
    /// A model folder to begin with, relative to the recipe, in place of random weights: a later part of a training.
    /// Its shape must be that of `[model]`; moments start at zero. Its tokenizer is taken by `tokenizer.from`.
    #[serde(default)]
    pub from: Option<PathBuf>,
    /// A model folder to begin with, cut to some of its blocks. `[model]` and `tokenizer.vocab_size` must
    /// describe what is left; its tokenizer is taken unless `tokenizer.from` names another.
    #[serde(default)]
    pub cut: Option<CutRecipe>,
    /// Tokens seen by this recipe.
    pub tokens: u64,
    /// Sequences a step.
    pub batch: usize,
    /// Tokens a sequence.
    pub sequence: usize,
    /// Peak learning rate, reached after `warmup` steps, then a cosine down to a tenth.
    pub lr: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Gradients are scaled down to this norm.
    pub max_grad_norm: f64,
    /// What matrix products multiply: `"f32"`, or `"bf16"`, which is nearly twice as fast on processors with
    /// AVX-512 and bf16, and rounds the same on others.
    #[serde(default)]
    pub products: Products,
    /// Steps between measurements on held-out text.
    pub eval_every: u64,
    /// Steps between checkpoints.
    pub save_every: u64,
}

/// A last phase against loops. Small models decode greedily into text that repeats itself. Here the
/// model answers training prompts greedily, and tokens that end a 4-gram which the answer already had
/// are made less likely, beside text as before (sequence-level unlikelihood, Welleck et al. 2020). At all
/// other tokens of its answers it can be held to what it said before this phase: text of others does not
/// tell it how to go on after its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnlikelihoodRecipe {
    /// Steps behind those of `train`.
    pub steps: u64,
    /// Answers a step; their prompts are drawn from `tasks` alike.
    pub answers: usize,
    /// Tasks of `data.sources` whose prompts are answered; left out, all of them.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// Most tokens of an answer.
    pub answer_tokens: usize,
    /// Weight of the unwanted tokens' loss, which is a mean over all answered tokens.
    pub weight: f64,
    /// Weight of the divergence from the model as it was before this phase, KL(before || now), which is
    /// a mean over all answered tokens, 0 at unwanted ones.
    #[serde(default)]
    pub keep: f64,
    /// Learning rate of the first step, which falls in a line to a tenth.
    pub lr: f64,
}

impl Recipe {
    /// Reads and checks a recipe.
    ///
    /// # Errors
    /// Names the file and the line or key.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{}: cannot be read", path.display()))?;
        let mut recipe: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        if let Some(folder) = path.parent() {
            recipe.beside(folder);
        }
        recipe
            .validate()
            .with_context(|| path.display().to_string())?;
        Ok(recipe)
    }

    /// Takes paths from the folder of the recipe.
    fn beside(&mut self, folder: &Path) {
        if let (None, Some(cut)) = (&self.tokenizer.from, &self.train.cut) {
            self.tokenizer.from = Some(match hub::is_model_name(&cut.from) {
                true => cut.from.clone(),
                false => cut.from.join("tokenizer.json"),
            });
        }
        let cut = self.train.cut.as_mut().map(|cut| &mut cut.from);
        let begins = [&mut self.tokenizer.from, &mut self.train.from];
        let begins = begins.into_iter().flatten().chain(cut);
        for from in begins.filter(|from| !hub::is_model_name(from)) {
            *from = folder.join(&*from);
        }
        for source in &mut self.data.sources {
            if let CorpusSource::Trace(recorded) = source {
                recorded.file = folder.join(&recorded.file);
                recorded.tokenizer = folder.join(&recorded.tokenizer);
            }
        }
    }

    fn validate(&self) -> Result<()> {
        if self.train.from.is_some() && self.train.cut.is_some() {
            bail!("train.from and train.cut both say what to begin with; name one");
        }
        if !(1..=3).contains(&self.tokenizer.digits) {
            bail!(
                "tokenizer.digits = {} is outside 1..=3",
                self.tokenizer.digits
            );
        }
        if self.template.end_of_turn != self.tokenizer.eos {
            bail!(
                "template.end_of_turn must be tokenizer.eos (`{}`)",
                self.tokenizer.eos
            );
        }
        if self.train.sequence < 2 || self.train.batch == 0 {
            bail!("train.sequence must be at least 2 and train.batch at least 1");
        }
        if self.train.sequence > self.model.max_positions {
            bail!(
                "train.sequence exceeds model.max_positions = {}",
                self.model.max_positions
            );
        }
        if self.train.eval_every == 0 || self.train.save_every == 0 {
            bail!("train.eval_every and train.save_every must be at least 1");
        }
        if let Some(own) = &self.unlikelihood {
            if own.answers == 0 || own.answer_tokens == 0 {
                bail!("unlikelihood.answers and unlikelihood.answer_tokens must be at least 1");
            }
            if self.template.max_prompt_tokens + own.answer_tokens > self.model.max_positions {
                bail!(
                    "template.max_prompt_tokens + unlikelihood.answer_tokens exceed model.max_positions = {}",
                    self.model.max_positions
                );
            }
            let known = |task: &String| {
                let source = CorpusSource::Task(task.clone());
                self.data.sources.contains(&source)
            };
            if let Some(task) = own.tasks.iter().find(|task| !known(task)) {
                bail!("unlikelihood.tasks: `{task}` is no task of data.sources");
            }
            if !(own.weight.is_finite() && own.weight >= 0.0) {
                bail!("unlikelihood.weight = {} is no weight", own.weight);
            }
            if !(own.keep.is_finite() && own.keep >= 0.0) {
                bail!("unlikelihood.keep = {} is no weight", own.keep);
            }
        }
        Ok(())
    }

    /// Tokens a step.
    pub fn tokens_per_step(&self) -> u64 {
        (self.train.batch * self.train.sequence) as u64
    }

    /// Steps on text alone.
    pub fn text_steps(&self) -> u64 {
        self.train.tokens.div_ceil(self.tokens_per_step())
    }

    /// Steps in all.
    pub fn steps(&self) -> u64 {
        self.text_steps() + self.unlikelihood.as_ref().map_or(0, |own| own.steps)
    }

    /// Learning rate of step `step`, counted from 0.
    pub fn learning_rate(&self, step: u64) -> f64 {
        let train = &self.train;
        if let (Some(own), Some(behind)) = (&self.unlikelihood, step.checked_sub(self.text_steps()))
        {
            return own.lr * (1.0 - 0.9 * behind as f64 / own.steps.max(1) as f64);
        }
        if step < train.warmup {
            return train.lr * (step + 1) as f64 / train.warmup as f64;
        }
        let span = self.text_steps().saturating_sub(train.warmup).max(1) as f64;
        let progress = (step - train.warmup) as f64 / span;
        train.lr * (0.1 + 0.45 * (1.0 + (std::f64::consts::PI * progress.min(1.0)).cos()))
    }

    /// The model's `config.json`, given the ids of its opening and closing tokens.
    pub fn lm_config(&self, bos: u32, eos: u32) -> Result<LmConfig> {
        let model = &self.model;
        let json = serde_json::json!({
            "model_type": model.architecture,
            "hidden_size": model.hidden_size,
            "intermediate_size": model.intermediate_size,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "vocab_size": self.tokenizer.vocab_size,
            "max_position_embeddings": model.max_positions,
            "rms_norm_eps": 1e-5,
            "rope_theta": model.rope_theta,
            "tie_word_embeddings": model.tied,
            "bos_token_id": bos,
            "eos_token_id": eos,
        });
        Ok(LmConfig::from_json(
            &json.to_string(),
            &PathBuf::from("[model]"),
        )?)
    }
}
