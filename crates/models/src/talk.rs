//! Conversations whose questions are known beforehand, as those of MT-Bench: each prompt is a question with what was
//! said before it.

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
    /// It in tokens.
    pub ids: Vec<I>,
    /// The question as far as it fitted.
    pub said: String,
    /// Exchanges before it that fitted: so many of the last ones.
    pub kept: usize,
}

impl<I: TokenId> ModelText<I> {
    /// A question after what was said `before`, within the budget of prompts: the oldest exchanges are left out until
    /// it fits, and of a question that does not fit alone what [`ChatTemplate::fit`](crate::ChatTemplate::fit) keeps.
    ///
    /// # Errors
    /// A template that fails, or takes the budget itself; text the tokenizer refuses.
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
        let fitted = self.template.fit(question, |rendered| {
            self.encode(rendered).map(|ids| ids.len())
        })?;
        Ok(FittedTurn {
            text: fitted.rendered.text(),
            ids: self.encode(&fitted.rendered)?,
            said: fitted.said().to_owned(),
            kept: 0,
        })
    }

    /// A question after all that was said `before`: text and tokens. Without a chat template, what was said stands above
    /// the question, with empty lines between.
    ///
    /// # Errors
    /// A template that fails, as those do that know no answers; text the tokenizer refuses.
    pub fn turn(&self, before: &[Exchange], question: &str) -> Result<(String, Vec<I>)> {
        if before.is_empty() {
            let rendered = self.template.render(question)?;
            return Ok((rendered.text(), self.encode(&rendered)?));
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
        let rendered = Rendered {
            prefix: String::new(),
            body: said.join("\n\n"),
            suffix: String::new(),
        };
        Ok((rendered.text(), self.encode(&rendered)?))
    }
}

/// The conversation that a stream of prompts is in. The answers in it are what the target alone says, taking the most
/// probable token each time: they are the same whoever answers the last question, and need no memory of who did before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Talk {
    said: Vec<Exchange>,
}

impl Talk {
    /// The exchanges before a question, to which the `earlier` ones belong, oldest first: `engine`, the target's, is
    /// asked for its greedy answer, of up to `longest` tokens, where it is not known from the question before. With
    /// `ignore_end` answers go on past their end.
    ///
    /// # Errors
    /// Those of the engine and of [`ModelText::fit_turn`].
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
            // Nothing is drawn where the most probable token is taken.
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
