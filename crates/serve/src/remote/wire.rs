//! Messages between a drafter here and a remote target: one request and one reply per round, in
//! postcard (integers take as many bytes as they need).

use half::f16;
use serde::{Deserialize, Serialize};
use spec_decode::{Origin, SamplingOptions, SparseDraft};
use trace::Law;
use vocab_align::TargetId;

/// Version of these messages.
pub(crate) const VERSION: u32 = 1;

/// Path that rounds are sent to.
pub(crate) const ROUNDS: &str = "/omnidraft/rounds";
/// Path of the descriptions of targets and of their files.
pub(crate) const TARGETS: &str = "/omnidraft/targets";

/// Rounds of several sequences.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rounds {
    pub(crate) version: u32,
    pub(crate) target: String,
    pub(crate) rounds: Vec<Round>,
}

/// A round of one sequence. Equal requests have equal replies, however often they are sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Number of the session whose KV cache is used; it cannot be guessed.
    pub(crate) session: u64,
    /// Number of tokens of that cache that stay.
    pub(crate) keep: u32,
    /// [`digest`] of these tokens.
    pub(crate) digest: u64,
    /// The text after them, at least one token.
    pub(crate) append: Vec<TargetId>,
    /// The draft after that text.
    pub(crate) draft: SparseDraft,
    pub(crate) sampling: SamplingOptions,
    /// True for block verification, false for tokenwise.
    pub(crate) block: bool,
    /// Name of the random stream of verification: seed, round, sample.
    pub(crate) coins: (u64, u64, u32),
    /// Number of most probable tokens of the target's distribution to be returned for each emitted
    /// token; 0 for none.
    pub(crate) top: u32,
}

/// The answers to [`Rounds`], in order.
pub(crate) type Answers = Vec<Result<RoundVerdict, Refusal>>;

/// Result of the verification of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RoundVerdict {
    pub(crate) accepted: u32,
    pub(crate) last: TargetId,
    pub(crate) origin: Origin,
    /// Target probabilities p of the verified proposals.
    pub(crate) scores: Vec<f32>,
    /// The target's distribution at the emitted tokens.
    pub(crate) rows: Rows,
}

/// Reason for which a round was not verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Refusal {
    /// The server does not hold the text any more: all of it has to be sent.
    #[error("the target's server does not hold the text any more")]
    Unknown,
    /// Other rounds of the step took all sessions. This one, which has the whole text, can be sent
    /// again.
    #[error("the target's server has no room for another session")]
    Busy,
    /// Text and draft are longer than the target's context.
    #[error("the text is longer than the target's context")]
    TooLong,
    /// The draft is not valid.
    #[error("the target's server refuses the draft: {0}")]
    Impossible(String),
    /// The target failed.
    #[error("the target's server failed: {0}")]
    Failed(String),
}

/// The target's distribution at some positions, each by its most probable tokens.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Rows {
    top: u32,
    ids: Vec<u32>,
    /// Negated log-probabilities in f16.
    log_probs: Vec<u16>,
    /// Probability mass of all other tokens.
    rest: Vec<f32>,
}

impl Rows {
    /// Rows of logits, `[V]` each, cut to their `top` most probable tokens.
    pub(crate) fn new<'a>(
        vocab: usize,
        top: usize,
        logits: impl Iterator<Item = &'a [f32]>,
    ) -> Self {
        let mut law = Law::Top {
            vocab,
            top,
            ids: Vec::new(),
            log_probs: Vec::new(),
            rest: Vec::new(),
        };
        logits.for_each(|row| law.push_logits(row));
        let Law::Top {
            ids,
            log_probs,
            rest,
            ..
        } = law
        else {
            return Self::default();
        };
        Self {
            top: top as u32,
            ids,
            log_probs: log_probs.iter().map(|x| (-*x).to_bits()).collect(),
            rest,
        }
    }

    /// The logits `[count, V]` as the trace format restores them; `None` if the message is not
    /// valid.
    pub(crate) fn logits(&self, vocab: usize, count: usize) -> Option<Vec<f32>> {
        let top = self.top as usize;
        let values: Vec<f16> = self.log_probs.iter().map(|x| -f16::from_bits(*x)).collect();
        let whole = (1..=vocab).contains(&top)
            && self.ids.len() == count * top
            && values.len() == count * top
            && self.rest.len() == count
            && self.ids.iter().all(|id| (*id as usize) < vocab)
            && values.iter().all(|x| !x.is_nan() && *x <= f16::ZERO)
            && self.rest.iter().all(|x| (0.0..=1.0).contains(x));
        if !whole {
            return None;
        }
        let law = Law::Top {
            vocab,
            top,
            ids: self.ids.clone(),
            log_probs: values,
            rest: self.rest.clone(),
        };
        let mut logits = vec![0.0; count * vocab];
        for (position, row) in logits.chunks_exact_mut(vocab).enumerate() {
            law.write_row(position, row);
        }
        Some(logits)
    }
}

/// A hash of a text; two different texts share it with negligible probability.
pub(crate) fn digest(text: &[TargetId]) -> u64 {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for token in text {
        hash.update(token.0.to_le_bytes());
    }
    let bytes: [u8; 32] = hash.finalize().into();
    let first = bytes.first_chunk();
    first.map_or(0, |first| u64::from_be_bytes(*first))
}

/// A target's description of itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TargetInfo {
    pub(crate) version: u32,
    pub(crate) name: String,
    pub(crate) vocab_size: usize,
    /// Maximum number of tokens of text and draft.
    pub(crate) context: usize,
    /// The files of [`TEXT_FILES`](models::TEXT_FILES) that exist.
    pub(crate) files: Vec<String>,
    /// Its stop tokens; `None` from older servers.
    #[serde(default)]
    pub(crate) stop: Option<Vec<TargetId>>,
}
