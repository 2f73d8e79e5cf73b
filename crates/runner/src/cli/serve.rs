//! `omnidraft serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use experiment::{KvFormat, WeightFormat};
use lm::{Device, EngineSettings, WeightType};
use serve::{
    About, Expose, Http, LearnOptions, LearnScope, Limits, LookupScope, Options, RemoteOptions,
    Service, name_of,
};

use super::template::note_left_out;

/// Models and what becomes of them while they answer; `serve` and `chat` share it.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Target that answers: a model folder or hf:owner/name[@revision], or NAME=FOLDER; may be
    /// repeated. Requests call it by its name, the folder's last part where none is given.
    /// http://HOST:PORT[/NAME] is a target on another machine, where `omnidraft serve
    /// --expose-logits` runs.
    #[arg(long = "target", value_name = "[NAME=]DIR", required = true)]
    targets: Vec<String>,
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    drafter: PathBuf,
    /// Folder in which what the drafter learns is kept, and found again at the next start.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Minutes between two savings of the state.
    #[arg(long, default_value_t = 5.0, value_name = "MINUTES")]
    save_every: f64,
    /// Change neither the drafter nor its n-grams. An answer then depends on its request alone.
    #[arg(long)]
    no_learn: bool,
    /// Answers that an update of the drafter learns from.
    #[arg(long, default_value_t = 4, value_name = "ANSWERS")]
    learn_every: usize,
    /// Learning rate of the drafter. Left out: 0.002, and for a drafter of 50 million parameters or more
    /// 0.0002, in its last blocks 0.0005.
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Most updates a minute; 0 for as many as there are answers for.
    #[arg(long, default_value_t = 0, value_name = "UPDATES")]
    learn_rate_limit: u32,
    /// Rank of low-rank adapters; 0 trains weights, for every target its own.
    #[arg(long, default_value_t = 0)]
    adapter_rank: usize,
    /// Last blocks of the drafter that learn, or have adapters, in a fraction of the time of all of them
    /// (0). Left out: 2 for a drafter of 50 million parameters or more, otherwise all.
    #[arg(long, value_name = "BLOCKS")]
    learn_blocks: Option<usize>,
    /// Give every user of a target (field `user` of requests) an adapter; needs --adapter-rank.
    #[arg(long)]
    adapter_per_user: bool,
    /// Draft tokens of every round; the most, with --adapt-length. Without -k drafts are adapted, up to
    /// 8 tokens; where nothing is learnt they have 4.
    #[arg(long, short)]
    k: Option<usize>,
    /// End drafts where a further token is not worth its time, by an acceptance head that is trained
    /// for each target from the answers, and by what rounds are found to take.
    #[arg(long)]
    adapt_length: bool,
    /// Draft and learn whatever it costs. Otherwise, where anything is learnt, the drafter rests while
    /// plain decoding is faster, and learning rests while it costs more than it saves.
    #[arg(long)]
    no_controller: bool,
    /// Let drafts begin with text looked up where that has paid: in prompt and answer (own), in
    /// earlier answers to the same user as well (user, as without a value; users are told apart by
    /// the field `user` of requests, in `chat` there is one), or in those to all users (shared).
    #[arg(long, value_name = "SCOPE", num_args = 0..=1, default_missing_value = "user")]
    lookup: Option<LookupScope>,
    /// Most MiB of the texts of earlier answers that are looked up; the oldest leave first.
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    lookup_mb: usize,
    /// Most tokens of an answer.
    #[arg(long, default_value_t = 1024)]
    max_tokens: usize,
    /// Most tokens of prompt and answer; the model's own limit if that is less.
    #[arg(long, default_value_t = 4096)]
    context: usize,
    /// Most MiB of an n-gram cache.
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    ngram_mb: usize,
    /// Most MiB of the answers that are kept to be learnt from again, for each target; and of those
    /// that wait to be learnt from.
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    examples_mb: usize,
    /// Most MiB of a saved state.
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    state_mb: u64,
    /// API key of targets on other machines.
    #[arg(
        long,
        env = "OMNIDRAFT_TARGET_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    target_key: Option<String>,
    /// For targets on other machines: most probable draft tokens that drafts are drawn from.
    #[arg(long, default_value_t = 16, value_name = "TOKENS")]
    draft_top: usize,
    /// For targets on other machines: most probable tokens of their law that come back for each
    /// token, to be learnt from.
    #[arg(long, default_value_t = 64, value_name = "TOKENS")]
    law_top: usize,
    /// Weight storage while decoding.
    #[arg(long, default_value_t = WeightFormat::F32)]
    weights: WeightFormat,
    /// Weight storage of the drafter, if that is another: its steps cost less in fewer bits, and the law
    /// of the answers is the same.
    #[arg(long, value_name = "WEIGHTS")]
    draft_weights: Option<WeightFormat>,
    /// Storage of keys and values: f32 or f16.
    #[arg(long, default_value_t = KvFormat::F32)]
    kv: KvFormat,
    /// Threads of the decode engine.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Where targets and drafter are decoded: cpu, gpu, or gpu:N for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Cpu)]
    device: Device,
}

