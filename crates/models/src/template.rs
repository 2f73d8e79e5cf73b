//! Prompt templates, and the shortening of long prompts.
//!
//! A long prompt is cut **as text, before templating**: cutting tokens would let drafter and
//! target, whose tokenizers differ, read different articles, and the byte-for-byte alignment of
//! their contexts would be lost from the start. Only the length is measured in tokens, by a
//! tokenizer that the caller chooses (the target's). The head of the text is kept, the end of its
//! middle is dropped, and its last paragraph, line or sentence (in XSum the instruction, in MBPP
//! the last test, in GSM8K the question) stays.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::TemplateError;

/// File of a model folder that holds its template.
pub const CHAT_TEMPLATE_FILE: &str = "chat_template.jinja";
/// File of a model folder with the maximum length of prompts, and with the meaning of names of
/// special tokens in them.
pub const TEMPLATE_FILE: &str = "omnidraft.json";

const SLOT: &str = "{prompt}";

/// Content of `omnidraft.json`: options of a model beyond its Hugging Face files.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelOptions {
    /// Maximum length of a prompt in tokens, template included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_prompt_tokens: Option<usize>,
    /// Meaning of names of special tokens in a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prompt_markers: Option<Markers>,
}

/// Meaning of the name of a special token in a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Markers {
    /// The special token, as in transformers.
    #[default]
    Special,
    /// Text, so that no input of a user ends a turn.
    Text,
}

/// The template of a recipe of `omnidraft pretrain`; a model folder carries it as the chat template
/// that [`PromptTemplate::write`] makes of it.
///
/// ```
/// use models::PromptTemplate;
///
/// let template = PromptTemplate::default();
/// assert_eq!(template.render("2 + 2?").text, "<|user|>\n2 + 2?\n<|assistant|>\n");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptTemplate {
    /// Text with exactly one `{prompt}`.
    pub prompt_template: String,
    /// Literal of the token that ends an answer.
    pub end_of_turn: String,
    /// Maximum length of a prompt in tokens, template included.
    pub max_prompt_tokens: usize,
}

impl Default for PromptTemplate {
    fn default() -> Self {
        Self {
            prompt_template: "<|user|>\n{prompt}\n<|assistant|>\n".to_owned(),
            end_of_turn: "<|end|>".to_owned(),
            max_prompt_tokens: 256,
        }
    }
}

/// A prompt or a conversation in its template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The whole text.
    pub text: String,
    /// Byte ranges of the text that come from messages; the rest is the template's. Those of a
    /// prompt that the template changes are not known. There are none in a conversation in which
    /// names of special tokens stand for these tokens, as in transformers.
    pub bodies: Vec<Range<usize>>,
}

impl Rendered {
    /// A text with one body.
    pub(crate) fn around(prefix: &str, body: &str, suffix: &str) -> Self {
        let place = prefix.len()..prefix.len() + body.len();
        Self {
            text: [prefix, body, suffix].concat(),
            bodies: vec![place],
        }
    }

    /// The prompt; empty if the template changes it.
    pub fn body(&self) -> &str {
        let body = self.bodies.first();
        body.map_or("", |body| &self.text[body.clone()])
    }
}

/// A prompt that fits its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The text for both models.
    pub rendered: Rendered,
    /// The part of the prompt that fits, as the template shows it, or as it was if the template
    /// changes it.
    pub said: String,
}

