//! Answers in files: lines of JSON as servers and their clients write them, and recorded traces.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use models::{Message, TemplateRequest};
use serde_json::{Map, Value};
use trace::{Law, TraceError, TraceFile};
use vocab_align::{TargetId, Vocabulary};

use crate::error::ApiError;
use crate::learn::{KnownRow, RecordedAnswer};
use crate::models::{Encoded, Models};

/// Least log-probability; lower ones are raised to it. Some servers write -9999 for tokens that
/// they rule out.
const FLOOR: f64 = -100.0;
/// Rounding by which a log-probability may be above 0.
const ROUNDING: f64 = 1e-3;
/// Largest sum of the probabilities of a position: as much above 1 as servers round.
const MOST_MASS: f64 = 1.01;
/// Keys of a line that hold a user's message, in the order in which they are looked for.
const QUESTIONS: [&str; 4] = ["prompt", "question", "instruction", "input"];
/// Keys of a line that hold an answer as text.
const ANSWERS: [&str; 5] = ["answer", "completion", "response", "output", "text"];

/// A fault in a file of answers.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A line that is no answer.
    #[error("{path}:{line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The fault.
        what: String,
    },
    /// A trace that cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A trace in the tokens of another target.
    #[error(
        "{path}: recorded with another tokenizer than that of {target} ({found} tokens, not {expected})"
    )]
    OtherTarget {
        /// The file.
        path: PathBuf,
        /// Folder of the target.
        target: PathBuf,
        /// Vocabulary size of the recorded target.
        found: usize,
        /// Vocabulary size of the target at hand.
        expected: usize,
    },
}

impl LogError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Io { .. } => "paths are relative to the working directory",
            Self::Line { .. } => {
                "a line is a JSON object with the conversation (`messages` or `prompt`) and the answer (`choices`, `answer` \
                 or a last message of the assistant); nothing was learnt from this file"
            }
            Self::Trace(error) => return error.hint(),
            Self::OtherTarget { .. } => {
                "name the target that was recorded, or record this one (`omnidraft trace record`)"
            }
        };
        Some(text.to_owned())
    }
}

/// The answers of a file, and numbers of answers that were used in part or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// The answers, in the order of the file.
    pub answers: Vec<RecordedAnswer>,
    /// Number of answers with log-probabilities for every token; all answers of a trace.
    pub with_log_probs: usize,
    /// Number of answers whose log-probabilities name tokens that the target does not have. Only
    /// their text is used.
    pub other_tokens: usize,
    /// Number of answers with log-probabilities for every token, some of whose alternatives the
    /// target does not have. The mass of these counts as that of tokens that are not named.
    pub other_alternatives: usize,
    /// Number of answers without text, which are left out: calls of tools, refusals.
    pub without_text: usize,
}

impl Log {
    /// Reads the answers that the first target of `models` gave. A file that ends in `.parquet` is
    /// a trace; any other has lines of JSON, each with one or several answers:
    ///
    /// - the conversation: `messages`, or one of `prompt`, `question`, `instruction`, `input`, at
    ///   the top or inside `request` or `body`;
    /// - the answer: `choices` as the chat or the completions endpoint of OpenAI and vLLM give
    ///   them, at the top or inside `response` (and its `body`); one of `answer`, `completion`,
    ///   `response`, `output`, `text`; or the last of the `messages`, if it is the assistant's.
    ///
    /// # Errors
    /// A file that cannot be read; a line that is no JSON, or has no prompt or no answer; a trace
    /// of a target with a larger vocabulary.
    pub fn read(path: &Path, models: &Models) -> Result<Self, LogError> {
        let mut log = Self::default();
        if path.extension().is_some_and(|end| end == "parquet") {
            log.read_trace(path, models)?;
            return Ok(log);
        }
        let io = |source| LogError::Io {
            path: path.to_owned(),
            source,
        };
        let fault = |index, what| LogError::Line {
            path: path.to_owned(),
            line: index + 1,
            what,
        };
        let lines = BufReader::new(File::open(path).map_err(io)?).lines();
        for (index, line) in lines.enumerate() {
            // A byte that is no UTF-8 is a fault of its line.
            let line = line.map_err(|source| match source.kind() {
                ErrorKind::InvalidData => fault(index, source.to_string()),
                _ => io(source),
            })?;
            if line.trim().is_empty() {
                continue;
            }
            // Editors of Windows put a mark of the encoding before the first line.
            log.read_line(line.trim_start_matches('\u{feff}'), models)
                .map_err(|what| fault(index, what))?;
        }
        Ok(log)
    }

