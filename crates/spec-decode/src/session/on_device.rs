//! Rounds with models that keep their logits on a device: rows that are not read stay there.
//!
//! Tokens, scores and errors are the same as with whole rows: decisions use the most probable token
//! of a row if it suffices, and otherwise the row is fetched.

use ngram_cache::NgramCache;
use vocab_align::raw_ids;

use super::Session;
use super::drafting::DraftingRound;
use super::round::{DraftedRound, JudgedRound};
use crate::buffer::Row;
use crate::error::{Role, SpecError};
use crate::verify::{check_proposals, greedy};
use crate::{DraftPolicy, LanguageModel, TeacherSink};

impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    /// True if decisions need only the most probable token of a row.
    fn takes_best(&self) -> bool {
        let sampling = self.config.sampling;
        sampling.is_greedy() && !sampling.penalises()
    }

    /// Takes the next step of a draft with a drafter on a device. Returns false if it is not on a
    /// device, or reads more tokens than it scores at once.
    pub(super) fn draft_on_device(
        &mut self,
        round: &mut DraftingRound,
        cache: Option<&NgramCache>,
        policy: &mut dyn DraftPolicy,
        logits: &mut Row<f32>,
    ) -> Result<bool, SpecError> {
        let takes_best = self.takes_best() && !policy.reads_drafter();
        let tokens = round.input().len();
        let Some(device) = self.drafter.device_logits(tokens) else {
            return Ok(false);
        };
        let failed = SpecError::model(Role::Drafter, round.running.round);
        device.score(&raw_ids(round.input())).map_err(failed)?;
        if takes_best {
            let mut best = Vec::new();
            device.best(&mut best).map_err(failed)?;
            let rules = self.rules(cache);
            if let Some(Some(best)) = best.last()
                && round.drafting.take_best(*best, &rules, policy)
            {
                return Ok(true);
            }
        }
        if let Some(device) = self.drafter.device_logits(tokens) {
            let rows = device.rows(tokens - 1..tokens, logits);
            rows.map_err(failed)?;
        }
        self.draft_row(round, cache, logits, policy)?;
        Ok(true)
    }

    /// Runs the target's forward over the pending token, all proposals and the alternatives, and
    /// verifies the proposals.
    /// Returns the logits with which [`commit_round`](Self::commit_round) records; of a target on a
    /// device, those of the emitted tokens, and only if `sink` reads them.
    pub(super) fn score_and_judge(
        &mut self,
        mut round: DraftedRound,
        cache: Option<&NgramCache>,
        sink: &dyn TeacherSink,
    ) -> Result<(JudgedRound, Row<f32>), SpecError> {
        let tokens = round.input().len();
        let (number, wanted) = (round.running.round, self.takes_best());
        let failed = SpecError::model(Role::Target, number);
        let Some(device) = self.target.device_logits(tokens).filter(|_| wanted) else {
            let mut logits = Row::of(round.rows() * self.target.vocab_size());
            self.score_round(&round, &mut logits)?;
            let judged = self.judge_round(round, cache, &logits)?;
            return Ok((judged, logits));
        };
        let mut logits = Row::of(0);
        let mut best = Vec::new();
        device.score(&raw_ids(round.input())).map_err(failed)?;
        device.best(&mut best).map_err(failed)?;
        round.timings.target = round.clock.lap();
        let law = SpecError::law(Role::Target, number);
        check_proposals(&round.proposals, self.target.vocab_size()).map_err(law)?;
        let best = |index: usize| best.get(index).copied().flatten();
        let proposed = round.proposals.iter().map(|proposal| proposal.target);
        let Some(verdict) = greedy::verify(proposed, |index| best(index).ok_or(())).ok() else {
            // A row to verify has no most probable token. Verification with whole rows reports the
            // fault.
            if let Some(device) = self.target.device_logits(tokens) {
                device.rows(0..tokens, &mut logits).map_err(failed)?;
            }
            let judged = self.judge_round(round, cache, &logits)?;
            return Ok((judged, logits));
        };
        round.timings.verify = round.clock.lap();
        let emitted = verdict.accepted + 1;
        if let Some(device) = self.target.device_logits(tokens).filter(|_| sink.reads()) {
            device.rows(0..emitted, &mut logits).map_err(failed)?;
            // Fetching more of the forward's logits belongs to the forward.
            round.timings.target += round.clock.lap();
        }
        Ok((JudgedRound { round, verdict }, logits))
    }
}
