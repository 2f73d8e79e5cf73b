//! A model's own chat template, as Hugging Face ships it: Jinja in `chat_template.jinja`, or the
//! key `chat_template` of `tokenizer_config.json`.
//!
//! Rendered text equals that of transformers' `apply_chat_template` with the generation prompt: the
//! same variables, functions (`raise_exception`, `strftime_now`), filters and methods of texts, and
//! the same trimming of blocks.

mod clock;
mod data;
mod files;
mod filters;
mod globals;
mod jinja;
mod json;
mod python;
mod repr;
mod source;

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use vocab_align::special_names;

pub use self::data::{TemplateValue, TemplateVariables, template_variables, whole_message};
use self::files::{DEFAULT, TOOLS, sources};
use self::jinja::Jinja;
use super::template::{Fitted, Markers, ModelOptions, Rendered, TEMPLATE_FILE, fit_with};
use super::{TemplateError, TemplateFault};

/// Subfolder of a model folder with named templates.
pub(crate) const CHAT_TEMPLATES: &str = "chat_templates";

/// The texts of a folder's templates by name, one of which is `default`; empty if it has none.
pub(crate) fn templates(
    folder: &Path,
) -> Result<std::collections::BTreeMap<String, String>, TemplateError> {
    let sources = files::sources(folder)?.into_iter();
    Ok(sources.map(|(name, source)| (name, source.text)).collect())
}

/// Placeholder for the prompt, used to find the words around it.
const PROBE: &str = "omnidraft-prompt-probe";
/// Default maximum length of a prompt in tokens; at most half of the context.
const DEFAULT_PROMPT_TOKENS: usize = 2048;

/// The chat format of a model. Clones share the compiled template.
#[derive(Clone)]
pub struct ChatTemplate {
    templates: Option<Arc<Templates>>,
    /// The words before and after a prompt, if they are the same for every prompt.
    frame: Option<Arc<(String, String)>>,
    /// System message for conversations that do not begin with one.
    system: Option<String>,
    variables: TemplateVariables,
    markers: Markers,
    max_prompt_tokens: usize,
}

struct Templates {
    usual: Jinja,
    /// The template for conversations with tools.
    tools: Option<Jinja>,
}

/// One message of a conversation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message<'a> {
    /// Role of the speaker: `system`, `user`, `assistant`, or another one that the template knows.
    pub role: &'a str,
    /// Text of the message.
    pub content: &'a str,
    /// The whole message of a client, with tool calls and other fields that a template reads: a map
    /// without null values ([`whole_message`]).
    pub whole: Option<&'a TemplateValue>,
}

impl<'a> Message<'a> {
    /// A message with a role and a text only.
    pub fn new(role: &'a str, content: &'a str) -> Self {
        Self {
            role,
            content,
            whole: None,
        }
    }
}

/// Values for a template beside the messages.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateRequest {
    /// Tools that the model may call, as JSON schemas.
    pub tools: Option<Vec<TemplateValue>>,
    /// Texts that the model may quote.
    pub documents: Option<Vec<TemplateValue>>,
    /// Variables of the template, such as `enable_thinking`.
    pub variables: TemplateVariables,
    /// Opens an answer (`add_generation_prompt`).
    pub open: bool,
}

impl Default for TemplateRequest {
    fn default() -> Self {
        Self {
            tools: None,
            documents: None,
            variables: TemplateVariables::new(),
            open: true,
        }
    }
}

impl ChatTemplate {
    /// The template of a model folder whose context has `positions` tokens. If the folder has none,
    /// prompts are plain text.
    ///
    /// # Errors
    /// Unreadable or malformed files; a template that does not parse (with its line); one that
    /// raises an exception or does not show the user's message, unless it reads a variable that
    /// [`with`](Self::with) or a request may give; several templates without a default; a prompt
    /// budget of 0.
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
        let mut sources = sources(folder)?;
        let specials: Vec<(String, String)> = match sources.is_empty() {
            true => Vec::new(),
            false => special_names(folder)?.into_iter().collect(),
        };
        let mut compile = |name: &str| {
            let source = sources.remove(name);
            let compiled = source.map(|source| Jinja::compile(&source, specials.clone()));
            compiled.transpose()
        };
        let templates = match compile(DEFAULT)? {
            Some(mut usual) => {
                usual.find_form(&TemplateRequest::default())?;
                let mut tools = compile(TOOLS)?;
                if let Some(tools) = &mut tools {
                    let function = json!({"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}});
                    let request = TemplateRequest {
                        tools: Some(vec![data::of_json(
                            &json!({"type": "function", "function": function}),
                        )]),
                        ..TemplateRequest::default()
                    };
                    // A fault is reported when the template is used: there may never be a request
                    // with tools.
                    let _ = tools.find_form(&request);
                }
                Some(Arc::new(Templates { usual, tools }))
            }
            None => None,
        };
        let mut template = Self {
            templates,
            frame: None,
            system: None,
            variables: TemplateVariables::new(),
            markers: options.prompt_markers.unwrap_or_default(),
            max_prompt_tokens,
        };
        template.find_frame()?;
        Ok(template)
    }

    /// The template with these variables, and a system message for conversations without one.
    ///
    /// # Errors
    /// No template; what the template raises with these.
    pub fn with(
        mut self,
        variables: TemplateVariables,
        system: Option<String>,
    ) -> Result<Self, TemplateError> {
        if self.templates.is_none() && (system.is_some() || !variables.is_empty()) {
            return Err(TemplateError::BadTemplate {
                reason: "the model has no chat template, which a system message and variables need"
                    .to_owned(),
            });
        }
        (self.variables, self.system) = (variables, system);
        if let Some(templates) = &self.templates {
            templates.usual.check(&self.request())?;
        }
        self.find_frame()?;
        Ok(self)
    }

    fn find_frame(&mut self) -> Result<(), TemplateError> {
        self.frame = None;
        let Some(templates) = &self.templates else {
            return Ok(());
        };
        let Ok(text) = self.text(templates, PROBE) else {
            // It may require other messages; its exception is reported when it is used.
            return Ok(());
        };
        let shown = text.matches(PROBE).count();
        if shown != 1 && self.markers == Markers::Text {
            let message = format!("shows the user's message {shown} times, not exactly once");
            return Err(templates
                .usual
                .fault(TemplateFault::Message, None, &message));
        }
        self.frame = text
            .split_once(PROBE)
            .filter(|_| shown == 1)
            .map(|(before, behind)| Arc::new((before.to_owned(), behind.to_owned())));
        Ok(())
    }

    /// True if there is a template, which writes its own beginning of text; plain text gets that of
    /// the tokenizer.
    pub fn is_chat(&self) -> bool {
        self.templates.is_some()
    }

    /// Meaning of names of special tokens in a prompt.
    pub fn markers(&self) -> Markers {
        self.markers
    }

    /// Maximum length of a prompt in tokens, template included.
    pub fn max_prompt_tokens(&self) -> usize {
        self.max_prompt_tokens
    }

    /// Lowers the maximum length of prompts to `tokens`, at least 1.
    pub fn limit_prompts(&mut self, tokens: usize) {
        self.max_prompt_tokens = self.max_prompt_tokens.min(tokens.max(1));
    }

    /// Sets the maximum length of prompts to `tokens`, at least 1.
    pub(crate) fn set_max_prompt_tokens(&mut self, tokens: usize) {
        self.max_prompt_tokens = tokens.max(1);
    }

    /// A prompt in a template.
    fn text(&self, templates: &Templates, prompt: &str) -> Result<String, TemplateError> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        let messages: Vec<_> = system.chain([Message::new("user", prompt)]).collect();
        templates.usual.render(&messages, &self.request())
    }

