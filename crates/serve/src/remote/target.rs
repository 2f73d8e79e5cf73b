//! What is known here of a target elsewhere: the text that its KV cache holds.

use spec_decode::{
    Acceptance, LanguageModel, ModelError, SessionConfig, SparseDraft, StreamName, Verdict,
};
use vocab_align::TargetId;

use super::wire::{Judgement, Round, digest};

/// The text of a session with a target elsewhere.
pub(crate) struct RemoteTarget {
    text: Vec<TargetId>,
    /// How much of the text is known to be held there.
    held: usize,
    session: u64,
    vocab: usize,
    context: usize,
}

/// Nothing is computed here.
#[derive(Debug, thiserror::Error)]
#[error("the target is elsewhere")]
struct Elsewhere;

impl RemoteTarget {
    /// A session of this number, which nobody should guess.
    pub(crate) fn new(session: u64, vocab: usize, context: usize) -> Self {
        Self {
            text: Vec::new(),
            held: 0,
            session,
            vocab,
            context,
        }
    }

    /// The same round with the whole text, for the other side that does not hold it any more.
    pub(crate) fn whole(&mut self, round: Round) -> Round {
        self.held = 0;
        let last = round.append.last().copied();
        Round {
            keep: 0,
            digest: digest(&[]),
            append: self.text.iter().copied().chain(last).collect(),
            ..round
        }
    }

    /// Goes on as another session: nobody knows what the other side holds of this one.
    pub(crate) fn renew(&mut self, session: u64) {
        (self.session, self.held) = (session, 0);
    }

    /// What is to be judged there: `last`, the last token of the text, and a draft behind it.
    pub(crate) fn round(
        &self,
        last: TargetId,
        draft: SparseDraft,
        config: &SessionConfig,
        coins: StreamName,
        top: usize,
    ) -> Round {
        let (held, rest) = self.text.split_at(self.held);
        Round {
            session: self.session,
            keep: self.held as u32,
            digest: digest(held),
            append: rest.iter().copied().chain([last]).collect(),
            draft,
            sampling: config.sampling.options(),
            block: config.acceptance == Acceptance::Block,
            coins: (coins.seed, coins.prompt, coins.sample),
            top: top as u32,
        }
    }

    /// Takes in that `input` was read there.
    pub(crate) fn read(&mut self, input: &[TargetId]) {
        self.text.extend_from_slice(input);
        self.held = self.text.len();
    }
}

impl LanguageModel<TargetId> for RemoteTarget {
    fn vocab_size(&self) -> usize {
        self.vocab
    }

    fn len(&self) -> usize {
        self.text.len()
    }

    fn max_len(&self) -> usize {
        self.context
    }

    fn truncate(&mut self, len: usize) {
        self.text.truncate(len);
        self.held = self.held.min(len);
    }

    fn forward(&mut self, _: &[TargetId], _: &mut Vec<f32>) -> Result<(), ModelError> {
        Err(ModelError::new(Elsewhere))
    }

    fn prefill(&mut self, ids: &[TargetId]) -> Result<(), ModelError> {
        self.text.extend_from_slice(ids);
        Ok(())
    }
}

impl Judgement {
    /// As verification here would have said it; `proposed` are the probabilities of the proposals.
    pub(crate) fn verdict(&self, proposed: impl Iterator<Item = f64>) -> Verdict {
        let scores = self.scores.iter().zip(proposed);
        Verdict {
            accepted: self.accepted as usize,
            last: self.last,
            origin: self.origin,
            scores: scores
                .map(|(p, q)| spec_decode::Score::new(f64::from(*p), q))
                .collect(),
        }
    }
}
