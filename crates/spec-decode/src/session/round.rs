//! One round of Algorithm 1.

use std::collections::BTreeSet;
use std::time::Instant;

use ngram_cache::NgramCache;
use vocab_align::{DraftContext, DraftId, TargetId, TokenId};

use super::commit::Commitment;
use super::running::Running;
use super::{CachedGroups, Session, slem};
use crate::buffer::Row;
use crate::draft::{Draft, DraftRules, Drafting, Masking, last_row};
use crate::error::{LawError, Role, SpecError};
use crate::fault::Fault;
use crate::lexicon::Lexicon;
use crate::model::Rows;
use crate::residual::path_probability;
use crate::translate::{Proposal, looked_up, translate};
use crate::verify::{
    Evidence, Groups, SparseDraft, Verdict, VerifyMode, needs_groups, unjudged_scores, verify,
};
use crate::{
    CopyPlan, DraftPolicy, LONGEST_COPY, LanguageModel, RoundOutcome, TeacherSink, Timings,
};

/// A round whose draft is in the making ([`Session::begin_round`]).
pub struct DraftingRound {
    running: Running,
    copied: Vec<TargetId>,
    drafting: Option<Drafting>,
    /// What the drafter reads in the first forward.
    pending: Vec<DraftId>,
    /// Most tokens the draft may have.
    room: usize,
    timings: Timings,
    clock: Clock,
}

impl DraftingRound {
    /// Which round of the response it is.
    pub(super) fn number(&self) -> usize {
        self.running.round
    }

    /// The tokens that the drafter reads next; empty where the draft is finished.
    pub fn input(&self) -> &[DraftId] {
        self.drafting.as_ref().map_or(&[], Drafting::input)
    }
}

/// A round whose draft waits for the target's forward ([`Session::draft_round`]).
///
/// The session has no response in progress until [`Session::commit_round`] gives it back; a round
/// that is dropped on the way ends the response.
pub struct DraftedRound {
    running: Running,
    drafted: Draft,
    proposals: Vec<Proposal>,
    input: Vec<TargetId>,
    timings: Timings,
    clock: Clock,
}

impl DraftedRound {
    /// Which round of the response it is.
    pub(super) fn number(&self) -> usize {
        self.running.round
    }

    /// What is put to the target.
    pub(super) fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// The target's forward is over.
    pub(super) fn ends_scoring(&mut self) {
        self.timings.target = self.clock.lap();
    }

    /// Judging is over.
    pub(super) fn ends_judging(&mut self) {
        self.timings.verify = self.clock.lap();
    }

    /// More of the forward's logits have been fetched.
    pub(super) fn ends_fetching(&mut self) {
        self.timings.target += self.clock.lap();
    }

    /// The tokens to score in one forward of the target: the last one of the text, then all
    /// proposals. Their rows of logits are what [`Session::judge_round`] wants.
    pub fn input(&self) -> &[TargetId] {
        &self.input
    }

    /// The probability with which each proposal was drafted (Eq. 1); 1 at temperature 0.
    pub fn proposed(&self) -> impl Iterator<Item = f64> {
        let of = |proposal| path_probability(&self.drafted, proposal).unwrap_or(1.0);
        self.proposals.iter().map(of)
    }
}

/// A round whose proposals are judged ([`Session::judge_round`]) and not committed yet.
pub struct JudgedRound {
    round: DraftedRound,
    verdict: Verdict,
}

