//! The local record of a remote target: the text, and how much of it the server's cache holds.

use spec_decode::{
    Acceptance, LanguageModel, ModelError, SessionConfig, SparseDraft, StreamName, Verdict,
};
use vocab_align::TargetId;

use super::wire::{Round, RoundVerdict, digest};

/// The text of a session with a remote target.
pub(crate) struct RemoteTarget {
    text: Vec<TargetId>,
    /// Number of tokens of the text that the server is known to hold.
    held: usize,
    session: u64,
    vocab: usize,
    context: usize,
}

impl RemoteTarget {
    /// A session with this number, which must not be guessable.
    pub(crate) fn new(session: u64, vocab: usize, context: usize) -> Self {
        Self {
            text: Vec::new(),
            held: 0,
            session,
            vocab,
            context,
        }
    }

    /// The same round with the whole text, for a server that does not hold it any more.
    pub(crate) fn with_whole_text(&mut self, round: Round) -> Round {
        self.held = 0;
        let last = round.append.last().copied();
        Round {
            keep: 0,
            digest: digest(&[]),
            append: self.text.iter().copied().chain(last).collect(),
            ..round
        }
    }

    /// Continues as another session, since the state of this one on the server is unknown.
    pub(crate) fn renew(&mut self, session: u64) {
        (self.session, self.held) = (session, 0);
    }

    /// The message for a round: `last` is the last token of the text, `draft` comes after it.
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

    /// Records that the server has read `input`.
    pub(crate) fn read(&mut self, input: &[TargetId]) {
        self.text.extend_from_slice(input);
        self.held = self.text.len();
    }
}

impl LanguageModel for RemoteTarget {
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

    fn forward(&mut self, _: &[u32], _: &mut Vec<f32>) -> Result<(), ModelError> {
        Err(ModelError::new("the target is elsewhere"))
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.text.extend(ids.iter().copied().map(TargetId));
        Ok(())
    }
}

impl RoundVerdict {
    /// The verdict as local verification returns it; `proposed` are the probabilities of the
    /// proposals.
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