    fn read_line(&mut self, line: &str, models: &Models) -> Result<(), String> {
        // The parser's line is always the first.
        let fault =
            |e: serde_json::Error| e.to_string().replace(" at line 1 column ", " at column ");
        let value: Value = serde_json::from_str(line).map_err(fault)?;
        let top = value.as_object().ok_or("is no JSON object")?;
        let asked = ["request", "body"]
            .iter()
            .find_map(|key| top.get(*key)?.as_object());
        let replied = top.get("response").and_then(Value::as_object);
        let replied = replied.map(|own| own.get("body").and_then(Value::as_object).unwrap_or(own));
        let request = asked.unwrap_or(top);
        let reply = replied.unwrap_or(top);
        // Servers draw answers unless the request gives a temperature of 0.
        let temperature = request
            .get("temperature")
            .or_else(|| top.get("temperature"));
        let sampled = match temperature.filter(|value| !value.is_null()) {
            Some(value) => match value.as_f64().filter(|t| *t >= 0.0) {
                Some(number) => number > 0.0,
                None => return Err(format!("temperature: {value} is no number from 0 on")),
            },
            None => true,
        };
        let line = Line {
            request,
            reply,
            models,
            sampled,
        };
        match reply.get("choices").and_then(Value::as_array) {
            Some(choices) => choices.iter().try_for_each(|choice| {
                let choice = choice.as_object().ok_or("choices: is no object")?;
                self.add_choice(&line, choice)
            }),
            None => self.add_text(&line, top),
        }
    }

    /// An answer as an endpoint gives it.
    fn add_choice(&mut self, line: &Line<'_>, choice: &Map<String, Value>) -> Result<(), String> {
        let message = choice.get("message").and_then(Value::as_object);
        let content = message.map_or(choice.get("text"), |message| message.get("content"));
        let Some(text) = content
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        else {
            self.without_text += 1;
            return Ok(());
        };
        let prompt = match message {
            Some(_) => line.conversation(0)?,
            None => line.plain_prompt(choice)?,
        };
        let vocabulary = line.vocabulary();
        let given = choice.get("logprobs").filter(|given| !given.is_null());
        let mut unknown = 0;
        let found = given
            .map(|given| positions(given, vocabulary, &mut unknown))
            .transpose()?;
        let (mut tokens, mut rows) = match found {
            Some(Some(positions)) => positions.into_iter().unzip(),
            found => {
                self.other_tokens += usize::from(matches!(found, Some(None)));
                (line.tokens(choice, text)?, Vec::new())
            }
        };
        if tokens.is_empty() {
            self.without_text += 1;
            return Ok(());
        }
        line.end(choice, &mut tokens, &mut rows);
        self.with_log_probs += usize::from(!rows.is_empty());
        self.other_alternatives += usize::from(!rows.is_empty() && unknown > 0);
        self.answers.push(RecordedAnswer {
            prompt,
            tokens,
            rows,
            sampled: line.sampled,
        });
        Ok(())
    }

    /// An answer as text beside its prompt.
    fn add_text(&mut self, line: &Line<'_>, top: &Map<String, Value>) -> Result<(), String> {
        let said = ANSWERS.iter().find_map(|key| top.get(*key)?.as_str());
        let messages = line.request.get("messages").and_then(Value::as_array);
        let last = messages.and_then(|all| all.last());
        let own = last.filter(|last| last.get("role").and_then(Value::as_str) == Some("assistant"));
        // The last message is the answer, also where a key has its text as well.
        let left_out = usize::from(own.is_some());
        let text = match (said, own) {
            (Some(text), _) => text.to_owned(),
            (None, Some(own)) => words(own.get("content")),
            (None, None) => {
                return Err(format!(
                    "has no answer: `choices`, one of `{}`, or a last message of the assistant",
                    ANSWERS.join("`, `")
                ));
            }
        };
        if text.trim().is_empty() {
            self.without_text += 1;
            return Ok(());
        }
        let prompt = line.conversation(left_out)?;
        let vocabulary = line.vocabulary();
        let mut tokens = vocabulary.encode(&text).map_err(|e| e.to_string())?;
        // Unless the line says that the answer was cut, it ended by itself.
        let reason = line.reply.get("finish_reason").and_then(Value::as_str);
        if reason.is_none_or(|reason| reason == "stop") {
            tokens.extend(line.stops().first().copied());
        }
        self.answers.push(RecordedAnswer {
            prompt,
            tokens,
            rows: Vec::new(),
            sampled: line.sampled,
        });
        Ok(())
    }