impl JudgedRound {
    pub(super) fn new(round: DraftedRound, verdict: Verdict) -> Self {
        Self { round, verdict }
    }
}

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
        cache: Option<&mut NgramCache>,
        policy: &mut dyn DraftPolicy,
        sink: &mut dyn TeacherSink,
    ) -> Result<RoundOutcome, SpecError> {
        let drafted = self.draft_round(cache.as_deref(), policy)?;
        let (judged, logits) = match self.judge_on_device(drafted, cache.as_deref(), sink)? {
            Ok(judged) => judged,
            Err(drafted) => {
                let logits = self.score(&drafted)?;
                let judged = self.judge_round(drafted, cache.as_deref(), &logits)?;
                (judged, logits)
            }
        };
        self.commit_round(judged, &logits, cache, policy, sink)
    }

    /// The first part of a [`round`](Self::round): drafts and translates. Who has several sessions
    /// with engines of one target can score the [inputs](DraftedRound::input) of all of them in one
    /// forward of these engines ([`target_mut`](Self::target_mut)), then
    /// [judge](Self::judge_round) all, then [commit](Self::commit_round) all. Sessions may share a
    /// cache: it must not change between a round's draft and its judgement.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn draft_round(
        &mut self,
        cache: Option<&NgramCache>,
        policy: &mut dyn DraftPolicy,
    ) -> Result<DraftedRound, SpecError> {
        let mut round = self.begin_round(cache, policy)?;
        let mut logits = Row::of(self.drafter.vocab_size());
        while !round.input().is_empty() {
            if self.draft_on_device(&mut round, cache, policy, &mut logits)? {
                continue;
            }
            let failed = |source| Fault::Model(Role::Drafter, source).at(round.running.round);
            let read = self.drafter.forward(round.input(), &mut logits);
            read.map_err(failed)?;
            self.draft_token(&mut round, cache, &logits, policy)?;
        }
        self.end_draft(round, cache)
    }

    /// The beginning of [`draft_round`](Self::draft_round), for who has several sessions with
    /// drafters of one model: while there is an [input](DraftingRound::input), the drafter
    /// ([`drafting_model`](Self::drafting_model)) reads it and
    /// [`draft_token`](Self::draft_token) takes in its logits; then comes
    /// [`end_draft`](Self::end_draft).
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn begin_round(
        &mut self,
        cache: Option<&NgramCache>,
        policy: &mut dyn DraftPolicy,
    ) -> Result<DraftingRound, SpecError> {
        // Taken out for the time of the round, so that an error leaves no half-committed response.
        let mut running = match self.running.take() {
            Some(running) if running.finish.is_none() => running,
            ended => {
                self.running = ended;
                return Err(SpecError::NotRunning);
            }
        };
        let clock = Clock(Instant::now());
        let room = self.target.max_len().saturating_sub(self.target.len());
        let room = room.saturating_sub(1);
        let number = running.round;
        let begun = self.begin_draft(&mut running, cache, room, policy);
        let (copied, begun) = begun.map_err(|fault| fault.at(number))?;
        let (drafting, pending, room) = match begun {
            Some((drafting, room)) => {
                let pending = drafting.input().to_vec();
                (Some(drafting), pending, room)
            }
            None => (None, Vec::new(), room),
        };
        Ok(DraftingRound {
            running,
            copied,
            drafting,
            pending,
            room,
            timings: Timings::default(),
            clock,
        })
    }

    /// Draws the next token of a draft from the drafter's logits of the round's
    /// [input](DraftingRound::input), `[tokens, vocab_size]`. `cache` and `policy` are those that the
    /// round began with.
    ///
    /// # Errors
    /// Logits of another shape; impossible probabilities.
    pub fn draft_token(
        &mut self,
        round: &mut DraftingRound,
        cache: Option<&NgramCache>,
        logits: &[f32],
        policy: &mut dyn DraftPolicy,
    ) -> Result<(), SpecError> {
        if round.drafting.is_none() {
            return Ok(());
        }
        let vocab = self.drafter.vocab_size();
        let row = last_row(logits, round.input().len(), vocab);
        let row = row.map_err(|fault| fault.at(round.number()))?;
        self.draft_row(round, cache, row, policy)
    }

    /// As [`draft_token`](Self::draft_token), of the last row alone.
    pub(super) fn draft_row(
        &mut self,
        round: &mut DraftingRound,
        cache: Option<&NgramCache>,
        row: &[f32],
        policy: &mut dyn DraftPolicy,
    ) -> Result<(), SpecError> {
        let number = round.number();
        let Some(drafting) = &mut round.drafting else {
            return Ok(());
        };
        let rules = self.rules(cache, round.room, None);
        let said = (row, self.drafter.state(), self.drafter.abstains());
        let dice = &mut *round.running.draft_dice;
        let taken = drafting.take(said, &rules, policy, dice);
        taken.map_err(|fault| fault.at(number))
    }

    /// Draws the most probable token of all, if the draft may go on with it.
    pub(super) fn draft_best(
        &self,
        round: &mut DraftingRound,
        cache: Option<&NgramCache>,
        best: u32,
        policy: &mut dyn DraftPolicy,
    ) -> bool {
        let rules = self.rules(cache, round.room, None);
        let drafting = round.drafting.as_mut();
        drafting.is_some_and(|drafting| drafting.take_best(best, &rules, policy))
    }

    /// Ends drafting and translates the draft.
    ///
    /// # Errors
    /// Drafts that cannot be translated.
    pub fn end_draft(
        &mut self,
        round: DraftingRound,
        cache: Option<&NgramCache>,
    ) -> Result<DraftedRound, SpecError> {
        let DraftingRound {
            mut running,
            copied,
            drafting,
            pending,
            mut timings,
            mut clock,
            ..
        } = round;
        let (drafted, fed) = drafting.map_or_else(Default::default, Drafting::end);
        let read = pending.iter().chain(&drafted.ids).take(fed);
        running.reading.fed(read.copied());
        timings.draft = clock.lap();
        let room = self.target.max_len().saturating_sub(self.target.len());
        let room = room.saturating_sub(1);

        // Translate the draft to m target tokens.
        let mut proposals = looked_up(&copied);
        let translated = self.translate(&drafted, cache);
        proposals.extend(translated.map_err(|fault| fault.at(running.round))?);
        proposals.truncate(room);
        timings.translate = clock.lap();
        let proposed = proposals.iter().map(|proposal| proposal.target);
        Ok(DraftedRound {
            input: std::iter::once(running.pending).chain(proposed).collect(),
            running,
            drafted,
            proposals,
            timings,
            clock,
        })
    }

    /// The one target forward: the pending token and all proposals.
    fn score(&mut self, round: &DraftedRound) -> Result<Row<f32>, SpecError> {
        let mut logits = Row::of(round.input.len() * self.target.vocab_size());
        let scored = self.target.forward(&round.input, &mut logits);
        let failed = |source| Fault::Model(Role::Target, source).at(round.running.round);
        scored.map_err(failed).map(|()| logits)
    }

    /// The second part of a [`round`](Self::round): accepts some proposals and draws the token
    /// behind them. `logits` are the rows of the round's [input](DraftedRound::input),
    /// `[tokens, vocab_size]`, with which the target's KV cache has taken it in.
    ///
    /// # Errors
    /// Logits of another shape; impossible probabilities.
    pub fn judge_round(
        &mut self,
        mut round: DraftedRound,
        cache: Option<&NgramCache>,
        logits: &[f32],
    ) -> Result<JudgedRound, SpecError> {
        round.ends_scoring();
        let running = &mut round.running;
        let number = running.round;
        let rows = rows_of(logits, round.input.len(), self.target.vocab_size());
        let rows = rows.map_err(|fault| fault.at(number))?;
        let verdict = self
            .judge(running, cache, &round.drafted, &round.proposals, rows)
            .map_err(|fault| fault.at(number))?;
        round.ends_judging();
        Ok(JudgedRound { round, verdict })
    }

    /// A drafted round as somebody else can judge it who has the target's law
    /// ([`SparseDraft::judge`]), in modes `exact` and `tli`; [`settle_round`](Self::settle_round)
    /// takes the verdict.
    ///
    /// # Errors
    /// Impossible probabilities.
    pub fn sparse_draft(
        &mut self,
        round: &DraftedRound,
        cache: Option<&NgramCache>,
    ) -> Result<SparseDraft, SpecError> {
        let (mode, sampling) = (self.config.mode, self.config.sampling);
        let lexicon = lexicon_of(&self.direct, mode, cache);
        let vocab = self.target.vocab_size();
        let evidence = Evidence {
            draft: &round.drafted,
            proposals: &round.proposals,
            rows: Rows::none(vocab),
            lexicon,
            groups: self.groups.of(&lexicon, vocab, !sampling.is_greedy()),
            sampling,
        };
        let law = |source| Fault::Law(Role::Drafter, source).at(round.running.round);
        SparseDraft::new(&evidence).map_err(law)
    }

    /// In the place of [`judge_round`](Self::judge_round): takes over the judgement of the round's
    /// [`sparse_draft`](Self::sparse_draft). The target's KV cache must be as long as after the
    /// round's input.
    ///
    /// # Errors
    /// More accepted proposals than there are, or a token that the target does not have.
    pub fn settle_round(
        &mut self,
        mut round: DraftedRound,
        verdict: Verdict,
    ) -> Result<JudgedRound, SpecError> {
        round.timings.target = round.clock.lap();
        let vocab = self.target.vocab_size();
        if verdict.accepted > round.proposals.len() || verdict.last.index() >= vocab {
            let fault = LawError::OutOfVocabulary {
                token: verdict.last.get(),
                vocab,
            };
            return Err(Fault::Law(Role::Target, fault).at(round.running.round));
        }
        Ok(JudgedRound { round, verdict })
    }

    /// The last part of a [`round`](Self::round): the response grows, both KV caches are cut back,
    /// n-grams are remembered. `logits` are those it was judged by; of a round that was judged
    /// elsewhere the first ones that are known, which may be none.
    ///
    /// # Errors
    /// Logits of another shape; text that a tokenizer refuses; KV caches that drifted.
    pub fn commit_round(
        &mut self,
        judged: JudgedRound,
        logits: &[f32],
        cache: Option<&mut NgramCache>,
        policy: &mut dyn DraftPolicy,
        sink: &mut dyn TeacherSink,
    ) -> Result<RoundOutcome, SpecError> {
        let JudgedRound { round, verdict } = judged;
        let DraftedRound {
            mut running,
            drafted,
            proposals,
            input,
            mut timings,
            mut clock,
        } = round;
        // What others did meanwhile is not this round's.
        clock.lap();
        let number = running.round;
        let vocab = self.target.vocab_size();
        let positions = (logits.len() / vocab.max(1)).min(input.len());
        let rows = rows_of(logits, positions, vocab);
        let result = Commitment {
            proposals: &proposals,
            accepted: verdict.accepted,
            last: verdict.last,
            rows: rows.map_err(|fault| fault.at(number))?,
        };
        // Translate what was accepted back and remember its n-grams.
        let (emitted, inserted) = self
            .commit(&mut running, result, cache, sink)
            .map_err(|fault| fault.at(number))?;
        let emitted_bytes = self.pair.target.decode_bytes(&emitted).len();
        timings.commit = clock.lap();
        running.round += 1;
        let outcome = RoundOutcome {
            round: number,
            draft: drafted.ids,
            proposals,
            accepted: verdict.accepted,
            emitted,
            origin: verdict.origin,
            scores: verdict.scores,
            emitted_bytes,
            inserted,
            timings,
        };
        policy.observe(&outcome);
        self.running = Some(running);
        Ok(outcome)
    }

    /// What is looked up, and the draft behind it as it begins, with the room it has.
    #[allow(clippy::type_complexity, reason = "read once, by the only caller")]
    fn begin_draft(
        &mut self,
        running: &mut Running,
        cache: Option<&NgramCache>,
        room: usize,
        policy: &mut dyn DraftPolicy,
    ) -> Result<(Vec<TargetId>, Option<(Drafting, usize)>), Fault> {
        let (copied, drafts) = self.copy(room, policy);
        let wanted = if drafts { policy.next_len() } else { 0 };
        if wanted == 0 {
            return Ok((copied, None));
        }
        let ahead = self.context_behind(&copied)?;
        let ids = ahead.as_ref().unwrap_or(&self.context).ids();
        let pending = running.reading.pending(&mut self.drafter, ids, wanted)?;
        let penalises = self.config.sampling.penalises();
        let seen = penalises.then(|| ids.iter().copied().collect());
        let room = (room - copied.len()).min(pending.room);
        let rules = self.rules(cache, room, seen);
        let drafting = Drafting::new(pending.tokens, &rules, wanted);
        Ok((copied, Some((drafting, room))))
    }

    /// What drafts depend on besides the drafter.
    fn rules<'a>(
        &'a self,
        cache: Option<&'a NgramCache>,
        room: usize,
        seen: Option<BTreeSet<DraftId>>,
    ) -> DraftRules<'a> {
        DraftRules {
            masking: match self.config.mode {
                VerifyMode::Slem => Masking::Fixed(&self.spellable),
                mode => Masking::Translatable(lexicon_of(&self.direct, mode, cache)),
            },
            direct: &self.direct,
            sampling: self.config.sampling.among_top(self.config.draft_top),
            stop: &self.config.stop,
            room,
            seen,
        }
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
        let proposed = proposals.iter().map(|proposal| proposal.target);
        let seen = running.seen.clone();
        let penalised = seen.map(|seen| sampling.penalised(seen, proposed, rows));
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
}

/// What a draft can be translated to in a mode.
fn lexicon_of<'a>(
    direct: &'a crate::DirectMap,
    mode: VerifyMode,
    cache: Option<&'a NgramCache>,
) -> Lexicon<'a> {
    Lexicon::new(direct, cache.filter(|_| mode.uses_cache()))
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
