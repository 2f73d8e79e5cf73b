//! One template in an environment like that of transformers.

use std::ops::Range;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

use super::clock::Clock;
use super::files::Source;
use super::repr::MOST_TEXT;
use super::{
    Message, PROBE, TemplateRequest, TemplateValue, TemplateVariables, data, filters, globals,
    python, repr, source,
};
use crate::{TemplateError, TemplateFault};

/// Limit on the work of a template; an endless loop is an error.
const FUEL: u64 = 1_000_000;
/// Maximum number of items of a list that is written out.
const MOST_ITEMS: usize = 1 << 20;
/// A second prompt, to compare with [`PROBE`].
const OTHER_PROBE: &str = "another";
/// Names under which models read the reasoning before an answer; the first is the usual one.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A compiled template.
pub(super) struct Jinja {
    environment: Environment<'static>,
    /// The template's file, for messages.
    origin: String,
    specials: Vec<(String, String)>,
    /// True if the template expects contents as lists of parts; `None` if that can only be
    /// determined with the variables of a request.
    parts: Option<bool>,
}

impl Jinja {
    /// Compiles a template. Contents are texts until [`Jinja::find_form`] finds otherwise.
    pub(super) fn compile(
        source: &Source,
        specials: Vec<(String, String)>,
    ) -> Result<Self, TemplateError> {
        let mut jinja = Self {
            environment: Environment::new(),
            origin: source.origin.clone(),
            specials,
            parts: Some(false),
        };
        // Jinja2 reads every line end of a template as a line feed, also inside strings.
        let text = source.text.replace("\r\n", "\n").replace('\r', "\n");
        let text = source::rewrite(&text)
            .map_err(|(line, message)| jinja.fault(TemplateFault::Syntax, Some(line), &message))?;
        let prepared = jinja.prepare(text);
        prepared.map_err(|e| jinja.error(&e, &TemplateVariables::new()))?;
        Ok(jinja)
    }

