//! Requests in the format of the API, and their checks.

use lm::is_inert;
use models::{Message, TemplateRequest, TemplateValue, TemplateVariables, whole_message};
use serde_json::Value;
use spec_decode::{Sampling, SamplingOptions};

use super::fields::Fields;
use crate::error::ApiError;
use crate::models::Encoded;
use crate::random::random_number;
use crate::request::Request;
use crate::service::Service;

/// Maximum number of answers to one prompt, and of a request.
const MAX_ANSWERS: usize = 16;
/// Maximum number of stop strings, and maximum bytes of one.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 256;
/// Maximum number of messages of a conversation.
const MAX_MESSAGES: usize = 1024;
/// Maximum number of probabilities per token.
const MAX_LOGPROBS: usize = 20;

/// One of the two interfaces.
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
    /// One request per answer, in order.
    pub(super) requests: Vec<Request>,
    /// Number of answers to each prompt, at least 1.
    pub(super) answers: usize,
    pub(super) stream: bool,
    /// True if a stream ends with a chunk of usage.
    pub(super) usage: bool,
    /// True if pieces give the origins of their tokens.
    pub(super) origins: bool,
}

/// Reads and checks a body.
pub(super) fn parse(kind: Kind, body: &[u8], service: &Service) -> Result<Parsed, ApiError> {
    let malformed = |error: serde_json::Error| {
        ApiError::Malformed(error.to_string().chars().take(500).collect())
    };
    // Templates write objects with their keys in the order of the request.
    let ordered: TemplateValue = serde_json::from_slice(body).map_err(malformed)?;
    let body: Value = serde_json::from_slice(body).map_err(malformed)?;
    let fields = Fields::of(&body)?;
    match kind {
        Kind::Chat => chat(&fields, &ordered, service),
        Kind::Text => text(&fields, service),
    }
}

/// A parsed message.
struct ParsedMessage<'a> {
    role: &'a str,
    content: String,
    /// The whole message, if it has more than a role and a text.
    whole: Option<TemplateValue>,
    /// Its fields that are in [`STEERING`].
    steering: Vec<&'static str>,
}

/// The value of a key; undefined if there is none.
fn of_key(object: &TemplateValue, key: &str) -> TemplateValue {
    object.get_attr(key).unwrap_or_default()
}

/// The items of a list; `None` if it is empty or no list.
fn non_empty(list: &TemplateValue) -> Option<Vec<TemplateValue>> {
    let items: Vec<TemplateValue> = list.try_iter().ok()?.collect();
    (!items.is_empty()).then_some(items)
}

fn chat(
    fields: &Fields<'_>,
    ordered: &TemplateValue,
    service: &Service,
) -> Result<Parsed, ApiError> {
    let target = service.models().find(fields.text("model")?)?;
    let messages = fields.list("messages")?;
    let messages = messages.ok_or_else(|| fields.error("messages", "messages must be a list"))?;
    if messages.is_empty() || messages.len() > MAX_MESSAGES {
        let message = format!(
            "there must be 1 to {MAX_MESSAGES} messages, not {}",
            messages.len()
        );
        return Err(fields.error("messages", message));
    }
    let logprobs = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs", 0, MAX_LOGPROBS)?;
    let logprobs = match (logprobs, top) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => {
            return Err(fields.error("top_logprobs", "needs `logprobs: true`"));
        }
    };
    let wholes = non_empty(&of_key(ordered, "messages")).unwrap_or_default();
    let parsed = messages.iter().zip(&wholes).enumerate();
    let parsed = parsed.map(|(i, (message, whole))| read_message(i, message, whole));
    let parsed = parsed.collect::<Result<Vec<_>, ApiError>>()?;
    let turns: Vec<Message<'_>> = parsed
        .iter()
        .map(|parsed| Message {
            role: parsed.role,
            content: &parsed.content,
            whole: parsed.whole.as_ref(),
        })
        .collect();
    let request = template(fields, ordered)?;
    // Templates write special tokens themselves, so that none are added here.
    if fields.flag("add_special_tokens")? == Some(true) {
        let message = "`add_special_tokens` is not supported";
        return Err(fields.error("add_special_tokens", message));
    }
    let most = fields.whole("max_completion_tokens")?;
    let own = fields.whole("max_tokens")?;
    let wanted = most.map(|n| ("max_completion_tokens", n));
    let wanted = wanted.or(own.map(|n| ("max_tokens", n)));
    let prompt = service.models().converse(target, &turns, &request)?;
    check_template(&turns, &parsed, &request, target, service)?;
    finish(
        Kind::Chat,
        fields,
        wanted,
        target,
        vec![prompt],
        logprobs,
        service,
    )
}

