//! Several answers at a time, whose tokens are decoded in one forward of the target.

use std::collections::VecDeque;

use ::trace::{Answering, Record, TraceInfo};
use anyhow::{Context, Result};
use lm::{EngineSettings, LanguageModel};
use models::{Engine, TargetFolder};
use vocab_align::{TargetId, TokenId};

/// A prompt that waits for its answer.
pub(super) struct Asked {
    pub(super) id: String,
    pub(super) prompt: String,
    pub(super) prompt_ids: Vec<u32>,
}

struct Open<'a> {
    asked: Asked,
    answering: Answering<'a>,
    /// `None` once the answer is complete.
    engine: Option<Engine>,
}

/// Prompts answered side by side: every step reads the target's weights once for a token of each.
/// An answer has the same bits as alone, and answers are returned in the order of their prompts.
pub(super) struct Several<'a> {
    info: &'a TraceInfo,
    free: Vec<Engine>,
    open: VecDeque<Open<'a>>,
    logits: Vec<f32>,
}

impl<'a> Several<'a> {
    /// Capacity for `count` answers at a time.
    pub(super) fn new(
        target: &TargetFolder,
        settings: EngineSettings,
        count: usize,
        info: &'a TraceInfo,
    ) -> Result<Self> {
        let free = (0..count).map(|_| target.engine(settings));
        Ok(Self {
            info,
            free: free.collect::<Result<_, _>>()?,
            open: VecDeque::new(),
            logits: Vec::new(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// True if another prompt can be added now.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Reads a prompt, if there is [room](Self::has_room).
    pub(super) fn ask(&mut self, asked: Asked) -> Result<()> {
        let (&last, rest) = asked
            .prompt_ids
            .split_last()
            .with_context(|| format!("prompt `{}` has no tokens", asked.id))?;
        let mut engine = self.free.pop().context("no engine is free")?;
        engine.truncate(0);
        engine
            .prefill(rest)
            .with_context(|| format!("prompt `{}`", asked.id))?;
        self.open.push_back(Open {
            answering: Answering::new(last, self.info),
            asked,
            engine: Some(engine),
        });
        Ok(())
    }

    /// Decodes one token of every unfinished answer. Returns the complete answers, up to the first
    /// incomplete one.
    pub(super) fn step(&mut self) -> Result<Vec<Record>> {
        for open in &mut self.open {
            let wants = open.answering.pending().is_some();
            let full = |engine: &mut Engine| engine.len() >= engine.max_len();
            if let Some(engine) = open.engine.take_if(|engine| !wants || full(engine)) {
                self.free.push(engine);
            }
        }
        self.forward()?;
        let mut complete = Vec::new();
        while let Some(open) = self.open.pop_front() {
            if open.engine.is_some() {
                self.open.push_front(open);
                break;
            }
            let Asked {
                id,
                prompt,
                prompt_ids,
            } = open.asked;
            complete.push(open.answering.finish(id, prompt, prompt_ids));
        }
        Ok(complete)
    }

    fn forward(&mut self) -> Result<()> {
        let mut ids = Vec::new();
        let (mut engines, mut answers) = (Vec::new(), Vec::new());
        for open in &mut self.open {
            if let (Some(engine), Some(id)) = (&mut open.engine, open.answering.pending()) {
                ids.push([TargetId::new(id)]);
                engines.push(engine);
                answers.push(&mut open.answering);
            }
        }
        let inputs = engines.into_iter().zip(&ids);
        let mut inputs: Vec<(&mut Engine, &[TargetId])> =
            inputs.map(|(engine, ids)| (engine, &ids[..])).collect();
        Engine::forward_together(&mut inputs, &mut self.logits)?;
        for (answer, row) in answers
            .into_iter()
            .zip(self.logits.chunks(self.info.vocab_size))
        {
            answer.take(row);
        }
        Ok(())
    }
}
