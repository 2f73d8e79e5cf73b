//! `omnidraft generate`.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use ngram_cache::{CacheConfig, NgramCache};
use serde::Serialize;
use spec_decode::{
    Acceptance, History, LanguageModel, Pair, PlainConfig, Prompt, PromptLookup, Sampling, Session,
    SessionConfig, StreamName, TeacherSink, VerifyMode, decode_plain,
};
use vocab_align::{DraftId, TargetId, Utf8Stream, Vocabulary};

use bench::args::{DeviceArgs, ThreadArgs, TorchArgs, flag, parse_verify, print, write_out};
use bench::drafts;
use experiment::DecodeConfig;
use lm::{KvType, WeightType};
use models::{Engine, ModelFolder, TargetFolder, align};

use super::template::{TemplateArgs, note_left_out};

/// The option that applies a penalty of a model's owner.
const APPLIED_BY: &str = "--repetition-penalty";
/// Maximum draft length.
const MOST_DRAFTED: usize = 64;
/// With `--lookup`, a drafter that is worth less than the text drafts in one of so many rounds or
/// fewer.
const EXPLORE: usize = 16;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft generate --target models/L --prompt 'Give three tips for staying healthy.'
  omnidraft generate --target models/L --drafter models/D --prompt 'Add 2 and 3.' --verify exact
  omnidraft generate --target models/L --drafter models/D --prompt 'Repeat after me: tick tock tick' --lookup
  omnidraft generate --target models/L --prompt 'Repeat after me: tick tock tick' --verify prompt-lookup
  omnidraft generate --target hf:Qwen/Qwen2.5-0.5B-Instruct --drafter hf:HuggingFaceTB/SmolLM2-135M-Instruct --prompt 'Add 2 and 3.'
  omnidraft generate --target http://127.0.0.1:8666 --drafter models/D --prompt 'Add 2 and 3.'
  omnidraft generate --target models/L --drafter models/D --prompt 'Add 2 and 3.' --device gpu
  omnidraft generate --target hf:Qwen/Qwen3-0.6B --prompt 'Add 2 and 3.' --chat-template-kwargs '{\"enable_thinking\": false}'
  omnidraft generate --target torch:models/L --torch-device cpu --drafter models/D --prompt 'Add 2 and 3.'
  omnidraft generate --target models/L --prompt Hello --n 3 --temperature 0.8 --seed 7 --json")]
pub struct GenerateArgs {
    /// Model folder of the target, or hf:owner/name[@revision], with torch: in front of it for a
    /// worker of PyTorch; or http://HOST:PORT[/NAME], where `omnidraft serve --expose-logits` runs.
    #[arg(long, value_name = "DIR")]
    target: PathBuf,
    /// Model folder of the drafter, or hf:owner/name[@revision]; without one, decoding is plain.
    #[arg(long, value_name = "DIR")]
    drafter: Option<PathBuf>,
    /// The prompt.
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    #[command(flatten)]
    template: TemplateArgs,
    /// Maximum tokens of the answer.
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    /// Go on after tokens that end an answer, until --max-tokens.
    #[arg(long)]
    ignore_eos: bool,
    /// Sampling temperature; 0 is greedy.
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
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
    /// Above 1, tokens in prompt or answer become less probable (also at temperature 0).
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    repetition_penalty: f64,
    /// Seed of the random streams.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of answers.
    #[arg(long, default_value_t = 1)]
    n: u32,
    /// Draft tokens a round, 1 to 64.
    #[arg(long, short, default_value_t = 4, value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_DRAFTED as u64))]
    k: usize,
    /// Tokens that the target scores along with a draft, at most 16: second choices of the drafter,
    /// and with --lookup text that goes on in another way than the draft. A round gives more tokens
    /// as far as the target goes on so. For targets on the processor, and rounds that propose no
    /// looked-up tokens.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=16))]
    alternatives: usize,
    /// Verification mode: exact, paper, tli or slem. Or prompt-lookup: drafts are looked up in the
    /// text so far, without a drafter.
    #[arg(long, default_value = "exact")]
    verify: String,
    /// Acceptance rule above temperature 0: block (together, never fewer accepted in expectation)
    /// or token (one by one). The answer has the same distribution.
    #[arg(long, default_value_t = Acceptance::Block)]
    acceptance: Acceptance,
    /// Let drafts begin with text looked up in the prompt and the answers so far, if that has paid.
    #[arg(long)]
    lookup: bool,
    /// Weight format while decoding.
    #[arg(long, default_value_t = WeightType::F32)]
    weights: WeightType,
    /// Weight format of the drafter, if that is another one: its steps cost less in fewer bits, and
    /// the answer has the same distribution.
    #[arg(long, value_name = "WEIGHTS")]
    draft_weights: Option<WeightType>,
    /// Format of keys and values: f32 or f16. A drafter with integer weights keeps them in f16.
    #[arg(long, default_value_t = KvType::F32)]
    kv: KvType,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    torch: TorchArgs,
    /// Print JSON instead of streaming text.
    #[arg(long)]
    json: bool,
}

