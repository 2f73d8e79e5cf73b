//! The first part of a round: lookup, draft, translation.

use ngram_cache::NgramCache;
use vocab_align::{AlignError, DraftContext, DraftId, TargetId, raw_ids};

use super::reading::FEW;
use super::round::{Clock, DraftedRound, check_cache, lexicon_of};
use super::running::Running;
use super::{Session, slem};
use crate::buffer::Row;
use crate::draft::{Draft, DraftRules, Drafting};
use crate::error::{Role, SpecError};
use crate::model::Rows;
use crate::policy::LONGEST_COPY;
use crate::translate::{Proposal, looked_up, translate};
use crate::verify::VerifyMode;
use crate::{CopyPlan, DraftPolicy, LanguageModel, Timings};

/// A round whose draft is in progress ([`Session::begin_round`]).
pub struct DraftingRound {
    pub(super) running: Running,
    copied: Vec<TargetId>,
    pub(super) drafting: Drafting,
    clock: Clock,
}

impl DraftingRound {
    /// Tokens that the drafter reads next; empty if the draft is finished.
    pub fn input(&self) -> &[DraftId] {
        self.drafting.input()
    }
}

impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    /// The first part of a [`round`](Self::round): drafts and translates. With several sessions
    /// whose engines share a target, the caller can score the [inputs](DraftedRound::input) of all
    /// of them in one forward of these engines ([`target_mut`](Self::target_mut)), then
    /// [verify](Self::judge_round) all, then [commit](Self::commit_round) all. Sessions may share a
    /// cache, which must not change between a round's draft and its verification;
    /// [`SpecError::CacheChanged`] says that it did.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn draft_round(
        &mut self,
        cache: Option<&NgramCache>,
        policy: &mut dyn DraftPolicy,
    ) -> Result<DraftedRound, SpecError> {
        let mut round = self.begin_round(cache, policy)?;
        let failed = SpecError::model(Role::Drafter, round.running.round);
        let mut logits = Row::of(self.drafter.vocab_size());
        while !round.input().is_empty() {
            if self.draft_on_device(&mut round, cache, policy, &mut logits)? {
                continue;
            }
            let input = raw_ids(round.input());
            // Of a context's last tokens, only the last one's row is drawn from.
            let read = self.drafter.prompt(&input, &mut logits);
            read.map_err(failed)?;
            let row = Rows::checked(&logits, self.drafter.vocab_size(), 1);
            let row = row.map_err(SpecError::law(Role::Drafter, round.running.round))?;
            self.draft_row(&mut round, cache, row.last(), policy)?;
        }
        self.end_draft(round, cache)
    }

    /// The beginning of [`draft_round`](Self::draft_round), for callers with several sessions whose
    /// drafters share a model. While there is an [input](DraftingRound::input), the drafter
    /// ([`drafting_model`](Self::drafting_model)) must read it, and its logits are passed to
    /// [`draft_token`](Self::draft_token); then [`end_draft`](Self::end_draft) is called.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn begin_round(
        &mut self,
        cache: Option<&NgramCache>,
        policy: &mut dyn DraftPolicy,
    ) -> Result<DraftingRound, SpecError> {
        // Taken out during the round, so that an error leaves no half-committed response.
        let mut running = match self.running.take() {
            Some(running) if running.finish.is_none() => running,
            ended => {
                self.running = ended;
                return Err(SpecError::NotRunning);
            }
        };
        running.serial = self.serial;
        running.cache = cache.map(NgramCache::generation);
        let clock = Clock::new();
        let (copied, drafting) = self.begin_draft(&mut running, cache, policy)?;
        Ok(DraftingRound {
            running,
            copied,
            drafting,
            clock,
        })
    }

    /// Draws the next token of a draft from the drafter's logits of the round's
    /// [input](DraftingRound::input), `[tokens, vocab_size]`. `cache` and `policy` must be those
    /// with which the round began.
    ///
    /// # Errors
    /// Logits of another shape; impossible probabilities; another cache; a round that is not this
    /// session's.
    pub fn draft_token(
        &mut self,
        round: &mut DraftingRound,
        cache: Option<&NgramCache>,
        logits: &[f32],
        policy: &mut dyn DraftPolicy,
    ) -> Result<(), SpecError> {
        let rows = Rows::checked(logits, self.drafter.vocab_size(), round.input().len());
        let rows = rows.map_err(SpecError::law(Role::Drafter, round.running.round))?;
        self.draft_row(round, cache, rows.last(), policy)
    }

    /// As [`draft_token`](Self::draft_token), given the last row alone.
    pub(super) fn draft_row(
        &mut self,
        round: &mut DraftingRound,
        cache: Option<&NgramCache>,
        row: &[f32],
        policy: &mut dyn DraftPolicy,
    ) -> Result<(), SpecError> {
        self.check_round(&round.running)?;
        check_cache(self.config.mode, cache, &round.running)?;
        let state = self.drafter.state();
        let rules = self.rules(cache);
        let said = (row, state, self.drafter.abstains());
        let dice = &mut *round.running.draft_dice;
        let taken = round.drafting.take(said, &rules, policy, dice);
        taken.map_err(SpecError::law(Role::Drafter, round.running.round))
    }

    /// Ends drafting and translates the draft. `cache` must be the one with which the round began.
    ///
    /// # Errors
    /// Drafts that cannot be translated; another cache; a round that is not this session's.
    pub fn end_draft(
        &mut self,
        round: DraftingRound,
        cache: Option<&NgramCache>,
    ) -> Result<DraftedRound, SpecError> {
        self.check_round(&round.running)?;
        check_cache(self.config.mode, cache, &round.running)?;
        let DraftingRound {
            mut running,
            copied,
            drafting,
            mut clock,
        } = round;
        let (drafted, fed, seconds) = drafting.end();
        running.reading.fed(fed.into_iter());
        let mut timings = Timings {
            draft: clock.lap(),
            ..Timings::default()
        };

        let mut proposals = looked_up(&copied);
        let translated = self.translate(&drafted, cache);
        proposals.extend(translated.map_err(SpecError::align(running.round))?);
        proposals.truncate(self.room());
        timings.translate = clock.lap();
        let proposed = proposals.iter().map(|proposal| proposal.target);
        Ok(DraftedRound {
            input: std::iter::once(running.pending).chain(proposed).collect(),
            running,
            drafted,
            proposals,
            seconds,
            alternatives: Vec::new(),
            timings,
            clock,
        })
    }

    /// The looked-up tokens, and the draft that begins after them.
    fn begin_draft(
        &mut self,
        running: &mut Running,
        cache: Option<&NgramCache>,
        policy: &mut dyn DraftPolicy,
    ) -> Result<(Vec<TargetId>, Drafting), SpecError> {
        let room = self.room();
        let (copied, drafts) = self.copy(room, policy);
        let wanted = if drafts { policy.next_len() } else { 0 };
        if wanted == 0 {
            return Ok((copied, Drafting::default()));
        }
        if running.untranslated > 0 {
            self.translate_back(running)?;
        }
        let round = running.round;
        let ahead = self.context_behind(&copied);
        let ahead = ahead.map_err(SpecError::align(round))?;
        let ids = ahead.as_ref().unwrap_or(&self.context).ids();
        let reading = &mut running.reading;
        let pending = reading.catch_up(&mut self.drafter, ids, (wanted, FEW), round)?;
        let penalises = self.config.sampling.penalises();
        let seen = penalises.then(|| ids.iter().copied().collect());
        let room = (room - copied.len()).min(pending.room);
        let roots = match self.rules(cache).lexicon {
            Some(lexicon) => lexicon.root_children(),
            None => self.spellable.clone(),
        };
        let drafting = Drafting::new(pending.tokens, roots, seen, (wanted, room));
        Ok((copied, drafting))
    }

    /// Number of proposals that the target has room for, after the token before them.
    fn room(&self) -> usize {
        let left = self.target.max_len().saturating_sub(self.target.len());
        left.saturating_sub(1)
    }

    /// Inputs of drafting other than the drafter.
    pub(super) fn rules<'a>(&'a self, cache: Option<&'a NgramCache>) -> DraftRules<'a> {
        let mode = self.config.mode;
        DraftRules {
            lexicon: (mode != VerifyMode::Slem).then(|| lexicon_of(&self.direct, mode, cache)),
            direct: &self.direct,
            sampling: self.config.sampling.among_top(self.config.draft_top),
            stop: &self.config.stop,
            seconds: self.config.alternatives > 0
                && mode != VerifyMode::Slem
                && self.target.alternatives(1) > 0,
        }
    }

    /// The looked-up tokens to propose, and true if the drafter drafts (after them).
    fn copy(&mut self, room: usize, policy: &mut dyn DraftPolicy) -> (Vec<TargetId>, bool) {
        let history = self.history.as_mut();
        let Some(mut found) = history.and_then(|history| history.find(room.min(LONGEST_COPY)))
        else {
            return (Vec::new(), true);
        };
        // Nothing sensible follows a stop token.
        let stop = &self.config.stop;
        if let Some(end) = found.tokens.iter().position(|token| stop.contains(token)) {
            found.tokens.truncate(end + 1);
        }
        let CopyPlan { copy, draft } = policy.plan_copy(&found);
        found.tokens.truncate(copy);
        let ends = found.tokens.last().is_some_and(|last| stop.contains(last));
        (found.tokens, draft && !ends)
    }

    /// The draft context with looked-up tokens after it; `None` if there are none.
    fn context_behind(&self, copied: &[TargetId]) -> Result<Option<DraftContext>, AlignError> {
        if copied.is_empty() {
            return Ok(None);
        }
        let mut ahead = self.context.clone();
        ahead.push(copied)?;
        Ok(Some(ahead))
    }

    /// The draft in target tokens.
    fn translate(
        &self,
        drafted: &Draft,
        cache: Option<&NgramCache>,
    ) -> Result<Vec<Proposal>, AlignError> {
        match self.config.mode {
            VerifyMode::Slem => slem::retokenise(&drafted.ids, &self.pair, &self.direct),
            mode => {
                let lexicon = lexicon_of(&self.direct, mode, cache);
                Ok(translate(&drafted.ids, &lexicon))
            }
        }
    }
}