impl PromptTemplate {
    /// Writes the chat template and the prompt budget into a model folder.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), TemplateError> {
        let options = ModelOptions {
            max_prompt_tokens: Some(self.max_prompt_tokens),
            prompt_markers: None,
        };
        let files = [
            (CHAT_TEMPLATE_FILE, self.jinja()),
            (TEMPLATE_FILE, format!("{:#}\n", serde_json::json!(options))),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|source| TemplateError::Write { path, source })?;
        }
        Ok(())
    }

    /// The chat template in Jinja: beginning of text, then the turns. The text after a prompt opens
    /// the answer, so that `add_generation_prompt` has nothing to add.
    fn jinja(&self) -> String {
        let (prefix, suffix) = self.frame();
        let literal = |text: &str| {
            let text = text
                .replace('\\', "\\\\")
                .replace('\'', "\\'")
                .replace('\n', "\\n")
                .replace('\r', "\\r")
                .replace('\t', "\\t");
            format!("'{text}'")
        };
        format!(
            "{{{{- bos_token }}}}\n\
             {{%- for message in messages %}}\n\
             {{%- if message['role'] == 'user' %}}\n\
             {{{{- {} + message['content'] + {} }}}}\n\
             {{%- elif message['role'] == 'assistant' %}}\n\
             {{{{- message['content'] + {} }}}}\n\
             {{%- else %}}\n\
             {{{{- raise_exception('this model knows the roles user and assistant only') }}}}\n\
             {{%- endif %}}\n\
             {{%- endfor %}}\n",
            literal(prefix),
            literal(suffix),
            literal(&self.end_of_turn),
        )
    }

    /// Checks the values.
    ///
    /// # Errors
    /// Not exactly one `{prompt}`, an empty end of turn, or a budget of 0.
    pub fn validate(&self) -> Result<(), TemplateError> {
        let slots = self.prompt_template.matches(SLOT).count();
        let reason = if slots != 1 {
            format!("prompt_template must hold {SLOT} once, it holds it {slots} times")
        } else if self.end_of_turn.is_empty() {
            "end_of_turn is empty".to_owned()
        } else if self.max_prompt_tokens == 0 {
            "max_prompt_tokens is 0".to_owned()
        } else {
            return Ok(());
        };
        Err(TemplateError::BadTemplate { reason })
    }

    /// The words before and after a prompt. (If the template has no slot, which
    /// [`PromptTemplate::validate`] refuses, everything is before it.)
    fn frame(&self) -> (&str, &str) {
        self.prompt_template
            .split_once(SLOT)
            .unwrap_or((&self.prompt_template, ""))
    }

    /// The whole prompt in its template.
    pub fn render(&self, prompt: &str) -> Rendered {
        let (prefix, suffix) = self.frame();
        Rendered::around(prefix, prompt, suffix)
    }

    /// The prompt in its template, shortened until `count` returns at most `max_prompt_tokens`.
    ///
    /// `count` is the number of tokens of a rendered prompt for the target's tokenizer: the arms of
    /// an experiment must agree on the text, including the one without a drafter. The cut falls
    /// between words, or inside a word if the text has no other place.
    ///
    /// # Errors
    /// Errors of `count`, and [`TemplateError::PromptBudget`] if the empty template is too long.
    ///
    /// ```
    /// use models::TemplateError;
    /// use models::PromptTemplate;
    ///
    /// let mut template = PromptTemplate::default();
    /// template.max_prompt_tokens = 6;
    /// let words = |r: &models::Rendered| Ok::<_, TemplateError>(r.text.split_whitespace().count());
    /// let fitted = template.fit("one two three four five six\n\nSummarize it.", words)?;
    /// assert_eq!(fitted.rendered.body(), "one two\n\nSummarize it.");
    /// # Ok::<(), TemplateError>(())
    /// ```
    pub fn fit<E: From<TemplateError>>(
        &self,
        prompt: &str,
        count: impl FnMut(&Rendered) -> Result<usize, E>,
    ) -> Result<Fitted, E> {
        let render = |text: &str| Ok(self.render(text));
        fit_with(
            self.max_prompt_tokens,
            render,
            &self.render(""),
            prompt,
            count,
        )
    }
}

/// [`PromptTemplate::fit`] with a render function and a budget of `budget` tokens.
pub(super) fn fit_with<E: From<TemplateError>>(
    budget: usize,
    render: impl Fn(&str) -> Result<Rendered, E>,
    empty: &Rendered,
    prompt: &str,
    mut count: impl FnMut(&Rendered) -> Result<usize, E>,
) -> Result<Fitted, E> {
    let fitted = |rendered: Rendered, text: &str| Fitted {
        said: match rendered.body() {
            "" => text.to_owned(),
            body => body.to_owned(),
        },
        rendered,
    };
    let whole = render(prompt)?;
    if count(&whole)? <= budget {
        return Ok(fitted(whole, prompt));
    }
    let needed = count(empty)?;
    let too_long = || -> E {
        TemplateError::PromptBudget {
            needed,
            max_prompt_tokens: budget,
        }
        .into()
    };
    if needed > budget {
        return Err(too_long());
    }
    let tail = choose_tail(budget, &render, prompt, needed, &mut count)?;
    let head = &prompt[..prompt.len() - tail.len()];
    let cuts = cut_points(head);
    // The longest head that fits: text grows with the cut, and so does the count, up to a token or
    // two. The returned text was counted itself, so that an error of the search cannot exceed the
    // budget.
    let mut best = match tail.trim_start() {
        "" => None,
        end => Some((render(end)?, end.to_owned())),
    };
    let (mut low, mut high) = (0, cuts.len());
    while low < high {
        let middle = low.midpoint(high);
        let text = [&head[..cuts[middle]], tail].concat();
        let candidate = render(&text)?;
        if count(&candidate)? <= budget {
            best = Some((candidate, text));
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    match best {
        Some((rendered, text)) => Ok(fitted(rendered, &text)),
        // Nothing of the prompt fits. The template alone is returned if it renders without a
        // prompt.
        None => match render("") {
            Ok(rendered) if count(&rendered)? <= budget => Ok(fitted(rendered, "")),
            _ => Err(too_long()),
        },
    }
}

/// The tail to keep: the last paragraph, line or sentence, the first of these that takes at most
/// half of the room; empty if none does. It starts with the white space that separates it.
fn choose_tail<'a, E>(
    budget: usize,
    render: &impl Fn(&str) -> Result<Rendered, E>,
    prompt: &'a str,
    template_tokens: usize,
    count: &mut impl FnMut(&Rendered) -> Result<usize, E>,
) -> Result<&'a str, E> {
    let trimmed = prompt.trim_end();
    let room = (budget - template_tokens) / 2;
    for separator in ["\n\n", "\n", ". "] {
        let Some(at) = trimmed.rfind(separator) else {
            continue;
        };
        // The full stop belongs to the sentence before; the tail begins with the space after it.
        let start = if separator == ". " { at + 1 } else { at };
        let tail = &prompt[start..];
        if count(&render(tail)?)? <= template_tokens + room {
            return Ok(tail);
        }
    }
    Ok("")
}

/// Ends of the words of `text`, or of its characters if it has at most one word; ascending, without
/// 0.
fn cut_points(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut inside = false;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() && inside {
            ends.push(at);
        }
        inside = !c.is_whitespace();
    }
    if ends.is_empty() {
        ends = text.char_indices().skip(1).map(|(at, _)| at).collect();
    }
    ends
}
