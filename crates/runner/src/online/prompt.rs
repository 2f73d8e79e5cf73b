//! One prompt, answered by every arm in turn.

use std::time::Instant;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use spec_decode::{
    Generation, NoSink, PlainConfig, PlainGeneration, Prompt as PromptIds, SessionConfig,
    StreamName, VerifyMode, decode_plain,
};
use vocab_align::{DraftId, TargetId};

use super::adaptive::HeadUpdate;
use super::method::{Method, Task};
use super::record::Recording;
use super::student::Update;
use super::target::Target;
use crate::arm::Arm;
use crate::config::{OnStream, RunConfig};
use crate::models::ModelFolder;
use crate::results::Phase;
use crate::streams::Prompt;

/// An arm as it answers.
pub(super) enum Player {
    /// The target alone.
    Plain,
    /// With its own drafter and cache.
    Method(Box<Method>),
    /// With those of the arm at this index.
    Borrower(usize),
}

/// A prompt ready for both models.
pub(super) struct Ready {
    pub(super) record: Prompt,
    pub(super) draft: Vec<DraftId>,
    pub(super) target: Vec<TargetId>,
}

impl Ready {
    /// Fits the prompt to the target's budget and spells it for both models; they read the same
    /// text.
    pub(super) fn new(
        prompt: Prompt,
        drafter: &ModelFolder<DraftId>,
        target: &ModelFolder<TargetId>,
    ) -> Result<Self> {
        let fitted = target.template.fit(&prompt.prompt, |rendered| {
            target.encode(rendered).map(|ids| ids.len())
        })?;
        Ok(Self {
            record: prompt,
            draft: drafter.encode(&drafter.template.render(&fitted.rendered.body)?)?,
            target: target.encode(&fitted.rendered)?,
        })
    }
}

/// Where a prompt stands in the run.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) position: usize,
    pub(super) segment: usize,
    pub(super) seed: u64,
    /// The segment's, if it has one.
    pub(super) gamma: Option<f64>,
}

/// What one arm made of a prompt.
struct Answer {
    arm: usize,
    generation: Generation,
    update: Option<Update>,
    head: Option<HeadUpdate>,
    learn_seconds: f64,
}

/// Everything that answers a prompt.
pub(super) struct Table<'a> {
    pub(super) config: &'a RunConfig,
    pub(super) arms: &'a [Arm],
    pub(super) players: &'a mut [Player],
    pub(super) target: &'a mut Target,
}

impl Table<'_> {
    /// Every arm's answer, on record.
    pub(super) fn answer(
        &mut self,
        ready: &Ready,
        place: Place,
        recording: &mut Recording<'_>,
        bar: &ProgressBar,
    ) -> Result<()> {
        let phase = recording.phase;
        let (plain, mut answers) = self.turns(ready, place, phase)?;
        answers.sort_by_key(|answer| answer.arm);
        if let Some(plain) = &plain {
            recording.plain(ready, place.position, plain)?;
        }
        for answer in &answers {
            let arm = &self.arms[answer.arm];
            let cache = match self.method(answer.arm) {
                Some(method) if arm.cache => method.cache(&self.target.pair),
                _ => None,
            };
            recording.answer(
                &arm.name,
                ready,
                place.position,
                &answer.generation,
                plain.as_ref(),
                cache,
                answer.learn_seconds,
            )?;
            if let Some(update) = &answer.update {
                recording.update(&arm.name, update)?;
            }
            if let Some(step) = &answer.head {
                recording.head(&arm.name, step)?;
            }
        }
        if let Some(Answer { generation, .. }) = answers.last() {
            let speed =
                generation.tokens.len() as f64 / generation.totals.timings.total().max(1e-9);
            bar.set_message(format!(
                "{speed:.0} tokens/s, acceptance {:.2}",
                generation.totals.acceptance_rate()
            ));
        }
        Ok(())
    }

    /// The arms one after the other; who goes first changes from prompt to prompt.
    fn turns(
        &mut self,
        ready: &Ready,
        place: Place,
        phase: Phase,
    ) -> Result<(Option<PlainGeneration>, Vec<Answer>)> {
        let stop = self.target.folder.stop_tokens();
        let max_new_tokens = self.config.decode.max_new_tokens;
        let session = SessionConfig {
            sampling: self.config.decode.sampling()?,
            stop: stop.clone(),
            ..SessionConfig::new(VerifyMode::Paper, max_new_tokens)
        };
        let plain_config = PlainConfig {
            sampling: session.sampling,
            max_new_tokens,
            stop,
        };
        // Segment and phase are part of the name: no two prompts of a run share a random stream.
        let held_out = u64::from(phase == Phase::Test);
        let name = StreamName::new(
            place.seed,
            ((place.segment as u64) << 33) + (held_out << 32) + place.position as u64,
        );
        let task = Task {
            pair: &self.target.pair,
            session: &session,
            prompt: PromptIds {
                draft: &ready.draft,
                target: &ready.target,
            },
            name,
            phase,
            gamma: place.gamma,
        };
        let engine = match &mut self.target.padded {
            Some(padded) if self.config.pads(phase) => &mut padded.engine,
            _ => &mut self.target.engine,
        };
        let everyone = phase == Phase::Test || self.config.on_stream == OnStream::All;
        let (mut plain, mut answers) = (None, Vec::new());
        for turn in 0..self.arms.len() {
            let i = (turn + place.position) % self.arms.len();
            let arm = &self.arms[i];
            let owner = match &self.players[i] {
                Player::Borrower(_) if phase == Phase::Train => continue,
                Player::Borrower(lender) => *lender,
                _ => i,
            };
            if !everyone && !arm.changes() {
                continue;
            }
            let Player::Method(method) = &mut self.players[owner] else {
                plain = Some(decode_plain(
                    engine,
                    &ready.target,
                    &plain_config,
                    name,
                    &mut NoSink,
                )?);
                continue;
            };
            let (generation, lesson) = method
                .answer(arm, engine, &task)
                .with_context(|| format!("arm `{}`", arm.name))?;
            let began = Instant::now();
            let update = match lesson {
                Some(lesson) => method.learn(lesson)?,
                None => None,
            };
            let head = match phase {
                Phase::Train => method.train_head(update.is_some(), false)?,
                Phase::Test => None,
            };
            answers.push(Answer {
                arm: i,
                generation,
                update,
                head,
                learn_seconds: began.elapsed().as_secs_f64(),
            });
        }
        Ok((plain, answers))
    }

    /// The state an arm answers with.
    fn method(&self, arm: usize) -> Option<&Method> {
        match self.players.get(arm)? {
            Player::Plain => None,
            Player::Method(method) => Some(method),
            Player::Borrower(lender) => self.method(*lender),
        }
    }
}
