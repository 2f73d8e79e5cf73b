//! Requests as clients send them, and what they come to once checked.

use models::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spec_decode::{Sampling, SamplingOptions};

use crate::ask::Ask;
use crate::error::ApiError;
use crate::models::Encoded;
use crate::service::Service;

/// Most answers to one prompt, and most answers of a request.
const MOST_ANSWERS: usize = 16;
/// Most stop strings, and most bytes of one.
const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 256;
/// Most messages of a conversation.
const MOST_MESSAGES: usize = 1024;
/// Most probabilities beside a token.
const MOST_LOGPROBS: usize = 20;

/// Which of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// A checked request.
pub(super) struct Parsed {
    pub(super) kind: Kind,
    /// Name of the target.
    pub(super) model: String,
    pub(super) target: usize,
    /// One an answer, in their order.
    pub(super) asks: Vec<Ask>,
    pub(super) stream: bool,
    /// Whether a stream ends with a chunk of usage.
    pub(super) usage: bool,
    /// Whether pieces say where their tokens came from.
    pub(super) origins: bool,
}

/// One value or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

#[derive(Deserialize)]
struct ChatBody {
    messages: Vec<ChatMessage>,
    max_completion_tokens: Option<u64>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
    #[serde(flatten)]
    common: Common,
}