/// The values that a request gives the template beside the messages.
fn template(fields: &Fields<'_>, ordered: &TemplateValue) -> Result<TemplateRequest, ApiError> {
    for name in ["tools", "documents"] {
        fields.list(name)?;
    }
    let mut tools = non_empty(&of_key(ordered, "tools"));
    match fields.value("tool_choice") {
        None => {}
        Some(Value::String(choice)) if choice == "auto" => {}
        // No tool may be called, so none is offered to the model.
        Some(Value::String(choice)) if choice == "none" => tools = None,
        Some(_) => {
            let message = "`tool_choice` can be `auto` or `none`: what a model says is not forced";
            return Err(fields.error("tool_choice", message));
        }
    }
    fields.object("chat_template_kwargs")?;
    let given = of_key(ordered, "chat_template_kwargs");
    let mut variables = TemplateVariables::new();
    for name in given.try_iter().into_iter().flatten() {
        let value = given.get_item(&name).unwrap_or_default();
        variables.insert(name.to_string(), value);
    }
    for name in ["messages", "tools", "documents", "add_generation_prompt"] {
        if variables.contains_key(name) {
            let message = format!("`{name}` is a field of its own");
            return Err(ApiError::invalid(
                format!("chat_template_kwargs.{name}"),
                message,
            ));
        }
    }
    if let Some(on) = fields.flag("enable_thinking")? {
        variables.insert("enable_thinking".to_owned(), on.into());
    }
    Ok(TemplateRequest {
        tools,
        documents: non_empty(&of_key(ordered, "documents")),
        variables,
        open: fields.flag("add_generation_prompt")?.unwrap_or(true),
    })
}

/// Refuses tools, tool calls, documents, an answer without a generation prompt, and steering fields
/// of a message if the text that the model's template writes does not depend on them.
fn check_template(
    messages: &[Message<'_>],
    parsed: &[ParsedMessage<'_>],
    request: &TemplateRequest,
    target: usize,
    service: &Service,
) -> Result<(), ApiError> {
    let template = &service.models().targets[target].text.template;
    let text = |messages: &[Message<'_>], request: &TemplateRequest| {
        template
            .converse(messages, request)
            .ok()
            .flatten()
            .map(|text| text.text)
    };
    let called = |message: &Message<'_>| {
        message
            .whole
            .is_some_and(|whole| !of_key(whole, "tool_calls").is_undefined())
    };
    let calls = messages.iter().any(called);
    let steered = parsed.iter().any(|parsed| !parsed.steering.is_empty());
    let plain = request.tools.is_none() && request.documents.is_none() && request.open;
    if plain && !calls && !steered {
        return Ok(());
    }
    let all = text(messages, request);
    let without = |field: &str, others: Option<String>| match all == others {
        true => {
            let name = field.rsplit("].").next().unwrap_or_default();
            let message = format!("the model's chat template does not know `{name}`");
            Err(ApiError::invalid(field.to_owned(), message))
        }
        false => Ok(()),
    };
    for (i, parsed) in parsed.iter().enumerate() {
        for field in &parsed.steering {
            let whole = parsed
                .whole
                .as_ref()
                .map(|whole| whole_message(whole, &[field]));
            let mut others = messages.to_vec();
            others[i].whole = whole.as_ref();
            without(&format!("messages[{i}].{field}"), text(&others, request))?;
        }
    }
    let changed = |change: fn(&mut TemplateRequest)| {
        let mut request = request.clone();
        change(&mut request);
        text(messages, &request)
    };
    if request.tools.is_some() {
        without("tools", changed(|other| other.tools = None))?;
    }
    if request.documents.is_some() {
        without("documents", changed(|other| other.documents = None))?;
    }
    if !request.open {
        without("add_generation_prompt", changed(|other| other.open = true))?;
    }
    if calls {
        let bare: Vec<Message<'_>> = messages
            .iter()
            .map(|message| match called(message) {
                true => Message::new(message.role, message.content),
                false => *message,
            })
            .collect();
        without("messages.tool_calls", text(&bare, request))?;
    }
    Ok(())
}

/// Fields of a message that are not part of the text that the model reads.
const BESIDE_MESSAGE: [&str; 4] = ["annotations", "audio", "id", "refusal"];

/// Fields of a message by which some servers steer an answer: to continue the message itself, or to
/// read more than its text.
const STEERING: [&str; 6] = [
    "prefix",
    "partial",
    "function_call",
    "images",
    "videos",
    "audios",
];

fn read_message<'a>(
    number: usize,
    message: &'a Value,
    whole: &TemplateValue,
) -> Result<ParsedMessage<'a>, ApiError> {
    let name = |field: &str| format!("messages[{number}]{field}");
    let object = message.as_object().ok_or_else(|| {
        ApiError::invalid(
            name(""),
            "a message must be an object with `role` and `content`",
        )
    })?;
    let fields = Fields::within(object, name("."));
    let role = fields.text("role")?;
    let role = role.ok_or_else(|| fields.error("role", "role must be a text"))?;
    let content = match fields.value("content") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => text_of_parts(&fields, parts)?,
        Some(_) => {
            let message = "content must be a text or a list of parts";
            return Err(fields.error("content", message));
        }
    };
    if fields.value("audio").is_some() {
        return Err(fields.error("audio", "`audio` is not supported"));
    }
    let whole = whole_message(whole, &BESIDE_MESSAGE);
    let steers = |field: &&str| object.get(*field).is_some_and(|value| !is_inert(value));
    let plain = whole.len() == Some(2) && of_key(&whole, "content").as_str().is_some();
    Ok(ParsedMessage {
        role,
        content,
        whole: (!plain).then_some(whole),
        steering: STEERING.into_iter().filter(steers).collect(),
    })
}

