//! One round of Algorithm 1.

use std::time::Instant;

use ngram_cache::NgramCache;
use vocab_align::{DraftContext, DraftId, TargetId};

use super::commit::Commitment;
use super::running::Running;
use super::{CachedGroups, Session, slem};
use crate::buffer::Row;
use crate::draft::{Draft, DraftRules, Masking, draft};
use crate::error::{LawError, Role, SpecError};
use crate::fault::Fault;
use crate::lexicon::Lexicon;
use crate::model::Rows;
use crate::translate::{Proposal, looked_up, translate};
use crate::verify::{Evidence, Groups, Verdict, VerifyMode, needs_groups, unjudged_scores, verify};
use crate::{
    CopyPlan, DraftPolicy, LONGEST_COPY, LanguageModel, RoundOutcome, TeacherSink, Timings,
};

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
        let mut running = match self.running.take() {
            Some(running) if running.finish.is_none() => running,
            ended => {
                self.running = ended;
                return Err(SpecError::NotRunning);
            }
        };
        let round = running.round;
        let outcome = self
            .try_round(&mut running, cache.take(), policy, sink)
            .map_err(|fault| fault.at(round))?;
        policy.observe(&outcome);
        self.running = Some(running);
        Ok(outcome)
    }

    /// Algorithm 1, the body of its loop.
    fn try_round(
        &mut self,
        running: &mut Running,
        cache: Option<&mut NgramCache>,
        policy: &mut dyn DraftPolicy,
        sink: &mut dyn TeacherSink,
    ) -> Result<RoundOutcome, Fault> {
        let mut clock = Clock(Instant::now());
        let mut timings = Timings::default();
        let room = self.target.max_len().saturating_sub(self.target.len());
        let room = room.saturating_sub(1);

        // Draft k tokens, or copy some and draft behind them.
        let (copied, drafted) = self.draft(running, cache.as_deref(), room, policy)?;
        timings.draft = clock.lap();

        // Translate them to m target tokens.
        let mut proposals = looked_up(&copied);
        proposals.extend(self.translate(&drafted, cache.as_deref())?);
        proposals.truncate(room);
        timings.translate = clock.lap();

        // Score all of them in one forward of the target.
        let logits = score(&mut self.target, running.pending, &proposals)?;
        let rows = rows_of(&logits, proposals.len() + 1, self.target.vocab_size())?;
        timings.target = clock.lap();

        // Accept some and draw the token behind them.
        let verdict = self.judge(running, cache.as_deref(), &drafted, &proposals, rows)?;
        timings.verify = clock.lap();

        // Translate what was accepted back and remember its n-grams.
        let result = Commitment {
            proposals: &proposals,
            accepted: verdict.accepted,
            last: verdict.last,
            rows,
        };
        let (emitted, inserted) = self.commit(running, result, cache, sink)?;
        let emitted_bytes = self.pair.target.decode_bytes(&emitted).len();
        timings.commit = clock.lap();

        let round = running.round;
        running.round += 1;
        Ok(RoundOutcome {
            round,
            draft: drafted.ids,
            proposals,
            accepted: verdict.accepted,
            emitted,
            origin: verdict.origin,
            scores: verdict.scores,
            emitted_bytes,
            inserted,
            timings,
        })
    }

    /// What is looked up, and what the drafter drafts behind it.
    fn draft(
        &mut self,
        running: &mut Running,
        cache: Option<&NgramCache>,
        room: usize,
        policy: &mut dyn DraftPolicy,
    ) -> Result<(Vec<TargetId>, Draft), Fault> {
        let (copied, drafts) = self.copy(room, policy);
        let wanted = if drafts { policy.next_len() } else { 0 };
        if wanted == 0 {
            return Ok((copied, Draft::default()));
        }
        let ahead = self.context_behind(&copied)?;
        let ids = ahead.as_ref().unwrap_or(&self.context).ids();
        let pending = running.reading.pending(&mut self.drafter, ids, wanted)?;
        let sampling = self.config.sampling;
        let rules = DraftRules {
            masking: match self.config.mode {
                VerifyMode::Slem => Masking::Fixed(&self.spellable),
                mode => Masking::Translatable(lexicon_of(&self.direct, mode, cache)),
            },
            direct: &self.direct,
            sampling,
            stop: &self.config.stop,
            room: (room - copied.len()).min(pending.room),
            seen: sampling.penalises().then(|| ids.iter().copied().collect()),
        };
        let dice = &mut *running.draft_dice;
        let (drafted, fed) = draft(
            &mut self.drafter,
            &pending.tokens,
            &rules,
            wanted,
            policy,
            dice,
        )?;
        let read = pending.tokens.iter().chain(&drafted.ids).take(fed);
        running.reading.fed(read.copied());
        Ok((copied, drafted))
    }

    /// The looked-up tokens to propose, and whether the drafter drafts (behind them).
    fn copy(&self, room: usize, policy: &mut dyn DraftPolicy) -> (Vec<TargetId>, bool) {
        let history = self.history.as_ref();
        let Some(mut found) = history.and_then(|history| history.find(room.min(LONGEST_COPY)))
        else {
            return (Vec::new(), true);
        };
        // Nothing sensible follows the end of a turn.
        let stop = &self.config.stop;
        if let Some(end) = found.tokens.iter().position(|token| stop.contains(token)) {
            found.tokens.truncate(end + 1);
        }
        let CopyPlan { copy, draft } = policy.plan_copy(&found);
        found.tokens.truncate(copy);
        let ends = found.tokens.last().is_some_and(|last| stop.contains(last));
        (found.tokens, draft && !ends)
    }

    /// The draft context with looked-up tokens behind it; `None` for none.
    fn context_behind(&self, copied: &[TargetId]) -> Result<Option<DraftContext>, Fault> {
        if copied.is_empty() {
            return Ok(None);
        }
        let mut ahead = self.context.clone();
        ahead.push(copied)?;
        Ok(Some(ahead))
    }

    /// A draft in target tokens.
    fn translate(
        &self,
        drafted: &Draft,
        cache: Option<&NgramCache>,
    ) -> Result<Vec<Proposal>, Fault> {
        match self.config.mode {
            VerifyMode::Slem => Ok(slem::retokenise(&drafted.ids, &self.pair, &self.direct)?),
            mode => {
                let lexicon = lexicon_of(&self.direct, mode, cache);
                Ok(translate(&drafted.ids, &lexicon))
            }
        }
    }

    /// Puts the proposals to the target's law.
    fn judge(
        &mut self,
        running: &mut Running,
        cache: Option<&NgramCache>,
        drafted: &Draft,
        proposals: &[Proposal],
        rows: Rows<'_>,
    ) -> Result<Verdict, Fault> {
        let (mode, acceptance) = (self.config.mode, self.config.acceptance);
        let sampling = self.config.sampling;
        let lexicon = lexicon_of(&self.direct, mode, cache);
        let penalised = self.penalised(running, proposals, rows);
        let judged = penalised
            .as_deref()
            .and_then(|logits| Rows::new(logits, rows.vocab(), rows.positions()));
        let needed = needs_groups(mode, acceptance, sampling);
        let evidence = Evidence {
            draft: drafted,
            proposals,
            rows: judged.unwrap_or(rows),
            lexicon,
            groups: self.groups.of(&lexicon, rows.vocab(), needed),
            sampling,
        };
        let law = |source| Fault::Law(Role::Target, source);
        let dice = &mut *running.verify_dice;
        let mut verdict = verify(mode, acceptance, &evidence, dice).map_err(law)?;
        if self.config.score_unjudged {
            let judged = verdict.scores.len();
            let rest = unjudged_scores(mode, &evidence, judged).map_err(law)?;
            verdict.scores.extend(rest);
        }
        Ok(verdict)
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

/// What a draft can be translated to in a mode.
fn lexicon_of<'a>(
    direct: &'a crate::DirectMap,
    mode: VerifyMode,
    cache: Option<&'a NgramCache>,
) -> Lexicon<'a> {
    Lexicon::new(direct, cache.filter(|_| mode.uses_cache()))
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

fn rows_of(logits: &[f32], positions: usize, vocab: usize) -> Result<Rows<'_>, Fault> {
    let shape = LawError::RowShape {
        found: logits.len(),
        positions,
        vocab,
    };
    Rows::new(logits, vocab, positions).ok_or(Fault::Law(Role::Target, shape))
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