impl ServiceArgs {
    /// These arguments as a service takes them, for `parallel` sequences.
    pub fn options(&self, parallel: usize, queue: usize) -> Result<Options> {
        if !(self.save_every.is_finite() && self.save_every > 0.0 && self.save_every < 1e7) {
            bail!("--save-every {}: must be above 0", self.save_every);
        }
        let wrong = |rate: &f64| !(rate.is_finite() && *rate >= 0.0);
        if let Some(rate) = self.learning_rate.filter(wrong) {
            bail!("--learning-rate {rate}: must be 0 or more");
        }
        if self.adapter_per_user && self.adapter_rank == 0 {
            bail!("--adapter-per-user needs adapters\nhint: add --adapter-rank 8");
        }
        let some = self.learn_blocks.filter(|blocks| *blocks > 0);
        if let Some(blocks) = some.filter(|_| !self.device.is_cpu()) {
            bail!(
                "--learn-blocks {blocks}: a graphics device does not keep what enters a block\nhint: leave it out, or decode with --device cpu"
            );
        }
        models::check_device(self.device)?;
        let learn = LearnOptions {
            every: self.learn_every,
            rate: self.learning_rate,
            rank: self.adapter_rank,
            blocks: self.learn_blocks,
            updates_per_minute: (self.learn_rate_limit > 0).then_some(self.learn_rate_limit),
            scope: match self.adapter_per_user {
                true => LearnScope::User,
                false => LearnScope::Target,
            },
        };
        // A draft of any given length is slower than none until the drafter has learnt. Where it does not
        // learn, an answer is to depend on its request alone, so nothing may adapt to others.
        let adapt_length = self.adapt_length || (self.k.is_none() && !self.no_learn);
        let engine = EngineSettings {
            kv: self.kv.into(),
            context: Some(self.context),
            ..EngineSettings::new(self.weights.into(), self.threads).on(self.device)
        };
        Ok(Options {
            targets: self
                .targets
                .iter()
                .map(|text| named(text))
                .collect::<Result<_>>()?,
            drafter: self.drafter.clone(),
            engine,
            draft_weights: self.draft_weights.map(WeightType::from),
            draft_length: self.k.unwrap_or(if adapt_length { 8 } else { 4 }),
            adapt_length,
            controller: !self.no_learn && !self.no_controller,
            lookup: self.lookup,
            lookup_bytes: self.lookup_mb << 20,
            parallel,
            queue,
            max_tokens: self.max_tokens,
            timeout: Duration::from_secs(600),
            memory: None,
            ngram_bytes: self.ngram_mb << 20,
            example_bytes: self.examples_mb << 20,
            learn: (!self.no_learn).then_some(learn),
            state: self.state.clone(),
            save_every: Duration::from_secs_f64(self.save_every * 60.0),
            state_bytes: self.state_mb << 20,
            remote: RemoteOptions {
                key: self.target_key.clone(),
                draft_top: self.draft_top,
                law_top: self.law_top,
                ..RemoteOptions::default()
            },
            expose: None,
        })
    }
}

/// A target by its own name or that of its folder.
fn named(text: &str) -> Result<(String, PathBuf)> {
    // One on another machine is called as it is there.
    if text.starts_with("http://") || text.starts_with("https://") {
        return Ok((String::new(), PathBuf::from(text)));
    }
    // A folder may have a `=` in it, but not before its first slash.
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Ok((name_of(Path::new(text))?, PathBuf::from(text))),
    }
}

/// One answer at a time of a target on another machine, without learning.
pub fn far_options(
    target: String,
    drafter: PathBuf,
    engine: EngineSettings,
    draft_length: usize,
    max_tokens: usize,
) -> Options {
    Options {
        targets: vec![(String::new(), PathBuf::from(target))],
        drafter,
        engine,
        draft_weights: None,
        draft_length,
        adapt_length: false,
        controller: false,
        lookup: None,
        lookup_bytes: 0,
        parallel: 1,
        queue: 0,
        max_tokens,
        timeout: Duration::from_secs(24 * 3600),
        memory: None,
        ngram_bytes: 64 << 20,
        example_bytes: 0,
        learn: None,
        state: None,
        save_every: Duration::from_secs(24 * 3600),
        state_bytes: 0,
        remote: RemoteOptions {
            key: std::env::var("OMNIDRAFT_TARGET_KEY").ok(),
            ..RemoteOptions::default()
        },
        expose: None,
    }
}

