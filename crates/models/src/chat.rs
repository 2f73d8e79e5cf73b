//! A model's own chat template, as Hugging Face ships it: Jinja in `chat_template.jinja`, or the key
//! `chat_template` of `tokenizer_config.json`.
//!
//! Rendered text equals that of transformers' `apply_chat_template` for one user message with the generation prompt:
//! same variables, same functions (`raise_exception`, `strftime_now`), same `tojson`, blocks trimmed alike.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::clock::Clock;
use super::template::fit_with;
use super::{Fitted, Rendered, TEMPLATE_FILE, TemplateError};

/// File of a model folder that holds its template.
pub const CHAT_TEMPLATE_FILE: &str = "chat_template.jinja";

/// Stands for the prompt when the words around it are looked for.
const PROBE: &str = "omnidraft-prompt-probe";
/// Work a template may do; a loop without end is an error, not a hang.
const FUEL: u64 = 1_000_000;
/// Longest rendered text, in bytes: more than any context holds.
const MOST_TEXT: usize = 16 << 20;
/// Longest list that is written out, in items.
const MOST_ITEMS: usize = 1 << 20;
/// Largest indent of `tojson`, in spaces.
const MOST_INDENT: usize = 64;
/// Longest prompt of a model whose folder sets none, in tokens; at most half of its context.
const DEFAULT_PROMPT_TOKENS: usize = 2048;

/// Keys of `tokenizer_config.json` that name the special tokens a template may use.
const SPECIAL_KEYS: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// How a model wants to be asked. Clones share the compiled template.
#[derive(Clone)]
pub struct ChatTemplate {
    jinja: Option<Arc<Jinja>>,
    markers: Markers,
    max_prompt_tokens: usize,
}

struct Jinja {
    environment: Environment<'static>,
    /// The file, for messages.
    origin: String,
    specials: Value,
    prefix: String,
    suffix: String,
}

/// One message of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Who speaks: `system`, `user` or `assistant`, whatever the template knows.
    pub role: &'a str,
    /// What is said.
    pub content: &'a str,
}

/// A conversation inside its template, opened for the next answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The whole text.
    pub text: String,
    /// Bytes of the text that messages say; the others are the template's. Empty where special
    /// tokens in messages are what they are called, as in transformers.
    pub bodies: Vec<Range<usize>>,
}

/// `omnidraft.json`: what this program wants to know of a model beyond its Hugging Face files.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelOptions {
    /// Longest prompt in tokens, template included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_prompt_tokens: Option<usize>,
    /// What names of special tokens are that stand in a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prompt_markers: Option<Markers>,
}

/// What the name of a special token is that somebody typed into a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Markers {
    /// The special token, as in transformers.
    #[default]
    Special,
    /// Text: nothing that a user types ends a turn.
    Text,
}

impl ChatTemplate {
    /// The template of a model folder whose context has `positions` tokens; without one, prompts are plain text.
    ///
    /// # Errors
    /// Unreadable or malformed files; a template that does not parse (with its line), raises an exception, or does not
    /// show the user's message once; a prompt budget of 0.
    pub fn from_model_dir(folder: &Path, positions: usize) -> Result<Self, TemplateError> {
        let options: ModelOptions = read_json(&folder.join(TEMPLATE_FILE))?.unwrap_or_default();
        let max_prompt_tokens = options
            .max_prompt_tokens
            .unwrap_or_else(|| (positions / 2).clamp(1, DEFAULT_PROMPT_TOKENS));
        if max_prompt_tokens == 0 {
            return Err(TemplateError::BadTemplate {
                reason: "max_prompt_tokens is 0".to_owned(),
            });
        }
        let config_path = folder.join("tokenizer_config.json");
        let config: Option<serde_json::Value> = read_json(&config_path)?;
        let own = folder.join(CHAT_TEMPLATE_FILE);
        let source = if own.is_file() {
            let text = std::fs::read_to_string(&own).map_err(|source| TemplateError::Read {
                path: own.clone(),
                source,
            })?;
            Some((own.display().to_string(), text))
        } else {
            config
                .as_ref()
                .and_then(|c| default_template(&c["chat_template"]))
                .map(|text| (format!("{}: chat_template", config_path.display()), text))
        };
        let specials = config.as_ref().map(special_tokens).unwrap_or_default();
        let jinja = source
            .map(|(origin, text)| Jinja::compile(origin, &text, specials, Clock::now()))
            .transpose()?;
        Ok(Self {
            jinja: jinja.map(Arc::new),
            markers: options.prompt_markers.unwrap_or_default(),
            max_prompt_tokens,
        })
    }

