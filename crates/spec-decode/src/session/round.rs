//! One round of Algorithm 1.

use std::time::Instant;

use ngram_cache::NgramCache;
use vocab_align::{DraftId, TargetId, TokenId, raw_ids};

use super::running::Running;
use super::{CachedGroups, Session};
use crate::alternative::{Placed, Seconds, instead, likeliest};
use crate::draft::Draft;
use crate::error::{LawError, Role, SpecError};
use crate::lexicon::Lexicon;
use crate::model::Rows;
use crate::residual::path_probability;
use crate::translate::{Proposal, is_looked_up};
use crate::verify::{Evidence, Groups, SparseDraft, Verdict, VerifyMode, needs_groups, verify};
use crate::{Alternative, DraftPolicy, LanguageModel, RoundOutcome, TeacherSink, Timings};

/// A round whose draft waits for the target's forward ([`Session::draft_round`]).
///
/// The session has no response in progress until [`Session::commit_round`] is called. If the round
/// is dropped, the response is over.
pub struct DraftedRound {
    pub(super) running: Running,
    pub(super) drafted: Draft,
    pub(super) proposals: Vec<Proposal>,
    pub(super) input: Vec<TargetId>,
    /// Second choices of the drafter.
    pub(super) seconds: Seconds,
    /// Alternatives that are scored along, in the order of their rows.
    pub(super) alternatives: Vec<Placed>,
    pub(super) timings: Timings,
    pub(super) clock: Clock,
}

impl DraftedRound {
    /// The tokens to score in one forward of the target: the last one of the text, then all
    /// proposals. [`Session::judge_round`] takes their rows of logits.
    pub fn input(&self) -> &[TargetId] {
        &self.input
    }

    /// Number of rows that [`Session::score_round`] gives: those of the input, and of alternatives if
    /// some [were chosen](Session::choose_alternatives).
    pub fn rows(&self) -> usize {
        self.alternatives.iter().fold(self.input.len(), rows_with)
    }

    /// The probability with which each proposal was drafted (Eq. 1); 1 at temperature 0 and for
    /// looked-up tokens.
    pub fn proposed(&self) -> impl Iterator<Item = f64> {
        let of = |proposal| path_probability(&self.drafted, proposal).unwrap_or(1.0);
        self.proposals.iter().map(of)
    }
}

/// A round whose proposals are verified ([`Session::judge_round`]) and not committed yet.
pub struct JudgedRound {
    pub(super) round: DraftedRound,
    pub(super) verdict: Verdict,
}

impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    /// Drafts, translates, verifies and commits once: one target forward, at least one token.
    ///
    /// `cache` is read in the modes that merge n-grams and written if the session learns them;
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
        let mut drafted = self.draft_round(cache.as_deref(), policy)?;
        self.choose_alternatives(&mut drafted, policy);
        let (judged, logits) = self.score_and_judge(drafted, cache.as_deref(), sink)?;
        self.commit_round(judged, &logits, cache, policy, sink)
    }

    /// Adds the likeliest alternatives ([`SessionConfig::alternatives`](crate::SessionConfig)) that
    /// are worth their positions of the target's forward. [`score_round`](Self::score_round) must
    /// then score the round.
    pub fn choose_alternatives(&mut self, round: &mut DraftedRound, policy: &dyn DraftPolicy) {
        let tokens = round.input.len();
        let most = match self.config.alternatives {
            0 => 0,
            some => self.target.alternatives(tokens).min(some),
        };
        if most > 0 {
            let all = self.alternatives(round, most, policy);
            let worth = |used, chance| policy.is_worth(tokens + used, chance);
            round.alternatives = likeliest(all, most, worth);
        }
        // Like all that is looked up, they belong to the draft.
        round.timings.draft += round.clock.lap();
    }

    /// Alternatives to each drafted proposal, and after the last one: a second choice, and looked-up
    /// text. The chance of anything after looked-up proposals is not known, so they have none.
    fn alternatives(
        &mut self,
        round: &DraftedRound,
        most: usize,
        policy: &dyn DraftPolicy,
    ) -> Vec<Placed> {
        let proposals = &round.proposals;
        let seconds = &round.seconds;
        let seconds = seconds.chances(|at, mass| policy.draft_acceptance(at, mass));
        let mut all = Vec::new();
        if proposals.first().is_none_or(is_looked_up) {
            return all;
        }
        // Nothing follows a stop token.
        let stop = self.config.stop.clone();
        let goes_on = |token: &TargetId| !stop.contains(token);
        let mut copy = |ahead: &[TargetId]| {
            let found = self.history.as_mut()?.find_after(ahead, most)?;
            let each = (found.matched..).zip(found.tokens);
            let each = each.take_while(|(_, token)| goes_on(token));
            let each = each.map(|(matched, token)| (token, policy.copy_acceptance(matched)));
            Some(each.collect::<Vec<_>>())
        };
        // No token beyond the limit is drawn.
        let length = round.running.response.len() + 1;
        let room = self.config.max_new_tokens.saturating_sub(length);
        for at in 0..=proposals.len() {
            let drafted = proposals.get(at);
            let before = at.checked_sub(1).map_or(0, |last| proposals[last].span.end);
            let stands = seconds.stands(drafted.map_or(before, |own| own.span.start));
            let may = policy.is_worth(round.input.len(), stands) && stands > 0.0 && at < room;
            if !may || !round.input[1..=at].iter().all(goes_on) {
                break;
            }
            let own = drafted.map_or(0.0, |own| seconds.stands(own.span.end) / stands);
            if drafted.is_some() && own <= 0.0 {
                break;
            }
            let differs = |token: TargetId| drafted.is_none_or(|own| own.target != token);
            let mut copied = copy(&round.input[1..=at]).unwrap_or_default();
            copied.truncate(room - at);
            let copied = copied
                .split_first()
                .filter(|((token, _), _)| differs(*token));
            let second = drafted.and_then(|own| seconds.second(own.span.start));
            let second = second.filter(|second| differs(second.target) && goes_on(&second.target));
            if let Some(((token, acceptance), more)) = copied {
                let alone = instead(*acceptance, own);
                let said = second.filter(|second| second.target == *token);
                let chance = stands * said.map_or(alone, |second| alone.max(second.mass));
                all.push(Placed::new(at + 1, (*token, chance), more.iter().copied()));
            }
            let copies = |second: TargetId| copied.is_some_and(|((token, _), _)| *token == second);
            if let Some(second) = second.filter(|second| !copies(second.target)) {
                let ahead = [&round.input[1..=at], &[second.target]].concat();
                let more = copy(&ahead).unwrap_or_default();
                let more = more.into_iter().take(room - at - 1);
                let first = (second.target, stands * second.mass);
                all.push(Placed::new(at + 1, first, more));
            }
        }
        all
    }

    /// Scores a round with the session's own target: the rows of its [input](DraftedRound::input)
    /// and of its alternatives, `[rows, vocab_size]`.
    ///
    /// # Errors
    /// Those of the target; a round that is not this session's.
    pub fn score_round(
        &mut self,
        round: &DraftedRound,
        logits: &mut Vec<f32>,
    ) -> Result<(), SpecError> {
        self.check_round(&round.running)?;
        let runs = round.alternatives.iter().map(|own| raw_ids(&own.tokens));
        let runs: Vec<Vec<u32>> = runs.collect();
        let placed = round.alternatives.iter().zip(&runs);
        let placed = placed.map(|(own, ids)| Alternative {
            after: own.after,
            ids,
        });
        let alternatives: Vec<_> = placed.collect();
        let input = raw_ids(&round.input);
        let scored = self.target.forward_with(&input, &alternatives, logits);
        scored.map_err(SpecError::model(Role::Target, round.running.round))
    }

    /// The second part of a [`round`](Self::round): accepts some proposals and draws the token
    /// after them. `logits` are the rows of the round's [input](DraftedRound::input), `[tokens,
    /// vocab_size]`, from the forward that appended it to the target's KV cache; those of
    /// alternatives may follow.
    ///
    /// # Errors
    /// Logits of another shape; impossible probabilities; a cache that changed since the draft; a
    /// round that is not this session's.
    pub fn judge_round(
        &mut self,
        mut round: DraftedRound,
        cache: Option<&NgramCache>,
        logits: &[f32],
    ) -> Result<JudgedRound, SpecError> {
        self.check_round(&round.running)?;
        round.timings.target = round.clock.lap();
        let (vocab, tokens, all) = (self.target.vocab_size(), round.input.len(), round.rows());
        let running = &mut round.running;
        let own = match logits.len() == all * vocab {
            true => logits.get(..tokens * vocab).unwrap_or(logits),
            false => logits,
        };
        let rows = Rows::checked(own, vocab, tokens);
        let rows = rows.map_err(SpecError::law(Role::Target, running.round))?;
        let verdict = self.judge(running, cache, &round.drafted, &round.proposals, rows)?;
        round.timings.verify = round.clock.lap();
        Ok(JudgedRound { round, verdict })
    }

    /// The drafted round in a form that can be verified elsewhere with the target's distribution
    /// alone ([`SparseDraft::judge`]), in modes `exact` and `tli`. The verdict is passed to
    /// [`settle_round`](Self::settle_round).
    ///
    /// # Errors
    /// Impossible probabilities; another mode; a cache that changed since the draft; a round that is
    /// not this session's.
    pub fn sparse_draft(
        &mut self,
        round: &DraftedRound,
        cache: Option<&NgramCache>,
    ) -> Result<SparseDraft, SpecError> {
        let (mode, sampling) = (self.config.mode, self.config.sampling);
        self.check_round(&round.running)?;
        check_cache(mode, cache, &round.running)?;
        if !matches!(mode, VerifyMode::Exact | VerifyMode::Tli) {
            return Err(SpecError::NotSparse {
                round: round.running.round,
                mode: mode.name(),
            });
        }
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
        let law = SpecError::law(Role::Drafter, round.running.round);
        SparseDraft::new(&evidence).map_err(law)
    }

    /// Replaces [`judge_round`](Self::judge_round) if the round's
    /// [`sparse_draft`](Self::sparse_draft) was verified elsewhere: it takes the verdict. The
    /// target's KV cache must be as long as after the round's input.
    ///
    /// # Errors
    /// More accepted proposals than there are, a token that the target does not have, or a
    /// probability below 0 or more than 1e-6 above 1; a round that is not this session's.
    pub fn settle_round(
        &mut self,
        mut round: DraftedRound,
        verdict: Verdict,
    ) -> Result<JudgedRound, SpecError> {
        self.check_round(&round.running)?;
        round.timings.target = round.clock.lap();
        let law = SpecError::law(Role::Target, round.running.round);
        let vocab = self.target.vocab_size();
        if verdict.accepted > round.proposals.len() || verdict.last.index() >= vocab {
            return Err(law(LawError::OutOfVocabulary {
                token: verdict.last.get(),
                vocab,
            }));
        }
        // A probability from another machine may have been rounded up.
        let possible = |p: f64| (0.0..=1.0 + 1e-6).contains(&p);
        if let Some(score) = verdict.scores.iter().find(|score| !possible(score.target)) {
            let probability = score.target;
            return Err(law(LawError::TargetProbability { probability }));
        }
        Ok(JudgedRound { round, verdict })
    }

    /// The last part of a [`round`](Self::round): the response grows, both KV caches are cut back,
    /// n-grams are inserted into the cache. `logits` are those with which it was verified, with the
    /// rows of alternatives after them; for a round that was verified elsewhere, they are the leading
    /// rows that are known, which may be none.
    ///
    /// # Errors
    /// Logits of another shape; text that a tokenizer refuses; KV caches that drifted; a round that
    /// is not this session's.
    pub fn commit_round(
        &mut self,
        judged: JudgedRound,
        logits: &[f32],
        cache: Option<&mut NgramCache>,
        policy: &mut dyn DraftPolicy,
        sink: &mut dyn TeacherSink,
    ) -> Result<RoundOutcome, SpecError> {
        let JudgedRound { round, verdict } = judged;
        self.check_round(&round.running)?;
        let DraftedRound {
            mut running,
            drafted,
            proposals,
            input,
            seconds: _,
            alternatives,
            mut timings,
            mut clock,
        } = round;
        // Time spent on other sessions in the meantime does not belong to this round.
        clock.lap();
        let number = running.round;
        let vocab = self.target.vocab_size();
        let positions = (logits.len() / vocab.max(1)).min(input.len());
        let law = SpecError::law(Role::Target, number);
        // The rows of alternatives come last, and only after all others.
        let scored = alternatives.iter().fold(input.len(), rows_with);
        let (own, beyond) = match logits.len() == scored * vocab {
            true => logits.split_at(input.len() * vocab),
            false => (logits, &[][..]),
        };
        let rows = Rows::checked(own, vocab, positions).map_err(&law)?;
        let beyond = Rows::checked(beyond, vocab, beyond.len() / vocab.max(1)).map_err(&law)?;
        let judged = (&proposals[..], &verdict);
        let further = self.draw_after(&mut running, judged, &alternatives, beyond)?;
        // Accepted text is translated back, and its n-grams are inserted into the cache.
        let (emitted, inserted) =
            self.commit(&mut running, judged, (rows, &further), cache, sink)?;
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
            alternatives: beyond.positions(),
            emitted_bytes,
            inserted,
            timings,
        };
        policy.observe(&outcome);
        self.running = Some(running);
        Ok(outcome)
    }

    /// The tokens after the round's last one, each with its row, as far as the target has scored
    /// what comes before as an alternative. The target's KV cache then holds that much of it.
    fn draw_after<'a>(
        &mut self,
        running: &mut Running,
        (proposals, verdict): (&[Proposal], &Verdict),
        alternatives: &[Placed],
        rows: Rows<'a>,
    ) -> Result<Vec<(TargetId, &'a [f32])>, SpecError> {
        let stop = &self.config.stop;
        let accepted = || proposals.iter().take(verdict.accepted).map(|p| p.target);
        let mut further = Vec::new();
        let mut first = 0;
        let found = alternatives.iter().position(|own| {
            let here = own.after == verdict.accepted + 1;
            let found = here && own.tokens.first() == Some(&verdict.last);
            first += if found { 0 } else { own.tokens.len() };
            found
        });
        let known = found.filter(|_| first < rows.positions());
        let Some(found) = known.filter(|_| !accepted().any(|token| stop.contains(&token))) else {
            return Ok(further);
        };
        let sampling = self.config.sampling;
        let mut seen = running.seen.clone();
        if let Some(seen) = &mut seen {
            seen.extend(accepted());
        }
        let mut last = verdict.last;
        let length = running.response.len() + verdict.accepted + 1;
        for (i, token) in alternatives[found].tokens.iter().enumerate() {
            // A token that would be cut is not drawn.
            let ends = stop.contains(&last) || length + i >= self.config.max_new_tokens;
            if *token != last || ends {
                break;
            }
            let row = rows.row(first + i);
            let penalised = seen.as_mut().map(|seen| {
                seen.insert(last);
                let mut penalised = row.to_vec();
                sampling.penalise(&mut penalised, seen);
                penalised
            });
            let processed = penalised.as_deref().unwrap_or(row);
            let drawn = sampling.draw(processed, &mut *running.verify_dice);
            let column = drawn.map_err(SpecError::law(Role::Target, running.round))?;
            last = TargetId::new(column as u32);
            further.push((last, row));
        }
        if !further.is_empty() {
            let taken = self.target.take_alternative(found, further.len());
            taken.map_err(SpecError::model(Role::Target, running.round))?;
        }
        Ok(further)
    }

    /// Checks that a round was begun in the present response, with the present settings: its text
    /// would otherwise become another session's, or follow another law.
    pub(super) fn check_round(&self, running: &Running) -> Result<(), SpecError> {
        let round = running.round;
        match running.serial == self.serial {
            true => Ok(()),
            false => Err(SpecError::OtherRound { round }),
        }
    }

    /// Verifies the proposals with the target's distribution.
    fn judge(
        &mut self,
        running: &mut Running,
        cache: Option<&NgramCache>,
        drafted: &Draft,
        proposals: &[Proposal],
        rows: Rows<'_>,
    ) -> Result<Verdict, SpecError> {
        let (mode, acceptance) = (self.config.mode, self.config.acceptance);
        let sampling = self.config.sampling;
        check_cache(mode, cache, running)?;
        let lexicon = lexicon_of(&self.direct, mode, cache);
        let proposed = proposals.iter().map(|proposal| proposal.target);
        let seen = running.seen.clone();
        let penalised = seen.map(|seen| sampling.penalised(seen, proposed, rows));
        let judged = penalised
            .as_deref()
            .and_then(|logits| Rows::new(logits, rows.vocab(), rows.positions()));
        // Groups are as large as the vocabulary, and nothing reads them where nothing was drafted.
        let drafted_any = !(proposals.is_empty() && drafted.ids.is_empty());
        let needed = drafted_any && needs_groups(mode, acceptance, sampling);
        let evidence = Evidence {
            draft: drafted,
            proposals,
            rows: judged.unwrap_or(rows),
            lexicon,
            groups: self.groups.of(&lexicon, rows.vocab(), needed),
            sampling,
        };
        let law = SpecError::law(Role::Target, running.round);
        let dice = &mut *running.verify_dice;
        verify(mode, acceptance, &evidence, dice).map_err(law)
    }
}