    fn read_trace(&mut self, path: &Path, models: &Models) -> Result<(), LogError> {
        let mut file = TraceFile::open(path)?;
        let target = &models.targets[0];
        if file.info().vocab_size > target.vocab_size {
            return Err(LogError::OtherTarget {
                path: path.to_owned(),
                target: target.text.path.clone(),
                found: file.info().vocab_size,
                expected: target.vocab_size,
            });
        }
        let frame = target.text.template.render("").ok();
        for row in 0..file.entries().len() {
            let record = file.record(row)?;
            // The drafter reads the question in its own template, as it does beside a live target.
            let question = frame.as_ref().and_then(|frame| {
                let end = frame.text.len();
                let body = frame.bodies.first().cloned().unwrap_or(end..end);
                let text = record.prompt.strip_prefix(&frame.text[..body.start])?;
                text.strip_suffix(&frame.text[body.end..])
            });
            let fault = |error: ApiError| LogError::Line {
                path: path.to_owned(),
                line: row + 1,
                what: error.to_string(),
            };
            let own = models.tokens(0, &record.prompt_ids).map_err(fault)?;
            let draft = match question {
                Some(question) => {
                    let asked = [Message::new("user", question)];
                    let asked = models.converse(0, &asked, &TemplateRequest::default());
                    asked.map_err(fault)?.draft
                }
                None => own.draft,
            };
            self.with_log_probs += 1;
            self.answers.push(RecordedAnswer {
                prompt: Encoded {
                    target: own.target,
                    draft,
                },
                rows: (0..record.answer.len())
                    .map(|i| known(&record.law, i))
                    .collect(),
                tokens: record.answer.into_iter().map(TargetId).collect(),
                sampled: false,
            });
        }
        Ok(())
    }
}

/// The recorded distribution at a position.
fn known(law: &Law, position: usize) -> KnownRow {
    let entries = law.entries(position);
    // Logits differ from log-probabilities by a constant.
    let shift = match law {
        Law::Top { .. } => 0.0,
        Law::Full { .. } => {
            let most = entries
                .iter()
                .map(|(_, x)| *x)
                .fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = entries.iter().map(|(_, x)| f64::from(x - most).exp()).sum();
            most + sum.ln() as f32
        }
    };
    KnownRow {
        tokens: entries
            .into_iter()
            .map(|(token, value)| (TargetId(token), value - shift))
            .collect(),
        rest: f64::from(law.rest(position)),
    }
}

/// A line of a log, and the models that are to read it.
struct Line<'a> {
    request: &'a Map<String, Value>,
    reply: &'a Map<String, Value>,
    models: &'a Models,
    sampled: bool,
}

