//! The pretraining recipe: one TOML file per model, stored beside the weights it produced.

use std::path::{Path, PathBuf};

use lm::host::Products;
use lm::{Architecture, LmConfig};
use serde::{Deserialize, Serialize};

use crate::CorpusSource;
use crate::cut::CutRecipe;
use crate::error::{PretrainError, Result};
use models::PromptTemplate;

/// Everything that determines a model, apart from the data files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Root seed: of the weights, the order of the documents, and the prompts of the phase against
    /// loops.
    pub seed: u64,
    /// The tokenizer and its training.
    pub tokenizer: TokenizerRecipe,
    /// Chat template.
    #[serde(default)]
    pub template: PromptTemplate,
    /// Shape of the decoder.
    pub model: ModelRecipe,
    /// Sources of text.
    pub data: DataRecipe,
    /// Training schedule.
    pub train: TrainRecipe,
    /// Settings of the phase against loops, which follows the training on text; without them there
    /// is no such phase.
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

/// Settings of the tokenizer's training.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerRecipe {
    /// Family of the tokenizer.
    pub style: TokenizerStyle,
    /// Number of tokens, special tokens included.
    pub vocab_size: usize,
    /// Longest run of digits in one token (1 to 3).
    pub digits: usize,
    /// Token that opens every text.
    pub bos: String,
    /// Token that ends every text. The template's end of turn must be the same.
    pub eos: String,
    /// Further special tokens, such as chat markers.
    #[serde(default)]
    pub specials: Vec<String>,
    /// A `tokenizer.json` to use instead of training one, relative to the recipe, or a model of the
    /// hub (`hf:owner/name`). Models of one family share theirs. The other keys must still describe
    /// it.
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
    /// Number of blocks.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads.
    pub kv_heads: usize,
    /// True if the head shares the matrix of the embedding.
    pub tied: bool,
    /// Longest context, in tokens.
    pub max_positions: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
}

/// Sources of the text that the model is trained on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataRecipe {
    /// A list of `{ task = NAME }`; `{ text = PATH }`, with the path relative to the data folder;
    /// or `{ trace = { file = PATH, tokenizer = PATH } }`, with paths relative to the recipe.
    pub sources: Vec<CorpusSource>,
    /// Share of the documents held out for measuring, in `[0, 1)`.
    pub held_out: f64,
}

/// Training schedule.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainRecipe {
    /// A model folder, relative to the recipe, with the initial weights; random weights if left
    /// out. It makes this training the continuation of another. Its shape must be that of
    /// `[model]`; the optimiser's moments start at zero. Its tokenizer is named in
    /// `tokenizer.from`.
    #[serde(default)]
    pub from: Option<PathBuf>,
    /// A model folder whose weights, cut to some of its blocks, are the initial ones. `[model]` and
    /// `tokenizer.vocab_size` must describe the model that remains. Its tokenizer is taken unless
    /// `tokenizer.from` names another.
    #[serde(default)]
    pub cut: Option<CutRecipe>,
    /// Number of tokens seen by this training.
    pub tokens: u64,
    /// Number of sequences per step.
    pub batch: usize,
    /// Number of tokens per sequence.
    pub sequence: usize,
    /// Peak learning rate. It is reached after `warmup` steps and then falls as a cosine to a
    /// tenth.
    pub lr: f64,
    /// Number of steps of linear warm-up.
    pub warmup: u64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest norm of the gradients. Larger ones are scaled down to it.
    pub max_grad_norm: f64,
    /// Number format of the factors of matrix products: `"f32"`, or `"bf16"`, which is nearly twice
    /// as fast on processors with AVX-512 and bf16 and rounds in the same way on others.
    #[serde(default)]
    pub products: Products,
    /// Number of steps between measurements on held-out text.
    pub eval_every: u64,
    /// Number of steps between checkpoints.
    pub save_every: u64,
}