/// One answer.
#[derive(Debug, Serialize)]
struct Answer {
    text: String,
    prompt_ids: Vec<TargetId>,
    target_ids: Vec<TargetId>,
    rounds: usize,
    accepted: usize,
    proposed: usize,
    seconds: f64,
}

impl GenerateArgs {
    pub fn execute(self) -> Result<()> {
        if self.max_tokens == 0 || self.n == 0 {
            bail!("--max-tokens and --n must be at least 1");
        }
        let (mode, lookup) = parse_verify(&self.verify).map_err(|e| anyhow!("--verify: {e}"))?;
        if lookup && self.drafter.is_some() {
            bail!("--verify prompt-lookup drafts without a model; leave out --drafter");
        }
        if self.draft_weights.is_some() && self.drafter.is_none() {
            bail!("--draft-weights goes with --drafter");
        }
        if self.lookup && self.drafter.is_none() {
            bail!(
                "--lookup goes with --drafter\nhint: --verify prompt-lookup looks text up without one"
            );
        }
        let sampling = self.decode().sampling().map_err(flag)?;
        if self.target.to_string_lossy().starts_with("http") && !self.target.exists() {
            return self.remote(mode, sampling);
        }
        let mut target = self.torch.load(&self.target, self.threads)?;
        let mut drafter = self
            .drafter
            .as_deref()
            .map(ModelFolder::<DraftId>::load)
            .transpose()?;
        note_left_out(&target, &self.penalties(), APPLIED_BY);
        let (variables, system) = (self.template.variables()?, self.template.system());
        let needed = self.template.is_used();
        target.asked_with(&variables, system, needed)?;
        if let Some(drafter) = &mut drafter {
            // The drafter's prompt does not affect the answer, so that a refusal of its template is
            // ignored.
            drafter.text.asked_with(&variables, system, false).ok();
        }
        let answers = match &drafter {
            None if !lookup => self.plain(sampling, &target)?,
            drafter => self.speculate(mode, sampling, &target, drafter.as_ref())?,
        };
        self.close(&answers)
    }

    /// Prints the answers as JSON, or a summary after the text.
    fn close(&self, answers: &[Answer]) -> Result<()> {
        if self.json {
            return print(&format!("{:#}\n", serde_json::to_value(answers)?));
        }
        eprintln!("{}", took(answers));
        Ok(())
    }

    /// The target's engine, for a prompt of `prompt` tokens.
    fn target_engine(&self, target: &TargetFolder, prompt: usize) -> Result<Engine> {
        let mut settings = self.decode().engine().on(self.devices.target()?);
        let scaling = target.folder().map(|folder| &folder.config().rope.scaling);
        if scaling.is_some_and(|scaling| scaling.depends_on_context()) {
            // The context is the maximum that the text may need, so that a short one is decoded as
            // in transformers; it is the same with and without a drafter.
            settings.context = Some(prompt + self.max_tokens + MOST_DRAFTED + 1);
        }
        Ok(target.engine(settings)?)
    }

    /// Prints a note if the context of a model ends before --max-tokens.
    fn note_room(&self, role: &str, context: usize, prompt: usize) {
        let room = context.saturating_sub(prompt);
        if room < self.max_tokens {
            eprintln!(
                "note: the context of the {role} is {context} tokens and the prompt takes {prompt}: about {room} are left, fewer than --max-tokens {}",
                self.max_tokens
            );
        }
    }

    #[cfg(not(feature = "serve"))]
    fn remote(&self, _: VerifyMode, _: Sampling) -> Result<()> {
        bail!(
            "--target: this program was built without the feature `serve`, which asks other machines"
        )
    }