/// The text of the parts of a message.
fn text_of_parts(fields: &Fields<'_>, parts: &[Value]) -> Result<String, ApiError> {
    let mut all = String::new();
    for part in parts {
        let kind = part["type"].as_str().unwrap_or_default();
        match part["text"].as_str() {
            Some(text) if kind == "text" => all.push_str(text),
            None if kind == "text" => {
                let message = "a part of type `text` needs a text `text`";
                return Err(fields.error("content", message));
            }
            _ => {
                let kind: String = kind.chars().take(100).collect();
                let message = format!("parts of type `{kind}` cannot be read, only `text`");
                return Err(fields.error("content", message));
            }
        }
    }
    Ok(all)
}

fn text(fields: &Fields<'_>, service: &Service) -> Result<Parsed, ApiError> {
    let target = service.models().find(fields.text("model")?)?;
    let logprobs = fields.count("logprobs", 0, MAX_LOGPROBS)?;
    let models = service.models();
    let few = |n: usize| match n {
        ..=MAX_ANSWERS => Ok(()),
        _ => Err(fields.error(
            "prompt",
            format!("at most {MAX_ANSWERS} prompts a request, not {n}"),
        )),
    };
    let wrong = || {
        let message =
            "prompt must be a text, a list of texts, a list of tokens, or a list of such lists";
        fields.error("prompt", message)
    };
    let ids = |list: &[Value]| -> Option<Vec<u32>> {
        let ids = list.iter().map(|id| u32::try_from(id.as_u64()?).ok());
        ids.collect()
    };
    let prompts: Vec<Encoded> = match fields.value("prompt") {
        Some(Value::String(text)) => vec![models.plain(target, text)?],
        Some(Value::Array(list)) => match list.first() {
            None => return Err(fields.error("prompt", "the prompt is empty")),
            Some(Value::Number(_)) => {
                vec![models.tokens(target, &ids(list).ok_or_else(wrong)?)?]
            }
            Some(Value::Array(_)) => {
                few(list.len())?;
                let lists = list.iter().map(|inner| ids(inner.as_array()?));
                let lists = lists.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
                let encoded = lists.iter().map(|ids| models.tokens(target, ids));
                encoded.collect::<Result<_, _>>()?
            }
            Some(_) => {
                few(list.len())?;
                let texts = list.iter().map(Value::as_str);
                let texts = texts.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
                let encoded = texts.into_iter().map(|text| models.plain(target, text));
                encoded.collect::<Result<_, _>>()?
            }
        },
        _ => return Err(wrong()),
    };
    let wanted = fields.whole("max_tokens")?.map(|n| ("max_tokens", n));
    finish(
        Kind::Text,
        fields,
        wanted,
        target,
        prompts,
        logprobs,
        service,
    )
}