/// Lexicon of a draft's translations in a mode.
pub(super) fn lexicon_of<'a>(
    direct: &'a crate::DirectMap,
    mode: VerifyMode,
    cache: Option<&'a NgramCache>,
) -> Lexicon<'a> {
    Lexicon::new(direct, cache.filter(|_| mode.uses_cache()))
}

/// Checks that the n-grams are those that were drafted with.
pub(super) fn check_cache(
    mode: VerifyMode,
    cache: Option<&NgramCache>,
    running: &Running,
) -> Result<(), SpecError> {
    let round = running.round;
    let generation = cache.map(NgramCache::generation);
    match mode.uses_cache() && generation != running.cache {
        true => Err(SpecError::CacheChanged { round }),
        false => Ok(()),
    }
}

impl CachedGroups {
    /// The groups of a lexicon. If they are `needed`, they are rebuilt after any change of the
    /// cache that [`learn`](Self::learn) did not add, such as an eviction.
    fn of(&mut self, lexicon: &Lexicon<'_>, vocab: usize, needed: bool) -> &Groups {
        let generation = Some(lexicon.cache().map(NgramCache::generation));
        if needed && self.generation != generation {
            self.groups = Groups::new(lexicon, vocab);
            self.generation = generation;
        }
        &self.groups
    }

