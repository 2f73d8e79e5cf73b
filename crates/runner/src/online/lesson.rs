//! What a verified response teaches: the target's law where vocabularies meet, the spelling where
//! they do not.

use half::f16;
use spec_decode::TeacherSink;
use vocab_align::{Alignment, DraftId, TargetId, TokenId, Vocabulary, align_offsets};

/// The target's law at one position, on the shared tokens only.
///
/// Log-probabilities in f16: relative precision 2^-11, that is at most 0.01 nats at -20, far below
/// the noise of a minibatch, at a quarter of the memory of f64 rows over the whole vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct TeacherRow(Vec<f16>);

impl TeacherRow {
    /// Log-probabilities in the order of [`Alignment::pairs`].
    pub fn log_probs(&self) -> impl Iterator<Item = f32> + '_ {
        self.0.iter().map(|x| x.to_f32())
    }
}

/// Records the target's law at every emitted token while it is there anyway (no second forward).
pub struct Recorder<'a> {
    shared: &'a [(DraftId, TargetId)],
    rows: Vec<TeacherRow>,
}

impl<'a> Recorder<'a> {
    /// Records the law at the target tokens of `alignment.pairs()`.
    pub fn new(alignment: &'a Alignment) -> Self {
        Self {
            shared: alignment.pairs(),
            rows: Vec::new(),
        }
    }

    /// One row an emitted token, in order.
    pub fn into_rows(self) -> Vec<TeacherRow> {
        self.rows
    }
}

impl TeacherSink for Recorder<'_> {
    fn record(&mut self, index: usize, _token: TargetId, logits: &[f32]) {
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|x| f64::from(x - highest).exp()).sum();
        let shift = highest + sum.ln() as f32;
        let row = self
            .shared
            .iter()
            .map(|(_, target)| f16::from_f32(logits[target.index()] - shift));
        self.rows.truncate(index);
        self.rows.push(TeacherRow(row.collect()));
    }
}

/// One response as training material.
#[derive(Clone, Debug, PartialEq)]
pub struct Lesson {
    /// Prompt and response in draft tokens.
    pub ids: Vec<DraftId>,
    /// Positions of `L_DM`: the index of the token *before*, and the target's law there.
    pub direct: Vec<(usize, TeacherRow)>,
    /// Positions of `L_N-gram`: indices of the tokens that spell an n-gram.
    pub ngram: Vec<usize>,
}

impl Lesson {
    /// Aligns the two spellings of a response and sorts its positions into the two terms.
    ///
    /// A direct position is a target token whose text is one draft token; an n-gram is a target
    /// token spelled by several. Chunks where the draft token spans several target tokens teach
    /// nothing.
    pub fn new(
        context: &[DraftId],
        prompt_len: usize,
        response: &[TargetId],
        rows: Vec<TeacherRow>,
        draft: &Vocabulary<DraftId>,
        target: &Vocabulary<TargetId>,
    ) -> Self {
        let spelled = &context[prompt_len..];
        let draft_lengths: Vec<usize> = spelled
            .iter()
            .map(|id| draft.bytes(*id).map_or(0, <[u8]>::len))
            .collect();
        let target_lengths: Vec<usize> = response
            .iter()
            .map(|id| target.bytes(*id).map_or(0, <[u8]>::len))
            .collect();
        let mut rows: Vec<Option<TeacherRow>> = rows.into_iter().map(Some).collect();
        let (mut direct, mut ngram) = (Vec::new(), Vec::new());
        for span in align_offsets(&draft_lengths, &target_lengths) {
            let start = prompt_len + span.draft.start;
            if span.target.len() != 1 || start == 0 {
                continue;
            }
            match span.draft.len() {
                0 => {}
                1 => direct.extend(
                    rows.get_mut(span.target.start)
                        .and_then(Option::take)
                        .map(|row| (start - 1, row)),
                ),
                n => ngram.extend(start..start + n),
            }
        }
        Self {
            ids: context.to_vec(),
            direct,
            ngram,
        }
    }
}