/// A last phase against loops: small models decode greedily into text that repeats itself.
///
/// In this phase the model answers training prompts greedily. Tokens that end a 4-gram which
/// occurred earlier in the answer are made less likely, while training on text continues
/// (sequence-level unlikelihood, Welleck et al. 2020). At all other tokens of its answers the model
/// can be held to its distribution before this phase, because text written by others does not teach
/// it how to continue its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnlikelihoodRecipe {
    /// Number of steps, which follow those of `train`.
    pub steps: u64,
    /// Number of answers per step. Their prompts are drawn from `tasks` with equal probability.
    pub answers: usize,
    /// Tasks of `data.sources` whose prompts are answered; if left out, all of them and the
    /// recorded targets.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// Largest number of tokens of an answer.
    pub answer_tokens: usize,
    /// Weight of the loss of the unwanted tokens, which is a mean over all answered tokens.
    pub weight: f64,
    /// Weight of the divergence KL(before || now) from the model before this phase. It is a mean
    /// over all answered tokens and 0 at unwanted ones.
    #[serde(default)]
    pub keep: f64,
    /// Learning rate of the first step. It falls linearly to a tenth.
    pub lr: f64,
}

impl Recipe {
    /// Reads and checks a recipe.
    ///
    /// # Errors
    /// A file that cannot be read, or a wrong key; the error names the file and the line or key.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(PretrainError::io_with(path, ": cannot be read"))?;
        let read = || -> Result<Self> {
            let mut recipe: Self = toml::from_str(&text)?;
            recipe.beside(path.parent().unwrap_or(path));
            recipe.validate()?;
            Ok(recipe)
        };
        read().map_err(|error| PretrainError::within(path.display().to_string(), error))
    }

    /// Makes relative paths relative to the folder of the recipe.
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
        let fault = |text: &str| Err(PretrainError::Fault(text.to_owned()));
        let context = self.model.max_positions;
        if self.train.from.is_some() && self.train.cut.is_some() {
            return fault("train.from and train.cut both say what to begin with; name one");
        }
        let digits = self.tokenizer.digits;
        if !(1..=3).contains(&digits) {
            return fault(&format!("tokenizer.digits = {digits} is outside 1..=3"));
        }
        let eos = &self.tokenizer.eos;
        if self.template.end_of_turn != *eos {
            return fault(&format!(
                "template.end_of_turn must be tokenizer.eos (`{eos}`)"
            ));
        }
        if self.train.sequence < 2 || self.train.batch == 0 {
            return fault("train.sequence must be at least 2 and train.batch at least 1");
        }
        if self.train.sequence > context {
            return fault(&format!(
                "train.sequence exceeds model.max_positions = {context}"
            ));
        }
        if self.train.eval_every == 0 || self.train.save_every == 0 {
            return fault("train.eval_every and train.save_every must be at least 1");
        }
        if let Some(own) = &self.unlikelihood {
            if own.answers == 0 || own.answer_tokens == 0 {
                return fault(
                    "unlikelihood.answers and unlikelihood.answer_tokens must be at least 1",
                );
            }
            // The opening token is not among those of a prompt here.
            if 1 + self.template.max_prompt_tokens + own.answer_tokens > context {
                return fault(&format!(
                    "1 + template.max_prompt_tokens + unlikelihood.answer_tokens exceed model.max_positions = {context}"
                ));
            }
            let known = |task: &String| {
                let source = CorpusSource::Task(task.clone());
                self.data.sources.contains(&source)
            };
            if let Some(task) = own.tasks.iter().find(|task| !known(task)) {
                return fault(&format!(
                    "unlikelihood.tasks: `{task}` is no task of data.sources"
                ));
            }
            for (key, value) in [
                ("unlikelihood.weight", own.weight),
                ("unlikelihood.keep", own.keep),
            ] {
                if !(value.is_finite() && value >= 0.0) {
                    return fault(&format!("{key} = {value} is no weight"));
                }
            }
        }
        Ok(())
    }

    /// Number of tokens per step.
    pub fn tokens_per_step(&self) -> u64 {
        (self.train.batch as u64).saturating_mul(self.train.sequence as u64)
    }

    /// Number of steps on text alone.
    pub fn text_steps(&self) -> u64 {
        self.train.tokens.div_ceil(self.tokens_per_step())
    }

    /// Number of all steps.
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

    /// The model's configuration, with these ids of its opening and closing tokens.
    ///
    /// # Errors
    /// A shape in `[model]` that is impossible.
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