    /// Whether there is a template. It writes its own beginning of text; plain text has what the tokenizer adds.
    pub fn is_chat(&self) -> bool {
        self.jinja.is_some()
    }

    /// What names of special tokens are in a prompt.
    pub fn markers(&self) -> Markers {
        self.markers
    }

    /// Longest prompt in tokens, template included.
    pub fn max_prompt_tokens(&self) -> usize {
        self.max_prompt_tokens
    }

    /// Shortens prompts to so many tokens, at least 1, where the budget allowed more.
    pub(crate) fn limit_prompts(&mut self, tokens: usize) {
        self.max_prompt_tokens = self.max_prompt_tokens.min(tokens.max(1));
    }

    /// Allows prompts exactly so many tokens, at least 1.
    pub(crate) fn set_max_prompt_tokens(&mut self, tokens: usize) {
        self.max_prompt_tokens = tokens.max(1);
    }

    /// One user message and the opening of the answer.
    ///
    /// # Errors
    /// What the template raises, with its line.
    pub fn render(&self, prompt: &str) -> Result<Rendered, TemplateError> {
        let Some(jinja) = &self.jinja else {
            return Ok(Rendered {
                prefix: String::new(),
                body: prompt.to_owned(),
                suffix: String::new(),
            });
        };
        let text = jinja.render(prompt)?;
        let body = text
            .strip_prefix(&jinja.prefix)
            .and_then(|rest| rest.strip_suffix(&jinja.suffix))
            .ok_or_else(|| jinja.fault(None, "the words around the prompt depend on the prompt"))?;
        Ok(Rendered {
            body: body.to_owned(),
            prefix: jinja.prefix.clone(),
            suffix: jinja.suffix.clone(),
        })
    }