fn sampling(fields: &Fields<'_>) -> Result<Sampling, ApiError> {
    let temperature = fields.number("temperature")?.unwrap_or(1.0);
    if !(0.0..=2.0).contains(&temperature) {
        let message = format!("temperature: {temperature} is not in 0..=2");
        return Err(fields.error("temperature", message));
    }
    let top_k = match fields.whole("top_k")? {
        // All tokens, as in vLLM and SGLang.
        Some(-1) => 0,
        _ => fields.count("top_k", 0, u32::MAX as usize)?.unwrap_or(0),
    };
    let options = SamplingOptions {
        temperature,
        top_k,
        top_p: fields.number("top_p")?.unwrap_or(1.0),
        min_p: fields.number("min_p")?.unwrap_or(0.0),
        repetition_penalty: fields.number("repetition_penalty")?.unwrap_or(1.0),
    };
    Sampling::with_options(options).map_err(|e| {
        let message = format!("{}: {} is not in {}", e.option, e.value, e.range);
        ApiError::invalid(e.option, message)
    })
}

fn stops(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let stops = fields.texts("stop")?;
    if stops.len() > MAX_STOPS {
        let message = format!("at most {MAX_STOPS} texts, not {}", stops.len());
        return Err(fields.error("stop", message));
    }
    if stops
        .iter()
        .any(|stop| stop.is_empty() || stop.len() > MAX_STOP_BYTES)
    {
        let message = format!("a text must have 1 to {MAX_STOP_BYTES} bytes");
        return Err(fields.error("stop", message));
    }
    Ok(stops)
}

/// Checks the fields that both interfaces share.
fn finish(
    kind: Kind,
    fields: &Fields<'_>,
    wanted: Option<(&'static str, i64)>,
    target: usize,
    prompts: Vec<Encoded>,
    logprobs: Option<usize>,
    service: &Service,
) -> Result<Parsed, ApiError> {
    let sampling = sampling(fields)?;
    let entry = &service.models().targets[target];
    if logprobs.is_some() && entry.remote().is_some() {
        let message = "not given for a target that is elsewhere";
        return Err(fields.error("logprobs", message));
    }
    let n = fields.count("n", 1, MAX_ANSWERS)?.unwrap_or(1);
    if n * prompts.len() > MAX_ANSWERS {
        let message = format!(
            "{n} answers to {} prompts are more than {MAX_ANSWERS}",
            prompts.len()
        );
        return Err(fields.error("n", message));
    }
    let most = service.options().max_tokens;
    let wanted = limit(fields, wanted, most)?;
    let stop = stops(fields)?;
    let user = fields.text("user")?.unwrap_or_default();
    if user.len() > MAX_STOP_BYTES {
        return Err(fields.error("user", format!("at most {MAX_STOP_BYTES} bytes")));
    }
    let seed = fields.whole("seed")?;
    let seed = seed.map_or_else(random_number, i64::cast_unsigned);
    let ignore_eos = fields.flag("ignore_eos")?.unwrap_or(false);
    // Our own field: `false` decodes without the drafter.
    let drafting = fields.flag("drafter")?.unwrap_or(true);
    let stream = fields.flag("stream")?.unwrap_or(false);
    // Our own field: the origins of tokens.
    let origins = fields.flag("include_origins")?.unwrap_or(false);
    let options = fields.object("stream_options")?;
    let usage = options.map(|options| {
        let options = Fields::within(options, "stream_options.".to_owned());
        options.flag("include_usage")
    });
    let usage = usage.transpose()?.flatten().unwrap_or(false);
    fields.finish()?;
    let mut requests = Vec::new();
    for prompt in prompts {
        let room = entry.context.saturating_sub(prompt.target.len());
        // A prompt without room for a token is refused when it is submitted.
        let max_tokens = wanted.unwrap_or_else(|| most.min(room).max(1));
        for _ in 0..n {
            requests.push(Request {
                target,
                prompt: prompt.clone(),
                sampling,
                max_tokens,
                ignore_eos,
                stop: stop.clone(),
                seed,
                // The number of an answer distinguishes its random stream.
                sample: requests.len() as u32,
                logprobs,
                drafting,
                user: user.to_owned(),
            });
        }
    }
    Ok(Parsed {
        kind,
        model: entry.name.clone(),
        target,
        requests,
        answers: n,
        stream,
        usage,
        origins,
    })
}

/// The maximum number of tokens of an answer as the request wants it; `None` for as many as
/// possible, which is also the meaning of -1 and of a number above the server's limit.
fn limit(
    fields: &Fields<'_>,
    wanted: Option<(&'static str, i64)>,
    most: usize,
) -> Result<Option<usize>, ApiError> {
    match wanted {
        None | Some((_, -1)) => Ok(None),
        Some((field, n)) => match usize::try_from(n) {
            Ok(n) if n > most => Ok(None),
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(fields.error(field, format!("{field}: {n} is neither above 0 nor -1"))),
        },
    }
}
