//! `omnidraft lawtest`: a test that the output of a pair of models has the target's distribution.

mod greedy;
mod prompts;
mod sampled;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use spec_decode::{
    Acceptance, DraftPolicy, History, LanguageModel, Pair, Prompt, PromptLookup, Sampling, Session,
    SessionConfig, VerifyMode,
};
use vocab_align::{DraftId, TargetId};

use crate::args::{DeviceArgs, ThreadArgs, TorchArgs, parse_verify};
use crate::{drafts, flag, print};
use experiment::DecodeConfig;
use lm::WeightType;
use models::{Engine, ModelFolder, TargetFolder, align};

/// A drafter that is worth less than looked-up text drafts in one of so many rounds or fewer.
const EXPLORE: usize = 8;

/// Arguments of `lawtest`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft lawtest --drafter models/D --target models/L --prompt 'Add 2 and 3.' --samples 20000
  omnidraft lawtest --drafter models/D --target models/L --verify paper --temperature 1 --samples 5000
  omnidraft lawtest --drafter models/D --target models/L --greedy --prompts 500
  omnidraft lawtest --drafter models/D --target torch:models/L --torch-device cpu --greedy --prompts 10

Sampled: the first tokens of many answers are counted in buckets whose probabilities under the
target's own law are computed exactly, and compared by a G-test, Holm-corrected over the modes.
Greedy: answers are compared with plain decoding, token for token. A worker of PyTorch gives rows
whose last bits depend on their number: first differences at ties (--tie) are counted, and pass.
The command fails where a mode differs from the target, except for `paper` when sampled.")]
pub struct LawtestArgs {
    /// Model folder of the target, or hf:owner/name[@revision]; torch: in front of it for a worker
    /// of PyTorch.
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, alias = "draft", value_name = "DIR")]
    drafter: PathBuf,
    /// Modes to test, separated by commas: exact, tli, slem, paper, prompt-lookup.
    #[arg(
        long,
        alias = "mode",
        value_delimiter = ',',
        default_value = "exact,tli,slem,prompt-lookup"
    )]
    verify: Vec<String>,
    /// Compare greedy answers with plain decoding instead of sampling.
    #[arg(long)]
    greedy: bool,
    /// Prompts to compare greedily: mini streams, mixed scripts, code and emoji.
    #[arg(long, default_value_t = 100)]
    prompts: usize,
    /// With --greedy: gap of the two best logits below which a first difference is a tie, and does
    /// not fail. Default: 0, and for a target of PyTorch, whose rows depend on their number, 0.001
    /// in float32, 0.05 in float16, 0.5 in other formats.
    #[arg(long, value_name = "GAP")]
    tie: Option<f32>,
    /// Prompt to answer when sampling.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "Give three tips for staying healthy."
    )]
    prompt: String,
    /// Answers to sample with each mode.
    #[arg(long, default_value_t = 20_000)]
    samples: u32,
    /// Tokens of an answer that are tested when sampling; with `--greedy`, tokens of an answer.
    #[arg(long)]
    tokens: Option<usize>,
    /// Continue after tokens that end an answer.
    #[arg(long)]
    ignore_eos: bool,
    /// Answers of 64 tokens that fill the n-gram cache before sampling.
    #[arg(long, default_value_t = 20)]
    warmup: u32,
    /// Chance of rejecting any mode wrongly.
    #[arg(long, default_value_t = 0.01, allow_negative_numbers = true)]
    alpha: f64,
    /// Sampling temperature.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    temperature: f64,
    /// Draw from the k most probable tokens only; 0 for all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Draw from the most probable tokens that together reach this share; 1 for all.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f64,
    /// Draw from tokens at least this probable relative to the most probable one; 0 for all.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    min_p: f64,
    /// Above 1, tokens in prompt or answer become less probable (also with --greedy).
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    repetition_penalty: f64,
    /// Draft length: number of draft tokens per round.
    #[arg(long, short, default_value_t = 4)]
    k: usize,
    /// Acceptance rule of a draft: token or block.
    #[arg(long, default_value_t = Acceptance::Token)]
    acceptance: Acceptance,
    /// Let drafts begin with text looked up in the prompt and the answers so far.
    #[arg(long)]
    lookup: bool,
    /// Seed of the random streams.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Weight format of the drafter; that of the target is f32.
    #[arg(long, value_name = "WEIGHTS")]
    draft_weights: Option<WeightType>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    torch: TorchArgs,
}

/// Both models, loaded.
struct Models {
    /// True if answers continue after tokens that end them.
    ignore_eos: bool,
    target: TargetFolder,
    drafter: ModelFolder<DraftId>,
    pair: Pair,
    shared: Pair,
    target_engine: Engine,
    drafter_engine: Engine,
}

/// A mode under test.
struct Mode {
    name: String,
    verify: VerifyMode,
    acceptance: Acceptance,
    /// True if drafts are looked up, without a drafter.
    drafterless: bool,
    /// True if drafts may begin with looked-up text.
    copies: bool,
}

