//! One round of Algorithm 1.

use std::time::Instant;

use ngram_cache::NgramCache;
use vocab_align::{DraftId, TargetId};

use super::commit::Commitment;
use super::{CachedGroups, Finish, Running, Session, slem};
use crate::buffer::Row;
use crate::draft::{Draft, DraftRules, Masking, draft};
use crate::error::{LawError, Role, SpecError};
use crate::fault::Fault;
use crate::lexicon::Lexicon;
use crate::model::Rows;
use crate::translate::{Proposal, translate};
use crate::verify::{Evidence, Groups, Verdict, VerifyMode, unjudged_scores, verify};
use crate::{DraftPolicy, LanguageModel, RoundOutcome, TeacherSink, Timings};

impl<D: LanguageModel<DraftId>, T: LanguageModel<TargetId>> Session<D, T> {
    /// Drafts, translates, verifies and commits once: one target forward, at least one token.
    ///
    /// `cache` is read in the modes that merge n-grams and written where the session learns them;
    /// `None` is an empty cache that stays empty. It must be the same cache in all rounds of a
    /// response.
    ///
    /// # Errors
    /// [`SpecError::NotRunning`] before [`start`](Self::start), after the end of the response and
    /// after an error; a failing model; impossible probabilities.
    pub fn round(
        &mut self,
        mut cache: Option<&mut NgramCache>,
        policy: &mut dyn DraftPolicy,
        sink: &mut dyn TeacherSink,
    ) -> Result<RoundOutcome, SpecError> {
        // Taken out for the time of the round, so that an error leaves no half-committed response.
        let mut running = self
            .running
            .take_if(|running| running.finish.is_none())
            .ok_or(SpecError::NotRunning)?;
        let round = running.round;
        let outcome = self
            .try_round(&mut running, cache.take(), policy, sink)
            .map_err(|fault| fault.at(round))?;
        policy.observe(&outcome);
        self.running = Some(running);
        Ok(outcome)
    }

    fn try_round(
        &mut self,
        running: &mut Running,
        cache: Option<&mut NgramCache>,
        policy: &mut dyn DraftPolicy,
        sink: &mut dyn TeacherSink,
    ) -> Result<RoundOutcome, Fault> {
        let mut timings = Timings::default();
        let mut clock = Clock(Instant::now());
        let view = cache.as_deref().filter(|_| self.config.mode.uses_cache());
        let lexicon = Lexicon::new(&self.direct, view);

        let room = self.target.max_len().saturating_sub(self.target.len());
        let pending = &self.context.ids()[running.fed.len()..];
        let drafted = propose(
            &mut self.drafter,
            pending,
            DraftRules {
                masking: match self.config.mode {
                    VerifyMode::Slem => Masking::Fixed(&self.spellable),
                    _ => Masking::Translatable(lexicon),
                },
                direct: &self.direct,
                sampling: self.config.sampling,
                stop: &self.config.stop,
                room: room.saturating_sub(1),
                seen: self
                    .config
                    .sampling
                    .penalises()
                    .then(|| self.context.ids().iter().copied().collect()),
            },
            policy,
            running,
        )?;
        timings.draft = clock.lap();

        let mut proposals = match self.config.mode {
            VerifyMode::Slem => slem::retokenise(&drafted.ids, &self.pair, &self.direct)?,
            _ => translate(&drafted.ids, &lexicon),
        };
        proposals.truncate(room.saturating_sub(1));
        timings.translate = clock.lap();

        let logits = score(&mut self.target, running.pending, &proposals)?;
        timings.target = clock.lap();

        let law = |source| Fault::Law(Role::Target, source);
        let (vocab, positions) = (self.target.vocab_size(), proposals.len() + 1);
        let rows = Rows::new(&logits, vocab, positions)
            .ok_or_else(|| law(row_shape(&logits, positions, vocab)))?;
        let penalised = self.penalised(running, &proposals, rows);
        let judged = penalised
            .as_deref()
            .and_then(|logits| Rows::new(logits, vocab, positions))
            .unwrap_or(rows);
        let needs_groups =
            self.config.mode == VerifyMode::Exact && !self.config.sampling.is_greedy();
        let evidence = Evidence {
            draft: &drafted,
            proposals: &proposals,
            rows: judged,
            lexicon,
            groups: self.groups.of(&lexicon, vocab, needs_groups),
            sampling: self.config.sampling,
        };
        let mode = self.config.mode;
        let Verdict {
            accepted,
            last,
            origin,
            mut scores,
        } = verify(mode, &evidence, &mut *running.verify_dice).map_err(law)?;
        if self.config.score_unjudged {
            scores.extend(unjudged_scores(mode, &evidence, scores.len()).map_err(law)?);
        }
        timings.verify = clock.lap();

        let (emitted, inserted) = self.commit(
            running,
            Commitment {
                proposals: &proposals,
                accepted,
                last,
                rows,
            },
            cache,
            sink,
        )?;
        let emitted_bytes = self.pair.target.decode_bytes(&emitted).len();
        timings.commit = clock.lap();
        let round = running.round;
        running.round += 1;
        Ok(RoundOutcome {
            round,
            draft: drafted.ids,
            proposals,
            accepted,
            emitted,
            origin,
            scores,
            emitted_bytes,
            inserted,
            timings,
        })
    }