    /// Several messages and the opening of the answer; `None` without a template, which only plain
    /// text can do without.
    ///
    /// # Errors
    /// What the template raises, with its line: a role it does not know, turns in another order.
    pub fn converse(
        &self,
        messages: &[Message<'_>],
    ) -> Result<Option<Conversation>, TemplateError> {
        let Some(jinja) = &self.jinja else {
            return Ok(None);
        };
        let text = jinja.render_messages(messages)?;
        let bodies = match self.markers {
            Markers::Special => Vec::new(),
            Markers::Text => jinja.bodies(messages, &text)?,
        };
        Ok(Some(Conversation { text, bodies }))
    }

    /// The prompt in its template, shortened as [`super::PromptTemplate::fit`] does.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`] and [`super::PromptTemplate::fit`].
    pub fn fit<E: From<TemplateError>>(
        &self,
        prompt: &str,
        count: impl FnMut(&Rendered) -> Result<usize, E>,
    ) -> Result<Fitted, E> {
        let render = |text: &str| self.render(text).map_err(E::from);
        fit_with(self.max_prompt_tokens, render, prompt, count)
    }
}

impl Jinja {
    fn compile(
        origin: String,
        source: &str,
        specials: Vec<(&'static str, String)>,
        clock: Clock,
    ) -> Result<Self, TemplateError> {
        let mut jinja = Self {
            environment: Environment::new(),
            origin,
            specials: Value::from_pairs(specials),
            prefix: String::new(),
            suffix: String::new(),
        };
        // To Jinja2 every line end of a template is a line feed, inside its strings too.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        jinja.prepare(source, clock).map_err(|e| jinja.error(&e))?;
        let text = jinja.render(PROBE)?;
        let (prefix, suffix) = text
            .split_once(PROBE)
            .filter(|(_, suffix)| !suffix.contains(PROBE))
            .ok_or_else(|| jinja.fault(None, "does not show the user's message exactly once"))?;
        (jinja.prefix, jinja.suffix) = (prefix.to_owned(), suffix.to_owned());
        Ok(jinja)
    }

    fn prepare(&mut self, source: String, clock: Clock) -> Result<(), Error> {
        let environment = &mut self.environment;
        let mut syntax = environment.syntax().to_builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build()?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.set_formatter(|out, state, value| match value.len() {
            // The library writes every item, even behind an error of the writer.
            Some(items) if items > MOST_ITEMS && value.as_str().is_none() => {
                let message = format!("a value of {items} items is written out");
                Err(Error::new(ErrorKind::InvalidOperation, message))
            }
            _ => minijinja::escape_formatter(out, state, value),
        });
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment.add_function("strftime_now", move |format: String| {
            clock
                .format(&format)
                .map_err(|message| Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template_owned("chat", source)
    }

    fn render(&self, prompt: &str) -> Result<String, TemplateError> {
        let (role, content) = ("user", prompt);
        self.render_messages(&[Message { role, content }])
    }

    /// Where the messages stand in `text`: between the words that the template puts around others.
    fn bodies(
        &self,
        messages: &[Message<'_>],
        text: &str,
    ) -> Result<Vec<Range<usize>>, TemplateError> {
        let probe = |i: usize| format!("{PROBE}-{i}-");
        let probes: Vec<String> = (0..messages.len()).map(probe).collect();
        let probing = messages
            .iter()
            .zip(&probes)
            .map(|(message, probe)| Message {
                role: message.role,
                content: probe,
            });
        let words = self.render_messages(&probing.collect::<Vec<_>>())?;
        let (mut bodies, mut words, mut rest) = (Vec::new(), words.as_str(), text);
        for (message, probe) in messages.iter().zip(&probes) {
            // A template may leave a message out.
            let Some((before, behind)) = words.split_once(probe.as_str()) else {
                continue;
            };
            let found = rest.strip_prefix(before).and_then(|from| {
                let said = [message.content, message.content.trim()];
                let said = said.into_iter().find(|said| from.starts_with(said))?;
                let at = text.len() - from.len();
                bodies.push(at..at + said.len());
                Some(&from[said.len()..])
            });
            let lost = || self.fault(None, "the words around a message depend on what it says");
            (rest, words) = (found.ok_or_else(lost)?, behind);
        }
        Ok(bodies)
    }

    fn render_messages(&self, messages: &[Message<'_>]) -> Result<String, TemplateError> {
        let none = Value::from(());
        let turn =
            |message: &Message<'_>| context! { role => message.role, content => message.content };
        let turns: Vec<Value> = messages.iter().map(turn).collect();
        let variables = context! {
            messages => turns,
            add_generation_prompt => true,
            tools => none.clone(),
            documents => none,
            ..self.specials.clone()
        };
        let mut text = Bounded(Vec::new());
        self.environment
            .get_template("chat")
            .and_then(|template| template.render_captured_to(variables, &mut text))
            .map_err(|e| self.error(&e))?;
        String::from_utf8(text.0).map_err(|e| self.fault(None, &e.to_string()))
    }

    fn error(&self, error: &Error) -> TemplateError {
        let message = error
            .detail()
            .map_or_else(|| error.kind().to_string(), str::to_owned);
        self.fault(error.line(), &message)
    }

    fn fault(&self, line: Option<usize>, message: &str) -> TemplateError {
        TemplateError::ChatTemplate {
            origin: self.origin.clone(),
            line,
            message: message.to_owned(),
        }
    }
}

/// A JSON file of the folder; `None` where there is none.
fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, TemplateError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(TemplateError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| TemplateError::MalformedTemplate {
            path: path.to_owned(),
            source,
        })
}

/// A model has one template, or several by name of which one is `default`.
fn default_template(value: &serde_json::Value) -> Option<String> {
    let named = || {
        value
            .as_array()?
            .iter()
            .find(|entry| entry["name"] == "default")?["template"]
            .as_str()
    };
    value.as_str().or_else(named).map(str::to_owned)
}

fn special_tokens(config: &serde_json::Value) -> Vec<(&'static str, String)> {
    SPECIAL_KEYS
        .into_iter()
        .filter_map(|key| {
            let token = &config[key];
            let text = token.as_str().or_else(|| token["content"].as_str())?;
            Some((key, text.to_owned()))
        })
        .collect()
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn to_json(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => options.get("indent")?,
    };
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(width) if width > MOST_INDENT => {
            let message = format!("tojson: an indent of {width} is more than {MOST_INDENT}");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        Some(width) => {
            let spaces = " ".repeat(width);
            let style = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, style))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced)),
    };
    let failed = |message: String| Error::new(ErrorKind::InvalidOperation, message);
    written.map_err(|e| failed(e.to_string()))?;
    String::from_utf8(out).map_err(|e| failed(e.to_string()))
}

/// Text of a template, up to [`MOST_TEXT`]: a list that repeats itself is cheap to say and not to
/// write.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_TEXT {
            return Err(std::io::Error::other(format!(
                "more than {MOST_TEXT} bytes of text"
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One line, with a space after commas and colons.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
    ) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}