/// A prompt in tokens of both models.
struct Ids {
    draft: Vec<DraftId>,
    target: Vec<TargetId>,
    /// The target's tokens, as those of a drafter with its vocabulary.
    shared: Vec<DraftId>,
}

impl Ids {
    /// The prompt as the models of this mode read it.
    fn of(&self, mode: &Mode) -> Prompt<'_> {
        Prompt {
            draft: match mode.drafterless {
                true => &self.shared,
                false => &self.draft,
            },
            target: &self.target,
        }
    }
}

impl Mode {
    /// Drafts of this mode, for one session.
    fn drafts(&self, k: usize) -> Box<dyn DraftPolicy> {
        drafts(k, self.copies.then_some(EXPLORE))
    }
}

impl LawtestArgs {
    /// Tests and prints JSON.
    pub fn execute(self) -> Result<()> {
        if self.samples == 0 || self.prompts == 0 || self.k == 0 {
            bail!("--samples, --prompts and --k must be at least 1");
        }
        if self.tokens == Some(0) {
            bail!("--tokens must be at least 1");
        }
        if !(self.alpha > 0.0 && self.alpha < 1.0) {
            bail!("--alpha {}: must be between 0 and 1", self.alpha);
        }
        let modes = self.modes()?;
        let decode = self.decode();
        let sampling = decode.sampling().map_err(flag)?;
        if !self.greedy && sampling.is_greedy() {
            bail!("--temperature 0 leaves nothing to sample; use --greedy");
        }
        let target = self.torch.load(&self.target, self.threads)?;
        let drafter: ModelFolder<DraftId> = ModelFolder::load(&self.drafter)?;
        let mut models = Models {
            ignore_eos: self.ignore_eos,
            pair: align(&drafter, &target),
            shared: Pair::shared(target.vocabulary.clone()),
            target_engine: target.engine(decode.engine().on(self.devices.target()?))?,
            drafter_engine: drafter.engine(decode.drafter_engine(self.devices.drafter()?))?,
            target,
            drafter,
        };
        let (report, failed) = if self.greedy {
            greedy::run(&self, &modes, &mut models)?
        } else {
            sampled::run(&self, &modes, sampling, &mut models)?
        };
        print(&format!("{report:#}\n"))?;
        if failed.is_empty() {
            return Ok(());
        }
        bail!("not the target's output: {}", failed.join(", "))
    }

    fn modes(&self) -> Result<Vec<Mode>> {
        self.verify
            .iter()
            .map(|name| {
                let (verify, drafterless) =
                    parse_verify(name).map_err(|e| anyhow!("--verify: {e}"))?;
                Ok(Mode {
                    name: name.clone(),
                    verify,
                    acceptance: self.acceptance,
                    drafterless,
                    copies: self.lookup && !drafterless,
                })
            })
            .collect()
    }

    fn decode(&self) -> DecodeConfig {
        DecodeConfig {
            k: self.k,
            temperature: if self.greedy { 0.0 } else { self.temperature },
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            weights: WeightType::F32,
            draft_weights: self.draft_weights,
            threads: self.threads.count(),
            ..DecodeConfig::default()
        }
    }
}

impl Models {
    /// The gap of the two best logits that rounding may close: none in an engine of this program.
    fn tie(&self) -> f32 {
        match self
            .target
            .worker()
            .map(|torch| torch.facts().dtype.as_str())
        {
            None => 0.0,
            Some("float32") => 1e-3,
            Some("float16") => 0.05,
            Some(_) => 0.5,
        }
    }

    fn ids(&self, prompt: &str) -> Result<Ids> {
        let target = self.target.encode(&self.target.template.render(prompt)?)?;
        Ok(Ids {
            draft: self
                .drafter
                .encode(&self.drafter.template.render(prompt)?)?,
            shared: target.iter().map(|id| DraftId(id.0)).collect(),
            target,
        })
    }

    fn settings(&self, mode: &Mode, sampling: Sampling, tokens: usize) -> SessionConfig {
        SessionConfig {
            sampling,
            acceptance: mode.acceptance,
            stop: self.target.stop_tokens_unless(self.ignore_eos),
            learn_ngrams: false,
            ..SessionConfig::new(mode.verify, tokens)
        }
    }

    /// A session of this mode.
    fn session(
        &mut self,
        mode: &Mode,
        settings: SessionConfig,
    ) -> Result<Session<Box<dyn LanguageModel + '_>, &mut Engine>> {
        let target = &mut self.target_engine;
        let lookup = PromptLookup::new(target.vocab_size());
        let (drafter, pair): (Box<dyn LanguageModel + '_>, &Pair) = match mode.drafterless {
            true => (Box::new(lookup), &self.shared),
            false => (Box::new(&mut self.drafter_engine), &self.pair),
        };
        let mut session = Session::new(drafter, target, pair.clone(), settings)?;
        if mode.copies {
            session.look_up_in(History::default());
        }
        Ok(session)
    }
}