    /// Determines if the template expects contents as texts or as lists of parts. If it needs
    /// variables that are not given yet, this is repeated with those of each request.
    pub(super) fn find_form(&mut self, request: &TemplateRequest) -> Result<(), TemplateError> {
        self.parts = match self.form(request) {
            Ok(parts) => Some(parts),
            Err(error) if self.may_want(&error, request) => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Checks a template that waits for variables, with those of this request.
    pub(super) fn check(&self, request: &TemplateRequest) -> Result<(), TemplateError> {
        match self.parts {
            Some(_) => Ok(()),
            None => self.form(request).map(drop),
        }
    }

    /// True for a fault that a missing variable may have caused.
    fn may_want(&self, error: &TemplateError, request: &TemplateRequest) -> bool {
        let TemplateError::ChatTemplate { kind, .. } = error else {
            return false;
        };
        // Names of special tokens come from the model's files, if at all.
        let not_given = self.not_given(&request.variables);
        let mut variables = not_given.iter().filter(|name| !name.ends_with("_token"));
        *kind != TemplateFault::Syntax && variables.next().is_some()
    }

    /// True if the template expects contents as lists of parts, false for texts. A probe message is
    /// rendered in both forms. The form in which the output shows it is the right one, or else the
    /// one in which the output depends on it. Output that shows the whole list does not count: such
    /// a template expects texts and alters them.
    fn form(&self, request: &TemplateRequest) -> Result<bool, TemplateError> {
        let asked = |said| {
            let user = Message::new("user", said);
            // Some templates require a system message first.
            [vec![user], vec![Message::new("system", "-"), user]]
        };
        // The part with the message as Python writes it.
        let listed = format!("'text': '{PROBE}'");
        let mut first = None;
        let mut depends = None;
        for (messages, others) in asked(PROBE).iter().zip(&asked(OTHER_PROBE)) {
            for parts in [false, true] {
                match self.render_as(messages, request, parts) {
                    Ok(text) if text.contains(PROBE) && !text.contains(&listed) => {
                        return Ok(parts);
                    }
                    Ok(text) => {
                        let other = self.render_as(others, request, parts);
                        let differs = other.is_ok_and(|other| other != text);
                        depends = depends.or(differs.then_some(parts));
                    }
                    Err(error) => first = first.or(Some(error)),
                }
            }
        }
        let unseen = || {
            self.fault(
                TemplateFault::Message,
                None,
                "does not show the user's message",
            )
        };
        depends.ok_or_else(|| first.unwrap_or_else(unseen))
    }

    fn prepare(&mut self, source: String) -> Result<(), Error> {
        let environment = &mut self.environment;
        let mut syntax = environment.syntax().to_builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build()?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        filters::add_to(environment);
        globals::add_to(environment);
        python::add_to(environment);
        environment.set_formatter(|out, state, value| match value.len() {
            // The library writes every item, even after an error of the writer.
            Some(items) if items > MOST_ITEMS && value.as_str().is_none() => {
                let message = format!("a value of {items} items is written out");
                Err(Error::new(ErrorKind::InvalidOperation, message))
            }
            _ if repr::is_own(value) => {
                let text = repr::written(value)?;
                out.write_str(&text).map_err(Error::from)
            }
            _ => minijinja::escape_formatter(out, state, value),
        });
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        let clock = Clock::now();
        environment.add_function("strftime_now", move |format: String| clock.format(&format));
        environment.add_template_owned("chat", source)
    }

    /// Byte ranges of the messages in the rendered `text`. A second rendering, with a probe instead
    /// of every message, shows the template's own words between them.
    pub(super) fn bodies(
        &self,
        messages: &[Message<'_>],
        request: &TemplateRequest,
        text: &str,
    ) -> Result<Vec<Range<usize>>, TemplateError> {
        let probe = |i: usize| format!("{PROBE}-{i}-");
        let probes: Vec<String> = (0..messages.len()).map(probe).collect();
        let probing = messages
            .iter()
            .zip(&probes)
            .map(|(message, probe)| Message {
                content: probe,
                ..*message
            });
        let words = self.render(&probing.collect::<Vec<_>>(), request)?;
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
            let lost = "the words around a message depend on what it says";
            let lost = || self.fault(TemplateFault::Message, None, lost);
            (rest, words) = (found.ok_or_else(lost)?, behind);
        }
        Ok(bodies)
    }

    /// A message as a template value.
    fn turn(message: &Message<'_>, in_parts: bool) -> Value {
        let mut entries = vec![(Value::from("role"), Value::from(message.role))];
        let whole = message.whole.map(data::pairs).unwrap_or_default();
        let value_of = |entries: &[(Value, Value)], name: &str| {
            let found = entries.iter().find(|(key, _)| key.as_str() == Some(name));
            found.map(|(_, value)| value.clone())
        };
        let said = match (value_of(&whole, "content"), in_parts) {
            // A message without content, such as a call of a tool.
            (None, _) if message.whole.is_some() => None,
            // A content that was sent in parts stays so for a template that reads parts.
            (Some(parts), true) if parts.kind() == ValueKind::Seq => Some(parts),
            (_, true) => {
                let part = [("type", "text"), ("text", message.content)];
                Some(Value::from(vec![Value::from_pairs(part)]))
            }
            (_, false) => Some(message.content.into()),
        };
        entries.extend(said.map(|said| (Value::from("content"), said)));
        for (key, value) in &whole {
            if !["role", "content"].map(Some).contains(&key.as_str()) {
                entries.push((key.clone(), value.clone()));
            }
        }
        let thought = REASONING.iter().find_map(|key| value_of(&entries, key));
        for name in [REASONING[0], "thinking"] {
            if let (Some(thought), None) = (&thought, value_of(&entries, name)) {
                entries.push((name.into(), thought.clone()));
            }
        }
        data::value(&Value::from_pairs(entries))
    }

    pub(super) fn render(
        &self,
        messages: &[Message<'_>],
        request: &TemplateRequest,
    ) -> Result<String, TemplateError> {
        let parts = match self.parts {
            Some(parts) => parts,
            None => self.form(request)?,
        };
        self.render_as(messages, request, parts)
    }

    fn render_as(
        &self,
        messages: &[Message<'_>],
        request: &TemplateRequest,
        parts: bool,
    ) -> Result<String, TemplateError> {
        let turns = messages.iter().map(|message| Self::turn(message, parts));
        let turns: Vec<Value> = turns.collect();
        let list = |list: &Option<Vec<TemplateValue>>| match list {
            Some(items) => items.iter().map(data::value).collect(),
            None => Value::from(()),
        };
        let specials = self.specials.iter();
        let specials = specials.map(|(name, token)| (name.clone(), Value::from(token.as_str())));
        let given = request.variables.iter();
        let given = given.map(|(name, value)| (name.clone(), data::value(value)));
        let own = [
            ("messages", Value::from(turns)),
            ("add_generation_prompt", request.open.into()),
            ("tools", list(&request.tools)),
            ("documents", list(&request.documents)),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        // Of entries with the same name the last counts: variables replace special tokens,
        // and the names in `own` replace both.
        let variables = Value::from_pairs(specials.chain(given).chain(own));
        let mut text = Bounded(Vec::new());
        self.environment
            .get_template("chat")
            .and_then(|template| template.render_captured_to(variables, &mut text))
            .map_err(|e| self.error(&e, &request.variables))?;
        let failed =
            |e: std::string::FromUtf8Error| self.fault(TemplateFault::Raised, None, &e.to_string());
        String::from_utf8(text.0).map_err(failed)
    }

    /// Names that the template reads and that have no value.
    fn not_given(&self, variables: &TemplateVariables) -> Vec<String> {
        let Ok(template) = self.environment.get_template("chat") else {
            return Vec::new();
        };
        let given = ["messages", "add_generation_prompt", "tools", "documents"];
        let known = |name: &String| {
            given.contains(&name.as_str())
                || variables.contains_key(name)
                || self.specials.iter().any(|(special, _)| special == name)
                || self.environment.globals().any(|(global, _)| global == name)
        };
        let mut names: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        names.retain(|name| !known(name));
        names.sort_unstable();
        names
    }

    fn error(&self, error: &Error, variables: &TemplateVariables) -> TemplateError {
        let mut message = error
            .detail()
            .map_or_else(|| error.kind().to_string(), str::to_owned);
        let mut kind = match error.kind() {
            ErrorKind::SyntaxError | ErrorKind::UnknownFilter | ErrorKind::UnknownTest => {
                TemplateFault::Syntax
            }
            _ => TemplateFault::Raised,
        };
        if message.contains("undefined") {
            let names = self.not_given(variables);
            if !names.is_empty() {
                kind = TemplateFault::Missing;
                message = format!("{message} (not given: {})", names.join(", "));
            }
        }
        self.fault(kind, error.line(), &message)
    }

    pub(super) fn fault(
        &self,
        kind: TemplateFault,
        line: Option<usize>,
        message: &str,
    ) -> TemplateError {
        TemplateError::ChatTemplate {
            origin: self.origin.clone(),
            line,
            message: message.to_owned(),
            kind,
        }
    }
}

/// Output of a template, limited to [`MOST_TEXT`]: a short expression can repeat a list without
/// bound.
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