    /// Values for the template with one prompt.
    fn request(&self) -> TemplateRequest {
        TemplateRequest {
            variables: self.variables.clone(),
            ..TemplateRequest::default()
        }
    }

    /// A user message in the template, followed by the opening of the answer.
    ///
    /// # Errors
    /// An exception of the template, with its line.
    pub fn render(&self, prompt: &str) -> Result<Rendered, TemplateError> {
        let Some(templates) = &self.templates else {
            return Ok(Rendered::around("", prompt, ""));
        };
        let text = self.text(templates, prompt)?;
        if let Some(found) = self.parts(&text, prompt) {
            return Ok(found);
        }
        match self.markers {
            // The prompt must be distinguishable from the template's markers.
            Markers::Text => {
                let message = "the words around the prompt depend on the prompt";
                Err(templates.usual.fault(TemplateFault::Message, None, message))
            }
            Markers::Special => Ok(Rendered {
                text,
                bodies: Vec::new(),
            }),
        }
    }

    /// Splits a rendered text into the prompt and the words around it, if the prompt is in its
    /// frame or occurs exactly once.
    fn parts(&self, text: &str, prompt: &str) -> Option<Rendered> {
        let framed = self.frame.as_ref().and_then(|frame| {
            let (prefix, suffix) = &**frame;
            let body = text.strip_prefix(prefix)?.strip_suffix(suffix)?;
            let own = body == prompt || body == prompt.trim();
            let found = own || self.markers == Markers::Special;
            found.then(|| Rendered::around(prefix, body, suffix))
        });
        framed.or_else(|| {
            let said = [prompt, prompt.trim()];
            let mut said = said.into_iter().filter(|said| !said.is_empty());
            let said = said.find(|said| text.matches(said).count() == 1)?;
            let (prefix, suffix) = text.split_once(said)?;
            Some(Rendered::around(prefix, said, suffix))
        })
    }

    /// Several messages followed by the opening of the answer; `None` without a template, which
    /// suffices for plain text only.
    ///
    /// # Errors
    /// An exception of the template, with its line: an unknown role, another order of turns.
    pub fn converse(
        &self,
        messages: &[Message<'_>],
        request: &TemplateRequest,
    ) -> Result<Option<Rendered>, TemplateError> {
        let Some(templates) = &self.templates else {
            return Ok(None);
        };
        let mut request = request.clone();
        for (name, value) in &self.variables {
            let own = request.variables.entry(name.clone());
            own.or_insert_with(|| value.clone());
        }
        let jinja = match (&request.tools, &templates.tools) {
            (Some(_), Some(tools)) => tools,
            _ => &templates.usual,
        };
        let begun = messages.first().is_some_and(|first| first.role == "system");
        let system = self.system.iter().filter(|_| !begun);
        let system = system.map(|text| Message::new("system", text));
        let messages: Vec<_> = system.chain(messages.iter().copied()).collect();
        let text = jinja.render(&messages, &request)?;
        let bodies = match self.markers {
            Markers::Special => Vec::new(),
            Markers::Text => jinja.bodies(&messages, &request, &text)?,
        };
        Ok(Some(Rendered { text, bodies }))
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
        // The template's own length is measured with a message that it has shown, since some refuse
        // or omit an empty one.
        let (prefix, suffix) = self.frame.as_deref().cloned().unwrap_or_default();
        let empty = Rendered::around(&prefix, "", &suffix);
        fit_with(self.max_prompt_tokens, render, &empty, prompt, count)
    }
}

/// A JSON file of the folder; `None` if there is none.
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
    serde_json::from_slice(vocab_align::without_mark(&bytes))
        .map(Some)
        .map_err(|source| TemplateError::MalformedTemplate {
            path: path.to_owned(),
            source,
        })
}
