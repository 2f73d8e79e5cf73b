//! Conversations whose questions are known beforehand, such as those of MT-Bench: each prompt is a
//! question after the exchanges before it.

use spec_decode::{NoSink, PlainConfig, Sampling, StreamName, decode_plain};
use vocab_align::{TargetId, TokenId};

use crate::error::Result;
use crate::{Engine, Message, ModelText, Rendered, TemplateRequest};

/// A question and the answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The question.
    pub asked: String,
    /// The answer.
    pub answered: String,
}

/// A question after others, as a model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedTurn<I> {
    /// The text that is fed, template included.
    pub text: String,
    /// The text in tokens.
    pub ids: Vec<I>,
    /// The part of the question that fits.
    pub said: String,
    /// Number of exchanges before the question that are part of the text; they are the last ones.
    pub kept: usize,
}

impl<I: TokenId> ModelText<I> {
    /// A question after the exchanges `before` it, within the maximum length of prompts. The oldest
    /// exchanges are left out until the text fits; a question that is too long by itself is
    /// shortened by [`ChatTemplate::fit`](crate::ChatTemplate::fit).
    ///
    /// # Errors
    /// A template that fails, or that alone is longer than a prompt may be; text that the tokenizer
    /// refuses.
    pub fn fit_turn(&self, before: &[Exchange], question: &str) -> Result<FittedTurn<I>> {
        for start in 0..before.len() {
            let kept = before.get(start..).unwrap_or_default();
            let (text, ids) = self.turn(kept, question)?;
            if ids.len() <= self.template.max_prompt_tokens() {
                return Ok(FittedTurn {
                    text,
                    ids,
                    said: question.to_owned(),
                    kept: kept.len(),
                });
            }
        }
        let count = |rendered: &Rendered| self.count(rendered);
        let fitted = self.template.fit(question, count)?;
        Ok(FittedTurn {
            ids: self.encode(&fitted.rendered)?,
            text: fitted.rendered.text,
            said: fitted.said,
            kept: 0,
        })
    }

    /// A question after all exchanges `before` it: text and tokens. Without a chat template, the
    /// exchanges stand above the question, with empty lines between them.
    ///
    /// # Errors
    /// A template that fails, for example because it does not know the role `assistant`; text that
    /// the tokenizer refuses.
    pub fn turn(&self, before: &[Exchange], question: &str) -> Result<(String, Vec<I>)> {
        if before.is_empty() {
            let rendered = self.template.render(question)?;
            let ids = self.encode(&rendered)?;
            return Ok((rendered.text, ids));
        }
        let said = before.iter().flat_map(|exchange| {
            let asked = Message::new("user", &exchange.asked);
            [asked, Message::new("assistant", &exchange.answered)]
        });
        let messages: Vec<Message<'_>> = said.chain([Message::new("user", question)]).collect();
        let request = TemplateRequest::default();
        if let Some(talk) = self.template.converse(&messages, &request)? {
            let ids = self.encode_conversation(&talk)?;
            return Ok((talk.text, ids));
        }
        let said: Vec<&str> = messages.iter().map(|message| message.content).collect();
        let rendered = Rendered::around("", &said.join("\n\n"), "");
        let ids = self.encode(&rendered)?;
        Ok((rendered.text, ids))
    }
}

/// The conversation that a stream of prompts is in. Its answers are the target's own greedy ones,
/// so that they are the same for every arm, whichever arm answered before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Talk {
    said: Vec<Exchange>,
}

impl Talk {
    /// The exchanges before a question, whose `earlier` questions are given, oldest first. Answers
    /// that are not known from the call before are decoded greedily by `engine`, which is the
    /// target's, up to `longest` tokens; with `ignore_end` they continue after their end.
    ///
    /// # Errors
    /// Errors of the engine and of [`ModelText::fit_turn`].
    pub fn before(
        &mut self,
        earlier: &[String],
        target: &ModelText<TargetId>,
        engine: &mut Engine,
        (longest, ignore_end): (usize, bool),
    ) -> Result<&[Exchange]> {
        let known = self.said.iter().zip(earlier);
        let known = known.take_while(|(said, asked)| said.asked == **asked);
        self.said.truncate(known.count());
        for question in earlier.get(self.said.len()..).unwrap_or_default() {
            let turn = target.fit_turn(&self.said, question)?;
            let config = PlainConfig {
                sampling: Sampling::GREEDY,
                max_new_tokens: longest,
                stop: target.stop_tokens_unless(ignore_end),
            };
            // Greedy decoding draws nothing, so that any stream serves.
            let name = StreamName::new(0, 0);
            let done = decode_plain(engine, &turn.ids, &config, name, &mut NoSink)?;
            self.said.push(Exchange {
                asked: question.clone(),
                answered: target.vocabulary.decode_lossy(&done.tokens),
            });
        }
        Ok(&self.said)
    }
}