    /// Decodes with the target on another machine, like the server and `chat`.
    #[cfg(feature = "serve")]
    fn remote(&self, mode: VerifyMode, sampling: Sampling) -> Result<()> {
        use serve::{Event, Options, RemoteOptions, Request, Service};
        use std::time::Duration;

        let Some(drafter) = self.drafter.clone() else {
            bail!(
                "a target on another machine goes with --drafter\nhint: without one, ask the server there itself"
            );
        };
        if mode != VerifyMode::Exact || self.lookup || self.acceptance != Acceptance::Block {
            bail!("a target on another machine verifies by `exact`, in blocks, without --lookup");
        }
        self.torch.settings([&*self.target], self.threads)?;
        let device = self.devices.drafter_alone()?;
        let target = self.target.to_string_lossy().into_owned();
        let mut service = Service::start(Options {
            // Only the drafter is decoded here.
            engine: self.decode().drafter_engine(device),
            draft_length: self.k,
            parallel: 1,
            queue: 0,
            max_tokens: self.max_tokens,
            timeout: Duration::from_secs(24 * 3600),
            remote: RemoteOptions {
                key: std::env::var("OMNIDRAFT_TARGET_KEY").ok(),
                ..RemoteOptions::default()
            },
            ..Options::new("", target, drafter)
        })?;
        let models = service.models();
        note_left_out(&models.targets[0].text, &self.penalties(), APPLIED_BY);
        let system = self.template.system();
        let system = system.map(|text| models::Message::new("system", text));
        let user = models::Message::new("user", &self.prompt);
        let prompt: Vec<_> = system.into_iter().chain([user]).collect();
        let request = models::TemplateRequest {
            variables: self.template.variables()?,
            ..models::TemplateRequest::default()
        };
        let prompt = models.converse(0, &prompt, &request)?;
        let mut answers = Vec::new();
        for sample in 0..self.n {
            let mut events = service.submit(vec![Request {
                target: 0,
                prompt: prompt.clone(),
                sampling,
                max_tokens: self.max_tokens,
                ignore_eos: self.ignore_eos,
                stop: Vec::new(),
                seed: self.seed,
                sample,
                logprobs: None,
                drafting: true,
                user: String::new(),
            }])?;
            let (mut text, mut target_ids) = (String::new(), Vec::new());
            while let Some((_, event)) = events.blocking_recv() {
                match event {
                    Event::Piece(piece) => {
                        text.push_str(&piece.text);
                        target_ids.extend(piece.tokens.iter().map(|token| token.id));
                        if !self.json {
                            print(&piece.text)?;
                        }
                    }
                    Event::Done(done) => {
                        answers.push(Answer {
                            text,
                            prompt_ids: prompt.target.clone(),
                            target_ids,
                            rounds: done.rounds,
                            accepted: done.accepted,
                            proposed: done.proposed,
                            seconds: done.seconds,
                        });
                        break;
                    }
                    Event::Failed(error) => return Err(error.into()),
                }
            }
            if !self.json {
                print("\n")?;
            }
        }
        service.stop()?;
        self.close(&answers)
    }