/// This program and this machine, as manifests of runs have them.
fn about() -> About {
    let build = crate::build::info();
    About {
        commit: build.short_commit(),
        version: build.version,
        machine: results::MachineInfo::collect().summary(),
    }
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft serve --target models/L --drafter models/D --state runs/served
  omnidraft serve --target llama=models/L --target qwen=models/Q --drafter models/D --port 8080
  omnidraft serve --target models/L --drafter models/D --no-learn --parallel 16 --threads 2
  omnidraft serve --target models/L --drafter models/D --host 0.0.0.0 --api-key KEY
  omnidraft serve --target models/L --drafter models/D --expose-logits
  omnidraft serve --target http://127.0.0.1:8666 --drafter models/D --port 8667

  curl http://127.0.0.1:8666/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Add 2 and 3.\"}], \"stream\": true}'

http://127.0.0.1:8666/ is a page to talk to it, /metrics what it counts.")]
pub struct ServeArgs {
    #[command(flatten)]
    service: ServiceArgs,
    /// Address to listen on; other ones than loopback need an --api-key.
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port; 0 takes a free one and prints it.
    #[arg(long, default_value_t = 8666)]
    port: u16,
    /// Key that every request must bring.
    #[arg(long, env = "OMNIDRAFT_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Origin whose pages may read answers in a browser, such as http://localhost:3000; may be
    /// repeated; * for all.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Sequences decoded at once.
    #[arg(long, default_value_t = 8)]
    parallel: usize,
    /// Requests that may wait for a place.
    #[arg(long, default_value_t = 64)]
    queue: usize,
    /// Seconds after which an answer is given up.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    timeout: u64,
    /// Most MiB that keys, values and activations of all sequences may take; 0 for no limit.
    #[arg(long, default_value_t = 0, value_name = "MIB")]
    memory_mb: usize,
    /// Judge drafts that are made elsewhere: for `--target http://...` on other machines. Who may
    /// ask then learns the targets' laws.
    #[arg(long)]
    expose_logits: bool,
    /// With --expose-logits: sequences whose keys and values are kept for others.
    #[arg(long, default_value_t = 8)]
    sessions: usize,
    /// With --expose-logits: minutes after which an unused one is forgotten.
    #[arg(long, default_value_t = 10, value_name = "MINUTES")]
    session_minutes: u64,
    /// Most KiB of a request.
    #[arg(long, default_value_t = 1024, value_name = "KIB")]
    body_kb: usize,
}

impl ServeArgs {
    /// Serves until it is interrupted.
    pub fn execute(self) -> Result<()> {
        let mut options = self.service.options(self.parallel, self.queue)?;
        options.timeout = Duration::from_secs(self.timeout.max(1));
        options.memory = (self.memory_mb > 0).then_some(self.memory_mb << 20);
        options.expose = self.expose_logits.then_some(Expose {
            sessions: self.sessions,
            idle: Duration::from_secs(60 * self.session_minutes.max(1)),
        });
        let address = SocketAddr::new(self.host, self.port);
        if self.api_key.as_deref() == Some("") {
            bail!("--api-key: an empty key protects nothing");
        }
        let http = Http {
            address,
            api_key: self.api_key,
            limits: Limits {
                body: self.body_kb << 10,
                ..Limits::default()
            },
            about: about(),
            origins: self.allow_origin,
        };
        http.check()?;
        let service = Service::start(options)?;
        for target in &service.models().targets {
            note_left_out(&target.text, &[], "in a request, repetition_penalty");
        }
        let targets = service.models().targets.iter();
        let names: Vec<String> = targets.map(|target| target.name.clone()).collect();
        let ready = |address: SocketAddr| {
            eprintln!("serving {} on http://{address}", names.join(", "));
        };
        serve::serve(service, http, ready, serve::interrupted()).context("the server")?;
        match &self.service.state {
            Some(folder) => eprintln!("stopped; the state is saved in {}", folder.display()),
            None => eprintln!("stopped; nothing is kept (--state DIR keeps what was learnt)"),
        }
        Ok(())
    }
}
