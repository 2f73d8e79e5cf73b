//! What a verified response teaches: the target's law where vocabularies meet, its likelihoods
//! everywhere.

use std::ops::Range;
use std::sync::Arc;

use distill_loss::log_sum_exp;
use half::f16;
use half::slice::HalfFloatSliceExt;
use spec_decode::TeacherSink;
use vocab_align::{Alignment, DraftId, TargetId, TokenId, align_offsets};

use experiment::Terms;

/// Log-probabilities below this are recorded as this: no sampler tells them apart, and losses stay
/// finite on tokens a target rules out.
const FLOOR: f32 = -100.0;

/// The target's law at one position, on the shared tokens only.
///
/// Log-probabilities in f16: relative precision 2^-11, that is at most 0.01 nats at -20, far below
/// the noise of a minibatch, at a quarter of the memory of f64 rows over the whole vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct TeacherRow(Vec<f16>);

impl TeacherRow {
    /// Stores log-probabilities in the order of [`Alignment::pairs`].
    pub fn new(log_probs: impl Iterator<Item = f32>) -> Self {
        let bounded = log_probs.map(|x| if x < FLOOR { FLOOR } else { x });
        Self(bounded.map(f16::from_f32).collect())
    }

    /// Number of shared tokens.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the vocabularies share nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the log-probabilities over `out`.
    pub fn read(&self, out: &mut Vec<f32>) {
        out.resize(self.0.len(), 0.0);
        self.0.convert_to_f32_slice(out);
    }
}

/// What the target knew when it emitted a token.
#[derive(Clone, Debug, PartialEq)]
pub struct Taught {
    /// Log-probability of the token at temperature 1.
    pub log_prob: f32,
    /// The law, if a loss reads it.
    pub law: Option<TeacherRow>,
}

/// Records the target's law at every emitted token while it is there anyway (no second forward).
pub struct Recorder<'a> {
    shared: &'a [(DraftId, TargetId)],
    laws: bool,
    taught: Vec<Taught>,
}

impl<'a> Recorder<'a> {
    /// Records what `terms` read, laws at the target tokens of `alignment.pairs()`.
    pub fn new(alignment: &'a Alignment, terms: Terms) -> Self {
        Self {
            shared: alignment.pairs(),
            laws: terms.reads_direct_law() || terms.reads_ngram_law(),
            taught: Vec::new(),
        }
    }

    /// One entry an emitted token, in order.
    pub fn into_taught(self) -> Vec<Taught> {
        self.taught
    }
}

impl TeacherSink for Recorder<'_> {
    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        let shift = log_sum_exp(logits) as f32;
        let at = |target: TargetId| logits[target.index()] - shift;
        let law = self
            .laws
            .then(|| TeacherRow::new(self.shared.iter().map(|(_, target)| at(*target))));
        self.taught.truncate(index);
        self.taught.push(Taught {
            log_prob: at(token).min(0.0),
            law,
        });
    }
}

/// A stretch of the response that draft and target tokens both end with.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Indices of its draft tokens in [`Example::ids`]; at least one token, never the first of all.
    pub draft: Range<usize>,
    /// Number of its target tokens, at least one.
    pub targets: usize,
    /// The target's log-likelihood of the stretch.
    pub log_prob: f64,
    /// The target's law at its first target token, if there is only one and a loss reads it.
    pub law: Option<TeacherRow>,
}

/// One response as training material.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Prompt and response in draft ids.
    pub ids: Vec<u32>,
    /// Draft ids of the shared tokens, ascending: the columns of every law.
    pub shared: Arc<[u32]>,
    /// The response, in order. Chunks of one and one token are the positions of L_DM, chunks of
    /// several draft tokens and one target token those of L_N-gram.
    pub chunks: Vec<Chunk>,
}

impl Example {
    /// Aligns the two spellings of a response. The context comes with how many bytes of the
    /// response each of its tokens behind the prompt stands for; where the drafter reads another
    /// text than the target wrote (normalised, or unknown), nothing is taught.
    pub fn new(
        (context, draft_lengths): (&[DraftId], &[usize]),
        prompt_len: usize,
        response: &[TargetId],
        taught: Vec<Taught>,
        pair: &spec_decode::Pair,
        terms: Terms,
    ) -> Self {
        let target_lengths = pair.alignment.spelled_lengths(&pair.target, response);
        let mut taught: Vec<Option<Taught>> = taught.into_iter().map(Some).collect();
        let mut chunks = Vec::new();
        for span in align_offsets(draft_lengths, &target_lengths) {
            let draft = prompt_len + span.draft.start..prompt_len + span.draft.end;
            if draft.is_empty() || span.target.is_empty() || draft.start == 0 {
                continue;
            }
            let drafted = (&pair.draft, &context[draft.clone()]);
            let emitted = (&pair.target, &response[span.target.clone()]);
            if !pair.alignment.same_text(drafted, emitted) {
                continue;
            }
            let Some(known) = taught.get_mut(span.target.clone()) else {
                continue;
            };
            let mut known: Vec<Taught> = known.iter_mut().filter_map(Option::take).collect();
            let wanted = known.len() == 1
                && if draft.len() == 1 {
                    terms.reads_direct_law()
                } else {
                    terms.reads_ngram_law()
                };
            chunks.push(Chunk {
                draft,
                targets: known.len(),
                log_prob: known.iter().map(|t| f64::from(t.log_prob)).sum(),
                law: known.pop().and_then(|t| t.law).filter(|_| wanted),
            });
        }
        Self {
            ids: context.iter().map(|id| id.get()).collect(),
            shared: pair
                .alignment
                .pairs()
                .iter()
                .map(|(d, _)| d.get())
                .collect(),
            chunks,
        }
    }
}

impl Example {
    /// What of it a drafter with this many positions can read: the end, behind the first token where
    /// that is a special one, as such a drafter drafts from the end of a text too long for it. What
    /// is cut off is not learnt.
    pub fn within(mut self, positions: usize, vocabulary: &Vocabulary<DraftId>) -> Self {
        let first = self.ids.first().map(|id| DraftId::new(*id));
        let special = first.is_some_and(|id| vocabulary.bytes(id).is_none());
        let head = usize::from(special).min(positions.saturating_sub(1));
        let Some(surplus) = self.ids.len().checked_sub(positions).filter(|n| *n > 0) else {
            return self;
        };
        self.ids.drain(head..head + surplus);
        // A chunk is learnt from the token before it, which has to be the one it had.
        self.chunks
            .retain(|c| c.draft.start > head.max(1) - 1 + surplus);
        for chunk in &mut self.chunks {
            chunk.draft = chunk.draft.start - surplus..chunk.draft.end - surplus;
        }
        self
    }
}
