//! `omnidraft serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::args::{ThreadArgs, TorchArgs};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use lm::{Device, EngineSettings, KvType, WeightType};
use serve::{
    About, Expose, Http, LearnOptions, LearnScope, Limits, LookupScope, Options, RemoteOptions,
    Service, name_of,
};

use super::template::note_left_out;

/// Models and their use in a service; `serve` and `chat` share these arguments.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Target that answers: a model folder or hf:owner/name[@revision], or NAME=FOLDER; may be
    /// repeated. Requests use its name, by default the last part of the folder. torch: in front of a
    /// folder has a worker of PyTorch decode it, one sequence after the other.
    /// http://HOST:PORT[/NAME] is a target on another machine, where `omnidraft serve
    /// --expose-logits` runs.
    #[arg(long = "target", value_name = "[NAME=]DIR", required = true)]
    targets: Vec<String>,
    /// Model folder of the drafter, or hf:owner/name[@revision].
    #[arg(long, value_name = "DIR")]
    drafter: PathBuf,
    /// Folder for the learnt state, which the next start continues from.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Minutes between two saves of the state.
    #[arg(long, default_value_t = 5.0, value_name = "MINUTES")]
    save_every: f64,
    /// Change neither the drafter nor its n-grams. An answer then depends on its request alone,
    /// unless --adapt-length or --alternatives is given.
    #[arg(long)]
    no_learn: bool,
    /// Answers per update of the drafter.
    #[arg(long, default_value_t = 4, value_name = "ANSWERS")]
    learn_every: usize,
    /// Learning rate of the drafter. Default: 0.002, and for a drafter of 50 million parameters or
    /// more 0.0002, in its last blocks 0.0005.
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Maximum updates a minute; 0 for as many as there are answers for.
    #[arg(long, default_value_t = 0, value_name = "UPDATES")]
    learn_rate_limit: u32,
    /// Rank of low-rank adapters; 0 trains weights, for every target its own.
    #[arg(long, default_value_t = 0)]
    adapter_rank: usize,
    /// Last blocks of the drafter that learn, or have adapters, in a fraction of the time of all of
    /// them (0). Default: 2 for a drafter of 50 million parameters or more, otherwise all.
    #[arg(long, value_name = "BLOCKS")]
    learn_blocks: Option<usize>,
    /// Give every user of a target (field `user` of requests) an adapter; needs --adapter-rank.
    #[arg(long)]
    adapter_per_user: bool,
    /// Draft length; the maximum with --adapt-length. Without -k lengths are adapted, up to 8
    /// tokens, or 4 if nothing is learnt. Up to 2 more tokens complete an n-gram that the draft has
    /// begun.
    #[arg(long, short)]
    k: Option<usize>,
    /// End drafts where a further token is not worth its time, by an acceptance head that is
    /// trained for each target on the answers, and by measured costs of rounds.
    #[arg(long)]
    adapt_length: bool,
    /// Maximum tokens of a round, up to 16, that the target scores along with a draft while only one
    /// answer is in the making: second choices of the drafter, and looked-up text that goes on in
    /// another way. By default 8 if lengths are adapted, and otherwise none. For targets on the
    /// processor.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(0..=16))]
    alternatives: Option<usize>,
    /// Draft and learn at any cost. By default, if anything is learnt, the drafter rests while
    /// plain decoding is faster, and learning rests while it costs more than it saves.
    #[arg(long)]
    no_controller: bool,
    /// Let drafts begin with looked-up text, if that has paid: text of prompt and answer (own),
    /// also of earlier answers to the same user (user, as without a value; users are identified by
    /// the field `user` of requests, in `chat` there is one), or of those to all users (shared).
    /// By default it is own if anything is learnt, and otherwise none.
    #[arg(long, value_name = "SCOPE", num_args = 0..=1, default_missing_value = "user")]
    lookup: Option<Copies>,
    /// Maximum MiB of the earlier answers that are looked up; the oldest are dropped first.
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    lookup_mb: usize,
    /// Maximum tokens of an answer.
    #[arg(long, default_value_t = 1024)]
    max_tokens: usize,
    /// Maximum tokens of prompt and answer; the model's own limit if that is less.
    #[arg(long, default_value_t = 4096)]
    context: usize,
    /// Maximum MiB of an n-gram cache.
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    ngram_mb: usize,
    /// Maximum MiB of the answers that are kept for replay, for each target; and of those that wait
    /// to be learnt from.
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    examples_mb: usize,
    /// Maximum MiB of a saved state.
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
    /// For targets on other machines: number of most probable draft tokens that drafts are drawn
    /// from.
    #[arg(long, default_value_t = 16, value_name = "TOKENS")]
    draft_top: usize,
    /// For targets on other machines: number of most probable tokens of their distribution that
    /// come back for each token, to be learnt from.
    #[arg(long, default_value_t = 64, value_name = "TOKENS")]
    law_top: usize,
    /// Weight format while decoding.
    #[arg(long, default_value_t = WeightType::F32)]
    weights: WeightType,
    /// Weight format of the drafter, if that is another one: its steps cost less in fewer bits, and
    /// the answers have the same distribution.
    #[arg(long, value_name = "WEIGHTS")]
    draft_weights: Option<WeightType>,
    /// Format of keys and values: f32 or f16. A drafter with integer weights keeps them in f16.
    #[arg(long, default_value_t = KvType::F32)]
    kv: KvType,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Device of targets and drafter: cpu, gpu, or gpu:N for one of several, counted from 0.
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Cpu)]
    device: Device,
    #[command(flatten)]
    torch: TorchArgs,
}

