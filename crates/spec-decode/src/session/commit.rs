//! Commit of a round's tokens: cut, record, roll both KV caches back, learn n-grams.

use ngram_cache::NgramCache;
use vocab_align::TargetId;

use super::Session;
use super::reading::check_len;
use super::running::Running;
use crate::error::{Role, SpecError};
use crate::model::Rows;
use crate::translate::Proposal;
use crate::verify::Verdict;
use crate::{LanguageModel, TeacherSink};

impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    /// Appends the accepted tokens, the one after them and those `further`, which come with their
    /// rows. Returns the emitted tokens and the number of n-grams that were new.
    pub(super) fn commit(
        &mut self,
        running: &mut Running,
        (proposals, verdict): (&[Proposal], &Verdict),
        (rows, further): (Rows<'_>, &[(TargetId, &[f32])]),
        cache: Option<&mut NgramCache>,
        sink: &mut dyn TeacherSink,
    ) -> Result<(Vec<TargetId>, usize), SpecError> {
        let emitted = self.cut(running, proposals, (verdict, further));
        let own = (0..=verdict.accepted).map(|offset| rows.row(offset));
        let each = own.chain(further.iter().map(|(_, row)| *row));
        for (offset, (&token, row)) in emitted.iter().zip(each).enumerate() {
            sink.record(running.response.len() + offset, token, row);
        }
        running.response.extend_from_slice(&emitted);
        if let Some(seen) = &mut running.seen {
            seen.extend(&emitted);
        }
        self.roll_back_target(running)?;
        if let Some(history) = &mut self.history {
            history.extend(&emitted);
        }
        let room = self.target.max_len().saturating_sub(self.target.len());
        let (stop, limit) = (&self.config.stop, self.config.max_new_tokens);
        running.finish = running.finish_of(stop, limit, room);
        running.untranslated += emitted.len();
        let mut inserted = 0;
        if self.config.drafter_reads || running.finish.is_some() {
            self.translate_back(running)?;
            // Accepted n-grams are part of the mined text: they are counted there, and only once.
            if let Some(cache) = cache.filter(|_| self.config.learn_ngrams) {
                inserted = running.mine(&self.context, &self.pair, cache, &mut self.groups);
            }
        }
        Ok((emitted, inserted))
    }

    /// Brings the draft context up to the end of the response.
    pub(super) fn translate_back(&mut self, running: &mut Running) -> Result<(), SpecError> {
        let new = running.response.len() - std::mem::take(&mut running.untranslated);
        let pushed = self.context.push(&running.response[new..]);
        pushed.map_err(SpecError::align(running.round))?;
        let (reading, ids) = (&mut running.reading, self.context.ids());
        let rolled = reading.roll_back(&mut self.drafter, ids, running.round);
        rolled.map(drop)
    }

    /// The tokens that become part of the response: none after a stop token or beyond the limit.
    fn cut(
        &self,
        running: &Running,
        proposals: &[Proposal],
        (verdict, further): (&Verdict, &[(TargetId, &[f32])]),
    ) -> Vec<TargetId> {
        let accepted = proposals[..verdict.accepted].iter().map(|p| p.target);
        let further = further.iter().map(|(token, _)| *token);
        let mut emitted: Vec<TargetId> = accepted.chain([verdict.last]).chain(further).collect();
        let limit = self.config.max_new_tokens;
        emitted.truncate(limit.saturating_sub(running.response.len()));
        if let Some(end) = emitted
            .iter()
            .position(|token| self.config.stop.contains(token))
        {
            emitted.truncate(end + 1);
        }
        emitted
    }

    /// Keeps prompt and response without the last token, which becomes the pending one.
    fn roll_back_target(&mut self, running: &mut Running) -> Result<(), SpecError> {
        let kept = running.prompt.len() + running.response.len() - 1;
        self.target.truncate(kept);
        check_len(Role::Target, running.round, self.target.len(), kept)?;
        if let Some(&last) = running.response.last() {
            running.pending = last;
        }
        Ok(())
    }
}