    /// Adds an n-gram that the cache, at generation `before` until then, has just learnt. If the
    /// cache also moved its n-grams, their identifiers have changed and the groups are left to be
    /// rebuilt.
    pub(super) fn learn(
        &mut self,
        cache: &NgramCache,
        before: u64,
        spelling: &[DraftId],
        token: TargetId,
    ) {
        let kept_ids = cache.generation() == before + 1;
        if kept_ids && self.generation == Some(Some(before)) {
            self.groups.insert(cache, spelling, token);
            self.generation = Some(Some(cache.generation()));
        }
    }
}

/// The rows before an alternative, and its own.
fn rows_with(before: usize, own: &Placed) -> usize {
    before + own.tokens.len()
}

/// Clock that measures consecutive periods.
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the last call.
    pub(super) fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let seconds = now.duration_since(self.0).as_secs_f64();
        self.0 = now;
        seconds
    }
}

#[cfg(test)]
mod tests {
    use ngram_cache::{CacheConfig, Eviction, Insertion};

    use super::*;
    use crate::lexicon::DirectMap;

    /// A cache with a limit in bytes moves its n-grams while it grows. Groups with their old
    /// identifiers would belong to other n-grams, and mode `exact` would not be exact.
    #[test]
    fn groups_follow_a_cache_that_moves_its_ngrams() {
        let pairs: Vec<_> = (0..3).map(|i| (DraftId(i), TargetId(i))).collect();
        let direct = DirectMap::from_pairs(&pairs, 8, 64);
        let mut moves = 0;
        for max_bytes in (600..6000).step_by(100) {
            let mut cache = NgramCache::new(CacheConfig {
                max_entries: None,
                eviction: Eviction::None,
                max_bytes: Some(max_bytes),
            });
            let mut cached = CachedGroups::default();
            cached.of(&Lexicon::new(&direct, Some(&cache)), 64, true);
            for i in 0..400_u32 {
                let path = [i * 7 % 8, i / 3 % 8, i * 5 % 7, i % 5].map(DraftId);
                let (spelling, token) = (&path[..2 + i as usize % 3], TargetId(i * 11 % 64));
                let before = cache.generation();
                if cache.insert(spelling, token) == Insertion::New {
                    moves += usize::from(cache.generation() > before + 1);
                    cached.learn(&cache, before, spelling, token);
                }
                let lexicon = Lexicon::new(&direct, Some(&cache));
                assert_eq!(*cached.of(&lexicon, 64, true), Groups::new(&lexicon, 64));
            }
        }
        assert!(moves > 0, "no cache moved its n-grams");
    }
}