/// Value of `--lookup`: the texts that an answer may copy from; `None` for no copies.
#[derive(Debug, Clone, Copy)]
struct Copies(Option<LookupScope>);

impl FromStr for Copies {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(Self(match name {
            "own" => Some(LookupScope::Own),
            "user" => Some(LookupScope::User),
            "shared" => Some(LookupScope::Shared),
            "none" => None,
            _ => return Err(format!("`{name}` is none of own, user, shared, none")),
        }))
    }
}

impl ServiceArgs {
    /// The texts that an answer may copy from. Where nothing is learnt the default is no copies,
    /// since an answer then depends on its request alone.
    fn lookup(&self) -> Option<LookupScope> {
        match self.lookup {
            Some(Copies(scope)) => scope,
            None => (!self.no_learn).then_some(LookupScope::Own),
        }
    }

    /// The options of a service with these arguments, for `parallel` sequences.
    pub fn options(&self, parallel: usize, queue: usize) -> Result<Options> {
        if !(self.save_every.is_finite() && self.save_every > 0.0 && self.save_every < 1e7) {
            bail!("--save-every {}: must be above 0", self.save_every);
        }
        let wrong = |rate: &f64| !(rate.is_finite() && *rate >= 0.0);
        if let Some(rate) = self.learning_rate.filter(wrong) {
            bail!("--learning-rate {rate}: must be 0 or more");
        }
        if self.adapter_per_user && self.no_learn {
            bail!(
                "--adapter-per-user with --no-learn: without learning the drafter is the same for all\nhint: leave one of them out"
            );
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
        // A draft of any fixed length slows decoding down until the drafter has learnt. If it does
        // not learn, an answer must depend on its request alone, so lengths do not adapt to others.
        let adapt_length = self.adapt_length || (self.k.is_none() && !self.no_learn);
        let engine = EngineSettings {
            kv: self.kv,
            context: Some(self.context),
            ..EngineSettings::new(self.weights, self.threads.count()).on(self.device)
        };
        let targets = self.targets.iter().map(|text| named(text));
        let targets: Vec<(String, PathBuf)> = targets.collect::<Result<_>>()?;
        Ok(Options {
            torch: self
                .torch
                .settings(targets.iter().map(|(_, path)| &**path), self.threads)?,
            targets,
            drafter: self.drafter.clone(),
            engine,
            draft_weights: self.draft_weights,
            draft_length: self.k.unwrap_or(if adapt_length { 8 } else { 4 }),
            adapt_length,
            alternatives: self
                .alternatives
                .unwrap_or(if adapt_length { 8 } else { 0 }),
            controller: !self.no_learn && !self.no_controller,
            lookup: self.lookup(),
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

/// A target with its own name or that of its folder.
pub(super) fn named(text: &str) -> Result<(String, PathBuf)> {
    // A target on another machine has its name from there.
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

/// This program and this machine, as in manifests of runs.
fn about() -> About {
    let build = crate::build::info();
    About {
        commit: build.short_commit(),
        version: build.version,
        machine: results::MachineInfo::collect().summary(),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft serve --target models/L --drafter models/D --state runs/served
  omnidraft serve --target llama=models/L --target qwen=models/Q --drafter models/D --port 8080
  omnidraft serve --target models/L --drafter models/D --no-learn --parallel 16 --threads 2
  omnidraft serve --target models/L --drafter models/D --host 0.0.0.0 --api-key KEY
  omnidraft serve --target models/L --drafter models/D --expose-logits
  omnidraft serve --target torch:models/L --torch-device cuda --torch-dtype bfloat16 --drafter models/D
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
    /// Key that every request must have.
    #[arg(long, env = "OMNIDRAFT_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Origin whose pages may read answers in a browser, such as http://localhost:3000; may be
    /// repeated; * for all.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Sequences decoded at once.
    #[arg(long, default_value_t = 8)]
    parallel: usize,
    /// Requests that may wait for a slot.
    #[arg(long, default_value_t = 64)]
    queue: usize,
    /// Seconds after which an answer is given up.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    timeout: u64,
    /// Maximum MiB of keys, values and activations of all sequences; 0 for no limit.
    #[arg(long, default_value_t = 0, value_name = "MIB")]
    memory_mb: usize,
    /// Verify drafts of other servers: for `--target http://...` on other machines. Whoever may
    /// connect then learns the targets' distributions.
    #[arg(long)]
    expose_logits: bool,
    /// With --expose-logits: number of sequences of other servers whose keys and values are kept.
    #[arg(long, default_value_t = 8)]
    sessions: usize,
    /// With --expose-logits: minutes after which an unused one is freed.
    #[arg(long, default_value_t = 10, value_name = "MINUTES")]
    session_minutes: u64,
    /// Maximum KiB of a request.
    #[arg(long, default_value_t = 1024, value_name = "KIB")]
    body_kb: usize,
}

impl ServeArgs {
    /// Serves until an interrupt.
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
            Some(folder) if self.service.no_learn => {
                eprintln!("stopped; the state in {} is as it was", folder.display());
            }
            Some(folder) => eprintln!("stopped; the state is saved in {}", folder.display()),
            None => eprintln!("stopped; nothing is kept (--state DIR keeps what was learnt)"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        service: ServiceArgs,
    }

    fn lookup(more: &[&str]) -> Result<Option<LookupScope>, clap::Error> {
        let line = ["serve", "--target", "T", "--drafter", "D"];
        let line = line.iter().chain(more).copied();
        Line::try_parse_from(line).map(|line| line.service.lookup())
    }

    #[test]
    fn a_target_has_a_name_of_its_own_before_a_first_slash() {
        for (text, name, path) in [
            ("one=models/L", "one", "models/L"),
            ("models/L", "L", "models/L"),
            ("a/b=c/L", "L", "a/b=c/L"),
            ("=models/L", "L", "=models/L"),
            ("http://host:1/L=M", "", "http://host:1/L=M"),
        ] {
            let found = named(text).unwrap();
            assert_eq!(found, (name.to_owned(), PathBuf::from(path)));
        }
    }

    #[test]
    fn a_service_that_learns_copies_from_prompt_and_answer_by_default() {
        use LookupScope::{Own, Shared, User};
        assert_eq!(lookup(&[]).unwrap(), Some(Own));
        assert_eq!(lookup(&["--no-learn"]).unwrap(), None);
        assert_eq!(lookup(&["--lookup", "none"]).unwrap(), None);
        assert_eq!(lookup(&["--lookup"]).unwrap(), Some(User));
        assert_eq!(
            lookup(&["--no-learn", "--lookup", "shared"]).unwrap(),
            Some(Shared)
        );
        let error = lookup(&["--lookup", "all"]).unwrap_err().to_string();
        assert!(error.contains("own, user, shared, none"), "{error}");
    }
}
