//! A remote target, served by `omnidraft serve --expose-logits` on another machine: the drafter
//! drafts here, the target verifies there, with one round trip per round.
//!
//! The request holds the draft in target tokens with the probabilities that verification needs
//! ([`SparseDraft`](spec_decode::SparseDraft)). The reply holds the number of accepted tokens, the
//! token after them and, if the drafter learns, the top of the target's distribution at each.

mod target;
pub(crate) mod wire;

use std::time::{Duration, Instant};

use models::{ModelText, TEXT_FILES};
use vocab_align::TargetId;

use crate::error::{Result, ServeError};

pub(crate) use target::RemoteTarget;
use wire::{Answers, ROUNDS, Round, Rounds, TARGETS, TargetInfo, VERSION};

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum bytes of a reply.
const MAX_REPLY_BYTES: u64 = 256 << 20;

/// True if a target is named by an address.
pub(crate) fn is_address(target: &std::path::Path) -> bool {
    let text = target.to_string_lossy();
    text.starts_with("http://") || text.starts_with("https://")
}

/// The connection to a target.
pub(crate) struct Remote {
    agent: ureq::Agent,
    /// Address without a slash at its end.
    url: String,
    key: Option<String>,
    /// The target's description.
    pub(crate) info: TargetInfo,
}

/// Number of round trips, bytes sent, bytes received, microseconds.
pub(crate) type Traffic = [u64; 4];

/// A name as a part of an address: bytes other than letters, digits and `plain` ones by their
/// codes.
fn encoded(name: &str, plain: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        let sign = char::from(byte);
        match sign.is_ascii_alphanumeric() || plain.contains(sign) {
            true => out.push(sign),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

impl Remote {
    /// Connects to a target: `http://host:port` for the server's first one, or
    /// `http://host:port/NAME`. Loads the files that are needed to write and read its tokens.
    pub(crate) fn connect(
        address: &str,
        key: Option<String>,
        timeout: Duration,
    ) -> Result<(Self, ModelText<TargetId>)> {
        let scheme = address.find("://").map_or(0, |at| at + 3);
        let (url, name) = match address[scheme..].split_once('/') {
            Some((host, name)) => (
                format!("{}{host}", &address[..scheme]),
                name.trim_end_matches('/'),
            ),
            None => (address.to_owned(), ""),
        };
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .build();
        let mut remote = Self {
            agent: config.into(),
            url,
            key,
            info: TargetInfo::default(),
        };
        let path = match name {
            "" => TARGETS.to_owned(),
            // The name may be encoded already, as addresses are.
            name => format!("{TARGETS}/{}", encoded(name, "-._~%")),
        };
        let info = remote.get(&path)?;
        let what = format!("{}{path}: no description of a target", remote.url);
        remote.info = serde_json::from_slice(&info).map_err(ServeError::of(what))?;
        if remote.info.version != VERSION {
            let (url, version) = (&remote.url, remote.info.version);
            return Err(ServeError::said(format!(
                "{url}: speaks version {version} of the protocol, and this program version {VERSION}\nhint: use the same version of omnidraft on both sides"
            )));
        }
        let text = remote.text()?;
        if text.vocabulary.len() > remote.info.vocab_size {
            let what = format!("{}: a tokenizer larger than its model", remote.url);
            return Err(ServeError::said(what));
        }
        Ok((remote, text))
    }

    /// Loads tokenizer and template through a temporary folder.
    fn text(&self) -> Result<ModelText<TargetId>> {
        let folder = tempfile::tempdir();
        let folder = folder.map_err(ServeError::of("a folder for the target's tokenizer"))?;
        let info = &self.info;
        let known = |file: &&&str| info.files.iter().any(|other| other == **file);
        let name = encoded(&info.name, "-._~");
        for file in TEXT_FILES.iter().filter(known) {
            let bytes = self.get(&format!("{TARGETS}/{name}/{file}"))?;
            let path = folder.path().join(file);
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| std::fs::write(path, bytes))
                .map_err(ServeError::of("the target's tokenizer"))?;
        }
        // Weights and architecture are the server's concern: only the text is read here.
        let text = ModelText::alone(folder.path(), info.vocab_size, info.context);
        let (mut text, _) = text.map_err(ServeError::of(format!("the files of {}", self.url)))?;
        if let Some(stop) = &info.stop {
            let most = text.template.max_prompt_tokens();
            text = text.with_ends(stop.iter().copied().collect(), most);
        }
        text.path = self.url.clone().into();
        Ok(text)
    }

    fn failed(&self, reason: impl std::fmt::Display) -> ServeError {
        let url = &self.url;
        ServeError::said(format!(
            "the target at {url} does not answer: {reason}\nhint: is `omnidraft serve --expose-logits` at work there, and is the way there open?"
        ))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let answer = request.call().map_err(|e| self.failed(e))?;
        self.body(answer)
    }

    fn body(&self, answer: ureq::http::Response<ureq::Body>) -> Result<Vec<u8>> {
        let status = answer.status();
        let bytes = answer
            .into_body()
            .into_with_config()
            .limit(MAX_REPLY_BYTES)
            .read_to_vec();
        let bytes = bytes.map_err(|e| self.failed(e))?;
        if status.is_success() {
            return Ok(bytes);
        }
        let said: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
        let said = said.and_then(|said| Some(said["error"]["message"].as_str()?.to_owned()));
        Err(ServeError::Refused {
            url: self.url.clone(),
            status,
            message: said.unwrap_or_default(),
        })
    }

    /// Sends rounds for verification, and returns them with the answers. After a broken connection
    /// it tries once more, so that the server may receive a round twice.
    pub(crate) fn verify(&self, rounds: Vec<Round>) -> (Vec<Round>, Traffic, Result<Answers>) {
        let rounds = Rounds {
            version: VERSION,
            target: self.info.name.clone(),
            rounds,
        };
        let mut traffic = Traffic::default();
        let answers = self.post(&rounds, &mut traffic);
        (rounds.rounds, traffic, answers)
    }

    fn post(&self, rounds: &Rounds, traffic: &mut Traffic) -> Result<Answers> {
        let clock = Instant::now();
        let body = postcard::to_stdvec(rounds).map_err(ServeError::of("a round"))?;
        let send = || {
            let mut request = self.agent.post(format!("{}{ROUNDS}", self.url));
            request = request.header("content-type", "application/octet-stream");
            if let Some(key) = &self.key {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            request.send(&body)
        };
        let sent = match send() {
            Err(ureq::Error::Timeout(what)) => Err(ureq::Error::Timeout(what)),
            Err(_) => send(),
            sent => sent,
        };
        let received = self.body(sent.map_err(|e| self.failed(e))?)?;
        let micros = clock.elapsed().as_micros() as u64;
        *traffic = [1, body.len() as u64, received.len() as u64, micros];
        let answers: Answers = postcard::from_bytes(&received)
            .map_err(|e| self.failed(format!("what it says is no answer: {e}")))?;
        match answers.len() == rounds.rounds.len() {
            true => Ok(answers),
            false => Err(self.failed("answers to other rounds")),
        }
    }
}