impl Line<'_> {
    fn vocabulary(&self) -> &Vocabulary<TargetId> {
        &self.models.targets[0].text.vocabulary
    }

    fn stops(&self) -> BTreeSet<TargetId> {
        self.models.targets[0].text.stop_tokens()
    }

    /// The conversation as both models read it, without its last `left_out` messages.
    fn conversation(&self, left_out: usize) -> Result<Encoded, String> {
        let read = |messages: &[Message<'_>]| {
            let read = self
                .models
                .converse(0, messages, &TemplateRequest::default());
            read.map_err(|e| e.to_string())
        };
        if let Some(messages) = self.request.get("messages").and_then(Value::as_array) {
            let asked = &messages[..messages.len().saturating_sub(left_out)];
            let turns: Vec<(&str, String)> = asked
                .iter()
                .map(|message| {
                    let role = message
                        .get("role")
                        .and_then(Value::as_str)
                        .unwrap_or("user");
                    (role, words(message.get("content")))
                })
                .collect();
            if turns.is_empty() {
                return Err("messages: nobody asks anything".to_owned());
            }
            let turns: Vec<Message<'_>> = turns
                .iter()
                .map(|(role, content)| Message::new(role, content))
                .collect();
            return read(&turns);
        }
        let question = QUESTIONS
            .iter()
            .find_map(|key| self.request.get(*key)?.as_str());
        let question = question.ok_or_else(|| {
            let keys = QUESTIONS.join("`, `");
            format!("has no prompt: `messages`, or one of `{keys}`")
        })?;
        read(&[Message::new("user", question)])
    }

    /// The prompt of a completion: its tokens if they were recorded, else its plain text.
    fn plain_prompt(&self, choice: &Map<String, Value>) -> Result<Encoded, String> {
        let recorded = choice.get("prompt_token_ids");
        let recorded = recorded.or_else(|| self.reply.get("prompt_token_ids"));
        let prompt = self.request.get("prompt");
        if let Some(ids) = recorded
            .and_then(ids_of)
            .or_else(|| prompt.and_then(ids_of))
        {
            return self.models.tokens(0, &ids).map_err(|e| e.to_string());
        }
        let text = match prompt {
            Some(Value::String(text)) => text.as_str(),
            Some(Value::Array(texts)) if texts.len() == 1 => texts[0].as_str().unwrap_or_default(),
            _ => return Err("has no `prompt` that is one text or one list of tokens".to_owned()),
        };
        self.models.plain(0, text).map_err(|e| e.to_string())
    }

    /// The tokens of an answer: the recorded ones if the target has all of them, else those of its
    /// text.
    fn tokens(&self, choice: &Map<String, Value>, text: &str) -> Result<Vec<TargetId>, String> {
        let size = self.vocabulary().len();
        let recorded = choice.get("token_ids").and_then(ids_of);
        match recorded.filter(|ids| ids.iter().all(|id| (*id as usize) < size)) {
            Some(ids) => Ok(ids.into_iter().map(TargetId).collect()),
            None => self.vocabulary().encode(text).map_err(|e| e.to_string()),
        }
    }

    /// Adds the token that ended the answer, if it ended by itself and lacks that token: servers
    /// leave it out.
    fn end(
        &self,
        choice: &Map<String, Value>,
        tokens: &mut Vec<TargetId>,
        rows: &mut Vec<KnownRow>,
    ) {
        let stops = self.stops();
        let by_itself = choice.get("finish_reason").and_then(Value::as_str) == Some("stop");
        // A stop string of the client ended the answer; the target would have continued.
        let by_text = choice.get("stop_reason").is_some_and(Value::is_string);
        if !by_itself || by_text || tokens.last().is_some_and(|last| stops.contains(last)) {
            return;
        }
        let named = choice.get("stop_reason").and_then(Value::as_u64);
        let named = named.and_then(|id| u32::try_from(id).ok()).map(TargetId);
        let end = named
            .filter(|id| stops.contains(id))
            .or_else(|| stops.first().copied());
        if let Some(end) = end {
            tokens.push(end);
            if !rows.is_empty() {
                rows.push(KnownRow::certain(end));
            }
        }
    }
}