    /// The rows with the repetition penalty of their own prefixes; `None` where there is none.
    fn penalised(
        &self,
        running: &Running,
        proposals: &[Proposal],
        rows: Rows<'_>,
    ) -> Option<Vec<f32>> {
        let mut seen = running.seen.clone()?;
        let mut penalised = Vec::with_capacity(rows.positions() * rows.vocab());
        for position in 0..rows.positions() {
            let start = penalised.len();
            penalised.extend_from_slice(rows.row(position));
            self.config
                .sampling
                .penalise(&mut penalised[start..], &seen);
            seen.extend(proposals.get(position).map(|proposal| proposal.target));
        }
        Some(penalised)
    }
}

/// Drafts as far as the drafter's cache has room; notes what it was fed.
fn propose<D: LanguageModel<DraftId>>(
    drafter: &mut D,
    pending: &[DraftId],
    mut rules: DraftRules<'_>,
    policy: &mut dyn DraftPolicy,
    running: &mut Running,
) -> Result<Draft, Fault> {
    let context = running.fed.len() + pending.len();
    // The last drafted token is never fed, so a context that just fits still drafts one.
    rules.room = rules
        .room
        .min((drafter.max_len() + 1).saturating_sub(context));
    let (drafted, fed) = draft(drafter, pending, &rules, policy, &mut *running.draft_dice)?;
    let read = pending.iter().chain(&drafted.ids).take(fed);
    running.fed.extend(read);
    Ok(drafted)
}

/// The one target forward: the pending token and all proposals.
fn score<T: LanguageModel<TargetId>>(
    target: &mut T,
    pending: TargetId,
    proposals: &[Proposal],
) -> Result<Row<f32>, Fault> {
    let input: Vec<TargetId> = std::iter::once(pending)
        .chain(proposals.iter().map(|proposal| proposal.target))
        .collect();
    let mut logits = Row::of(input.len() * target.vocab_size());
    target
        .forward(&input, &mut logits)
        .map_err(|source| Fault::Model(Role::Target, source))?;
    Ok(logits)
}

fn row_shape(logits: &[f32], positions: usize, vocab: usize) -> LawError {
    LawError::RowShape {
        found: logits.len(),
        positions,
        vocab,
    }
}

impl CachedGroups {
    /// The groups of a lexicon, rebuilt only where the cache has changed behind their back.
    fn of(&mut self, lexicon: &Lexicon<'_>, vocab: usize, needed: bool) -> &Groups {
        let generation = lexicon.cache().map_or((0, 0), |cache| {
            (std::ptr::from_ref(cache).addr(), cache.generation())
        });
        if needed && self.generation != Some(generation) {
            self.groups = Groups::new(lexicon, vocab);
            self.generation = Some(generation);
        }
        &self.groups
    }

    /// Takes in an n-gram that the cache, of generation `before` until then, has just learnt.
    pub(super) fn learn(
        &mut self,
        cache: &NgramCache,
        before: u64,
        spelling: &[DraftId],
        token: TargetId,
    ) {
        let place = std::ptr::from_ref(cache).addr();
        if self.generation == Some((place, before)) {
            self.groups.insert(cache, spelling, token);
            self.generation = Some((place, cache.generation()));
        }
    }
}

/// Measures adjacent stretches of time.
struct Clock(Instant);

impl Clock {
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let seconds = now.duration_since(self.0).as_secs_f64();
        self.0 = now;
        seconds
    }
}

/// How the response ends with these tokens, if it does.
pub(super) fn finish_of(
    running: &Running,
    stop: &std::collections::BTreeSet<TargetId>,
    max_new_tokens: usize,
    room: usize,
) -> Option<Finish> {
    let last = running.response.last()?;
    if stop.contains(last) {
        Some(Finish::Stop(*last))
    } else if running.response.len() >= max_new_tokens {
        Some(Finish::MaxNewTokens)
    } else {
        (room == 0).then_some(Finish::ContextFull)
    }
}