    /// Keys of a `generation_config.json` that a flag has set.
    fn penalties(&self) -> Vec<&'static str> {
        let set = self.repetition_penalty != 1.0;
        set.then_some("repetition_penalty").into_iter().collect()
    }

    fn decode(&self) -> DecodeConfig {
        DecodeConfig {
            k: self.k,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            max_new_tokens: self.max_tokens,
            weights: self.weights,
            draft_weights: self.draft_weights,
            kv: self.kv,
            threads: self.threads.count(),
            ..DecodeConfig::default()
        }
    }

    fn name(&self, sample: u32) -> StreamName {
        StreamName {
            sample,
            ..StreamName::new(self.seed, 0)
        }
    }

    fn plain(&self, sampling: Sampling, target: &TargetFolder) -> Result<Vec<Answer>> {
        let prompt = target.encode(&target.template.render(&self.prompt)?)?;
        self.note_room("target", target.max_context(), prompt.len());
        let mut engine = self.target_engine(target, prompt.len())?;
        let stop = target.stop_tokens_unless(self.ignore_eos);
        let config = PlainConfig {
            sampling,
            max_new_tokens: self.max_tokens,
            stop,
        };
        (0..self.n)
            .map(|sample| {
                let mut stream = TextStream::new(&target.vocabulary, !self.json);
                let done = decode_plain(
                    &mut engine,
                    &prompt,
                    &config,
                    self.name(sample),
                    &mut stream,
                )?;
                stream.finish()?;
                Ok(Answer {
                    text: target.vocabulary.decode_lossy(&done.tokens),
                    prompt_ids: prompt.clone(),
                    rounds: done.tokens.len(),
                    target_ids: done.tokens,
                    accepted: 0,
                    proposed: 0,
                    seconds: done.decode_seconds,
                })
            })
            .collect()
    }

    /// Decodes with drafts of a model or, without one, from the text so far, in the target's own
    /// tokens.
    fn speculate(
        &self,
        mode: VerifyMode,
        sampling: Sampling,
        target: &TargetFolder,
        drafter: Option<&ModelFolder<DraftId>>,
    ) -> Result<Vec<Answer>> {
        let target_ids = target.encode(&target.template.render(&self.prompt)?)?;
        let draft_ids = match drafter {
            Some(drafter) => drafter.encode(&drafter.template.render(&self.prompt)?)?,
            None => target_ids.iter().map(|id| DraftId(id.0)).collect(),
        };
        self.note_room("target", target.max_context(), target_ids.len());
        if let Some(drafter) = drafter {
            self.note_room("drafter", drafter.config().max_context(), draft_ids.len());
        }
        let engine = self.target_engine(target, target_ids.len())?;
        let (drafter, pair): (Box<dyn LanguageModel>, Pair) = match drafter {
            Some(drafter) => {
                let settings = self.decode().drafter_engine(self.devices.drafter()?);
                (Box::new(drafter.engine(settings)?), align(drafter, target))
            }
            None => {
                let lookup = PromptLookup::new(engine.vocab_size());
                (Box::new(lookup), Pair::shared(target.vocabulary.clone()))
            }
        };
        let settings = SessionConfig {
            sampling,
            acceptance: self.acceptance,
            stop: target.stop_tokens_unless(self.ignore_eos),
            alternatives: self.alternatives,
            ..SessionConfig::new(mode, self.max_tokens)
        };
        let mut session = Session::new(drafter, engine, pair, settings)?;
        if self.lookup {
            session.look_up_in(History::default());
        }
        let prompt = Prompt {
            draft: &draft_ids,
            target: &target_ids,
        };
        let mut cache = NgramCache::new(CacheConfig::default());
        let mut drafts = drafts(self.k, self.lookup.then_some(EXPLORE));
        (0..self.n)
            .map(|sample| {
                let mut stream = TextStream::new(&target.vocabulary, !self.json);
                let done = session.generate(
                    prompt,
                    self.name(sample),
                    Some(&mut cache),
                    drafts.as_mut(),
                    &mut stream,
                )?;
                stream.finish()?;
                Ok(Answer {
                    text: target.vocabulary.decode_lossy(&done.tokens),
                    prompt_ids: target_ids.clone(),
                    target_ids: done.tokens,
                    rounds: done.totals.rounds,
                    accepted: done.totals.accepted,
                    proposed: done.totals.proposed,
                    seconds: done.totals.timings.total(),
                })
            })
            .collect()
    }
}

/// A summary of answers: `64 tokens in 30 rounds (2.13 a round), 34 of 120 drafted tokens accepted
/// (0.28), 512 tokens/s`.
fn took(answers: &[Answer]) -> String {
    let sum = |of: fn(&Answer) -> usize| answers.iter().map(of).sum::<usize>();
    let (tokens, rounds) = (sum(|own| own.target_ids.len()), sum(|own| own.rounds));
    let (accepted, proposed) = (sum(|own| own.accepted), sum(|own| own.proposed));
    let seconds: f64 = answers.iter().map(|own| own.seconds).sum();
    let speed = tokens as f64 / seconds.max(1e-9);
    match proposed {
        0 => format!("{tokens} tokens, nothing drafted, {speed:.0} tokens/s after the prompt"),
        _ => format!(
            "{tokens} tokens in {rounds} rounds ({:.2} a round), {accepted} of {proposed} drafted tokens accepted ({:.2}), {speed:.0} tokens/s after the prompt",
            tokens as f64 / rounds.max(1) as f64,
            accepted as f64 / proposed as f64,
        ),
    }
}

/// Prints tokens as they arrive, only in whole characters.
struct TextStream<'a> {
    vocabulary: &'a Vocabulary<TargetId>,
    text: Utf8Stream,
    visible: bool,
    /// The error of writing; a closed pipe only ends the display, not the answer.
    failed: Option<anyhow::Error>,
}

impl<'a> TextStream<'a> {
    fn new(vocabulary: &'a Vocabulary<TargetId>, visible: bool) -> Self {
        Self {
            vocabulary,
            text: Utf8Stream::default(),
            visible,
            failed: None,
        }
    }

    fn finish(mut self) -> Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None if !self.visible => Ok(()),
            None => print(&format!("{}\n", self.text.end())),
        }
    }
}

impl TeacherSink for TextStream<'_> {
    fn reads(&self) -> bool {
        false
    }

    fn record(&mut self, _index: usize, token: TargetId, _logits: &[f32]) {
        if !self.visible {
            return;
        }
        let bytes = self.vocabulary.bytes(token).unwrap_or_default();
        match write_out(&self.text.push(bytes)) {
            Ok(open) => self.visible = open,
            Err(error) => {
                self.visible = false;
                self.failed = Some(error);
            }
        }
    }
}