/// The text of a message, whose content may be parts.
fn words(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn ids_of(value: &Value) -> Option<Vec<u32>> {
    let ids = value.as_array()?.iter();
    let ids: Option<Vec<u32>> = ids.map(|id| u32::try_from(id.as_u64()?).ok()).collect();
    ids.filter(|ids| !ids.is_empty())
}

/// A token of an answer, and the known part of the distribution that it is from.
type Position = (TargetId, KnownRow);

/// The positions of an answer by its log-probabilities; `None` if it has tokens that the target
/// does not have. Adds to `unknown` the number of alternatives that the target does not have.
fn positions(
    given: &Value,
    vocabulary: &Vocabulary<TargetId>,
    unknown: &mut usize,
) -> Result<Option<Vec<Position>>, String> {
    let list = |key: &str| given.get(key).and_then(Value::as_array);
    // The chat endpoint gives entries, that of completions lists of the same length.
    if let Some(content) = list("content") {
        let read = content.iter().map(|entry| {
            let token = chat_token(entry, vocabulary);
            let top = entry.get("top_logprobs").and_then(Value::as_array);
            let others = top.into_iter().flatten();
            let others = others.map(|own| (chat_token(own, vocabulary), own.get("logprob")));
            position(token, entry.get("logprob"), others, unknown)
        });
        return read.collect();
    }
    let fault = |what: &str| format!("logprobs: {what}");
    let tokens = list("tokens").ok_or_else(|| fault("has neither `content` nor `tokens`"))?;
    let own = list("token_logprobs").ok_or_else(|| fault("has no `token_logprobs`"))?;
    if own.len() != tokens.len() {
        return Err(fault("`tokens` and `token_logprobs` differ in length"));
    }
    let top = list("top_logprobs");
    let find = |name: &str| numbered(name, vocabulary).or_else(|| named(name, vocabulary));
    let read = tokens.iter().zip(own).enumerate().map(|(i, (name, own))| {
        let others = top.and_then(|top| top.get(i)?.as_object());
        let others = others.into_iter().flatten();
        let others = others.map(|(name, value)| (find(name), Some(value)));
        position(name.as_str().and_then(find), Some(own), others, unknown)
    });
    read.collect()
}

/// A position of an answer by the values of its token and of other ones; `None` if the target does
/// not have its token.
fn position<'a>(
    token: Option<TargetId>,
    own: Option<&Value>,
    others: impl Iterator<Item = (Option<TargetId>, Option<&'a Value>)>,
    unknown: &mut usize,
) -> Result<Option<Position>, String> {
    let Some(token) = token else {
        return Ok(None);
    };
    let own = log_prob(own)?;
    let (mut tokens, mut mass) = (vec![(token, own as f32)], own.exp());
    for (other, value) in others {
        let Some(other) = other else {
            *unknown += 1;
            continue;
        };
        let value = log_prob(value)?;
        if tokens.iter().all(|(known, _)| *known != other) {
            tokens.push((other, value as f32));
            mass += value.exp();
        }
    }
    if mass > MOST_MASS {
        return Err(format!(
            "logprobs: probabilities of a position add up to {mass:.2}"
        ));
    }
    let rest = (1.0 - mass).clamp(0.0, 1.0);
    Ok(Some((token, KnownRow { tokens, rest })))
}

fn chat_token(entry: &Value, vocabulary: &Vocabulary<TargetId>) -> Option<TargetId> {
    let name = entry.get("token")?.as_str()?;
    if let Some(id) = numbered(name, vocabulary) {
        return Some(id);
    }
    let bytes = entry.get("bytes").and_then(Value::as_array);
    let bytes: Option<Vec<u8>> = bytes.and_then(|bytes| {
        let bytes = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok());
        bytes.collect()
    });
    let spelt = bytes.filter(|bytes| !bytes.is_empty());
    let by_bytes = spelt.and_then(|bytes| vocabulary.find_bytes(&bytes));
    by_bytes.or_else(|| named(name, vocabulary))
}

/// A token that is written as its number, as vLLM does on request.
fn numbered(name: &str, vocabulary: &Vocabulary<TargetId>) -> Option<TargetId> {
    let id = name.strip_prefix("token_id:")?.parse().ok()?;
    ((id as usize) < vocabulary.len()).then_some(TargetId(id))
}

/// A token by its text, special ones by their names.
fn named(name: &str, vocabulary: &Vocabulary<TargetId>) -> Option<TargetId> {
    let by_bytes = vocabulary.find_bytes(name.as_bytes());
    by_bytes.or_else(|| vocabulary.find_content(name))
}

fn log_prob(value: Option<&Value>) -> Result<f64, String> {
    let number = value.and_then(Value::as_f64);
    match number.filter(|x| *x <= ROUNDING) {
        Some(number) => Ok(number.clamp(FLOOR, 0.0)),
        None => {
            let found = value.map_or("nothing".to_owned(), Value::to_string);
            Err(format!("logprobs: {found} is no log-probability"))
        }
    }
}