#[derive(Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Deserialize)]
struct TextBody {
    prompt: PromptBody,
    logprobs: Option<u64>,
    echo: Option<bool>,
    best_of: Option<u64>,
    suffix: Option<String>,
    #[serde(flatten)]
    common: Common,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PromptBody {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

/// What both interfaces know.
#[derive(Deserialize)]
struct Common {
    model: Option<String>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u64>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    logit_bias: Option<Value>,
    tools: Option<Value>,
    response_format: Option<Value>,
    seed: Option<i64>,
    n: Option<u64>,
    stop: Option<OneOrMany<String>>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    user: Option<String>,
    /// Ours: `false` decodes without the drafter.
    drafter: Option<bool>,
    /// Ours: where tokens came from.
    include_origins: Option<bool>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Reads and checks a body.
pub(super) fn parse(kind: Kind, body: &[u8], service: &Service) -> Result<Parsed, ApiError> {
    match kind {
        Kind::Chat => chat(read(body)?, service),
        Kind::Text => text(read(body)?, service),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // First as JSON: a flattened structure does not say where a text stops being JSON.
    let value: Value = serde_json::from_slice(body).map_err(|e| malformed("", &e))?;
    serde_path_to_error::deserialize(&value)
        .map_err(|e| malformed(&e.path().to_string(), e.inner()))
}

fn malformed(path: &str, error: &serde_json::Error) -> ApiError {
    let place = match path {
        "" | "." => String::new(),
        path => format!("{path}: "),
    };
    ApiError::Malformed(format!("{place}{error}").chars().take(500).collect())
}

fn chat(body: ChatBody, service: &Service) -> Result<Parsed, ApiError> {
    let ChatBody {
        messages,
        max_completion_tokens,
        logprobs,
        top_logprobs,
        mut common,
    } = body;
    common.max_tokens = max_completion_tokens.or(common.max_tokens);
    let target = service.models().find(common.model.as_deref())?;
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        let message = format!(
            "there must be 1 to {MOST_MESSAGES} messages, not {}",
            messages.len()
        );
        return Err(ApiError::invalid("messages", message));
    }
    let logprobs = match (logprobs, top_logprobs) {
        (Some(true), top) => Some(count("top_logprobs", top.unwrap_or(0), 0, MOST_LOGPROBS)?),
        (_, Some(_)) => {
            let message = "needs `logprobs: true`";
            return Err(ApiError::invalid("top_logprobs", message));
        }
        _ => None,
    };
    let said: Vec<(String, String)> = messages
        .into_iter()
        .map(|message| Ok((message.role, spoken(message.content)?)))
        .collect::<Result<_, ApiError>>()?;
    let turns: Vec<Message<'_>> = said
        .iter()
        .map(|(role, content)| Message { role, content })
        .collect();
    let prompt = service.models().converse(target, &turns)?;
    finish(Kind::Chat, common, target, vec![prompt], logprobs, service)
}

/// The text of a message.
fn spoken(content: Option<Content>) -> Result<String, ApiError> {
    match content {
        None => Ok(String::new()),
        Some(Content::Text(text)) => Ok(text),
        Some(Content::Parts(parts)) => {
            let mut all = String::new();
            for part in parts {
                match part.text {
                    Some(text) if part.kind == "text" => all.push_str(&text),
                    _ => {
                        let message =
                            format!("parts of type `{}` cannot be read, only `text`", part.kind);
                        return Err(ApiError::invalid("messages", message));
                    }
                }
            }
            Ok(all)
        }
    }
}

fn text(body: TextBody, service: &Service) -> Result<Parsed, ApiError> {
    let TextBody {
        prompt,
        logprobs,
        echo,
        best_of,
        suffix,
        common,
    } = body;
    refuse("echo", echo.unwrap_or(false))?;
    refuse("suffix", suffix.is_some_and(|suffix| !suffix.is_empty()))?;
    refuse("best_of", best_of.is_some_and(|n| n > 1))?;
    let target = service.models().find(common.model.as_deref())?;
    let logprobs = logprobs
        .map(|top| count("logprobs", top, 0, MOST_LOGPROBS))
        .transpose()?;
    let models = service.models();
    let few = |n: usize| match n {
        0 => Err(ApiError::invalid("prompt", "the prompt is empty")),
        1..=MOST_ANSWERS => Ok(()),
        _ => Err(ApiError::invalid(
            "prompt",
            format!("at most {MOST_ANSWERS} prompts a request, not {n}"),
        )),
    };
    let prompts: Vec<Encoded> = match prompt {
        PromptBody::Text(text) => vec![models.plain(target, &text)?],
        PromptBody::Texts(texts) => {
            few(texts.len())?;
            let encoded = texts.iter().map(|text| models.plain(target, text));
            encoded.collect::<Result<_, _>>()?
        }
        PromptBody::Tokens(ids) => vec![models.tokens(target, &ids)?],
        PromptBody::TokenLists(lists) => {
            few(lists.len())?;
            let encoded = lists.iter().map(|ids| models.tokens(target, ids));
            encoded.collect::<Result<_, _>>()?
        }
    };
    finish(Kind::Text, common, target, prompts, logprobs, service)
}

/// Refuses what would change the answer and is not built.
fn refuse(param: &'static str, wanted: bool) -> Result<(), ApiError> {
    match wanted {
        true => Err(ApiError::invalid(
            param,
            format!("`{param}` is not supported"),
        )),
        false => Ok(()),
    }
}

fn count(param: &'static str, value: u64, least: usize, most: usize) -> Result<usize, ApiError> {
    let found = usize::try_from(value)
        .ok()
        .filter(|n| (least..=most).contains(n));
    found.ok_or_else(|| ApiError::invalid(param, format!("{value} is not in {least}..={most}")))
}

fn sampling(common: &Common) -> Result<Sampling, ApiError> {
    let temperature = common.temperature.unwrap_or(1.0);
    if !(0.0..=2.0).contains(&temperature) {
        let message = format!("{temperature} is not in 0..=2");
        return Err(ApiError::invalid("temperature", message));
    }
    let top_k = common.top_k.unwrap_or(0);
    let options = SamplingOptions {
        temperature,
        top_k: count("top_k", top_k, 0, u32::MAX as usize)?,
        top_p: common.top_p.unwrap_or(1.0),
        min_p: common.min_p.unwrap_or(0.0),
        repetition_penalty: common.repetition_penalty.unwrap_or(1.0),
    };
    Sampling::with_options(options).map_err(|e| {
        let message = format!("{} is not in {}", e.value, e.range);
        ApiError::invalid(e.option, message)
    })
}

fn stops(stop: Option<OneOrMany<String>>) -> Result<Vec<String>, ApiError> {
    let stops = stop.map(OneOrMany::into_vec).unwrap_or_default();
    if stops.len() > MOST_STOPS {
        let message = format!("at most {MOST_STOPS} texts, not {}", stops.len());
        return Err(ApiError::invalid("stop", message));
    }
    if stops
        .iter()
        .any(|stop| stop.is_empty() || stop.len() > LONGEST_STOP)
    {
        let message = format!("a text must have 1 to {LONGEST_STOP} bytes");
        return Err(ApiError::invalid("stop", message));
    }
    Ok(stops)
}

/// What both interfaces check alike.
fn finish(
    kind: Kind,
    common: Common,
    target: usize,
    prompts: Vec<Encoded>,
    logprobs: Option<usize>,
    service: &Service,
) -> Result<Parsed, ApiError> {
    let sampling = sampling(&common)?;
    if logprobs.is_some() && service.models().targets[target].elsewhere().is_some() {
        let message = "not given for a target that is elsewhere";
        return Err(ApiError::invalid("logprobs", message));
    }
    let nonzero = |value: Option<f64>| value.is_some_and(|value| value != 0.0);
    let filled = |value: &Option<Value>| match value {
        Some(Value::Null) | None => false,
        Some(Value::Object(map)) => !map.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    };
    refuse("frequency_penalty", nonzero(common.frequency_penalty))?;
    refuse("presence_penalty", nonzero(common.presence_penalty))?;
    refuse("logit_bias", filled(&common.logit_bias))?;
    refuse("tools", filled(&common.tools))?;
    let plain_format = |format: &Value| format["type"] == "text" || format.is_null();
    refuse(
        "response_format",
        common
            .response_format
            .as_ref()
            .is_some_and(|f| !plain_format(f)),
    )?;
    let n = count("n", common.n.unwrap_or(1), 1, MOST_ANSWERS)?;
    if n * prompts.len() > MOST_ANSWERS {
        let message = format!(
            "{n} answers to {} prompts are more than {MOST_ANSWERS}",
            prompts.len()
        );
        return Err(ApiError::invalid("n", message));
    }
    let most = service.options().max_tokens;
    let wanted = common
        .max_tokens
        .map(|n| count("max_tokens", n, 1, most))
        .transpose()?;
    let stop = stops(common.stop)?;
    let user = common.user.unwrap_or_default();
    if user.len() > LONGEST_STOP {
        let message = format!("at most {LONGEST_STOP} bytes");
        return Err(ApiError::invalid("user", message));
    }
    let entry = &service.models().targets[target];
    let seed = common
        .seed
        .map_or_else(super::fresh_number, i64::cast_unsigned);
    let mut asks = Vec::new();
    for prompt in prompts {
        let room = entry.context.saturating_sub(prompt.target.len());
        // A prompt without room for a token is refused when it is asked.
        let max_tokens = wanted.unwrap_or_else(|| most.min(room).max(1));
        for _ in 0..n {
            asks.push(Ask {
                target,
                prompt: prompt.clone(),
                sampling,
                max_tokens,
                ignore_eos: common.ignore_eos.unwrap_or(false),
                stop: stop.clone(),
                seed,
                // Answers are told apart by their number.
                sample: asks.len() as u32,
                logprobs,
                drafting: common.drafter.unwrap_or(true),
                user: user.clone(),
            });
        }
    }
    let options = common.stream_options;
    Ok(Parsed {
        kind,
        model: entry.name.clone(),
        target,
        asks,
        stream: common.stream.unwrap_or(false),
        usage: options
            .and_then(|options| options.include_usage)
            .unwrap_or(false),
        origins: common.include_origins.unwrap_or(false),
    })
}
