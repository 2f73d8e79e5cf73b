//! One verified response as training material: its text aligned in both vocabularies, and what the target knew.

use std::ops::Range;
use std::sync::Arc;

use spec_decode::{LanguageModel, Pair, Session};
use streams::StreamRng;
use vocab_align::{AlignedSpan, Alignment, DraftId, TargetId, TokenId, Vocabulary, align_offsets};

use crate::teacher::{Record, Taught, TeacherRow};
use crate::terms::Terms;

/// A stretch of the response at whose end both a draft token and a target token end.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Indices of its draft tokens in [`Example::ids`]; at least one token, never the first of all.
    pub draft: Range<usize>,
    /// Number of its target tokens, at least one.
    pub targets: usize,
    /// The target's log-likelihood of the stretch.
    pub log_prob: f64,
    /// The target's distribution at its target token, if there is only one and a loss reads it.
    pub law: Option<TeacherRow>,
    /// In a chunk of several draft tokens and one target token: the draft token of the same text, if
    /// there is one.
    pub own: Option<u32>,
    /// True if it is one draft token and its target token is special, such as the end of a turn.
    /// Such a token is learnt by its likelihood under every direct term, and has no distribution.
    pub special: bool,
}

/// A special token of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    /// The token.
    pub token: TargetId,
    /// True if a chunk of one target token teaches it.
    pub learnt: bool,
}

/// One response as training material.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Example {
    /// Prompt and response in draft ids.
    pub ids: Vec<u32>,
    /// Draft ids of the columns of every distribution, ascending: the shared tokens, or a
    /// [sample](Self::narrow) of them.
    pub shared: Arc<[u32]>,
    /// The response, in order. Chunks of one and one token are the positions of L_DM, chunks of
    /// several draft tokens and one target token those of L_N-gram.
    pub chunks: Vec<Chunk>,
    /// Special tokens of the response, in order.
    pub specials: Vec<Special>,
    /// Term added to the logit and to the target's log-probability of each column before these are
    /// compared: the logarithm of the number of columns that it stands for. It is 0 unless columns
    /// were [sampled](Self::narrow). Empty if all are 0.
    pub stands_for: Vec<f32>,
    /// Columns in which n-grams are learnt, if they were [sampled](Self::narrow); else all of the
    /// drafter's vocabulary.
    pub spelled: Option<Columns>,
    /// Input of the first of the drafter's last blocks, `[read(), hidden_size]`, where these learn
    /// alone; else empty.
    pub states: Vec<f32>,
    /// True if the response was drawn; otherwise each token is the most probable one of the target.
    pub sampled: bool,
    /// True if the response continues in another example.
    pub goes_on: bool,
}

/// A sample of the drafter's vocabulary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// Draft ids, ascending.
    pub ids: Vec<u32>,
    /// Logarithm of the number of columns that each stands for.
    pub stands_for: Vec<f32>,
}

impl Columns {
    /// All columns that are `kept`, and `sampled` of the others, drawn uniformly.
    fn sample(kept: &[bool], sampled: usize, rng: &mut StreamRng) -> Self {
        let mut others: Vec<usize> = (0..kept.len()).filter(|i| !kept[*i]).collect();
        let all = others.len();
        let drawn = sampled.min(all);
        for i in 0..drawn {
            others.swap(i, i + rng.below(all - i));
        }
        let each = if drawn > 0 {
            (all as f32 / drawn as f32).ln()
        } else {
            0.0
        };
        let mut columns: Vec<(usize, f32)> = others[..drawn].iter().map(|i| (*i, each)).collect();
        columns.extend((0..kept.len()).filter(|i| kept[*i]).map(|i| (i, 0.0)));
        columns.sort_unstable_by_key(|(column, _)| *column);
        let columns = columns.into_iter();
        let (ids, stands_for) = columns.map(|(i, each)| (i as u32, each)).unzip();
        Self { ids, stands_for }
    }
}

/// A response as both models read it.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// Prompt and response in draft ids.
    pub context: &'a [DraftId],
    /// Bytes of the response that each draft token after the prompt stands for.
    pub lengths: &'a [usize],
    /// Draft tokens of the prompt.
    pub prompt_len: usize,
    /// The response in target ids.
    pub tokens: &'a [TargetId],
}

impl<'a> Response<'a> {
    /// The response of a session so far, after a prompt of `prompt_len` draft tokens.
    pub fn of<D, T>(session: &'a Session<D, T>, prompt_len: usize) -> Self
    where
        D: LanguageModel,
        T: LanguageModel,
    {
        Self {
            context: session.draft_context(),
            lengths: session.draft_lengths(),
            prompt_len,
            tokens: session.response(),
        }
    }
}

impl Example {
    /// Aligns the draft tokens of a response with its target tokens. `record` has an entry for each
    /// target token, and must have been made for the same `terms`.
    ///
    /// Text that the drafter reads otherwise (normalised or unknown) is not taught, nor is a chunk
    /// with a token whose log-probability is not known. With `ends`, a special token and its
    /// counterpart are one chunk, although they have no bytes to align by.
    ///
    /// # Panics
    /// If the prompt is longer than the context.
    pub fn new(
        response: Response<'_>,
        record: impl Into<Record>,
        pair: &Pair,
        terms: Terms,
        ends: bool,
    ) -> Self {
        let Response {
            context,
            lengths,
            prompt_len,
            tokens: response,
        } = response;
        let Record { columns, taught } = record.into();
        let spelling = &context[prompt_len..];
        let target_lengths = pair.alignment.spelled_lengths(&pair.target, response);
        let mut spans = align_offsets(lengths, &target_lengths);
        if ends {
            spans = pair_specials(spans, spelling, response, &pair.alignment);
        }
        let mut taught: Vec<Option<Taught>> = taught.into_iter().map(Some).collect();
        let (mut chunks, mut learnt) = (Vec::new(), vec![false; response.len()]);
        for span in spans {
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
            let log_prob: f64 = known.iter().map(|t| f64::from(t.log_prob)).sum();
            if log_prob == f64::NEG_INFINITY {
                continue;
            }
            let role = pair.target.role(response[span.target.start]);
            let special = draft.len() == 1 && role.is_some();
            let wanted = known.len() == 1
                && !special
                && if draft.len() == 1 {
                    terms.reads_direct_law()
                } else {
                    terms.reads_ngram_law()
                };
            let own = match &response[span.target.clone()] {
                [token] if draft.len() > 1 => pair.alignment.draft_of(*token),
                _ => None,
            };
            learnt[span.target.start] = known.len() == 1;
            chunks.push(Chunk {
                draft,
                targets: known.len(),
                log_prob,
                law: known.pop().and_then(|t| t.law).filter(|_| wanted),
                own: own.map(TokenId::get),
                special,
            });
        }
        let special = |(token, learnt): (&TargetId, bool)| {
            let special = pair.target.role(*token).is_some();
            let token = *token;
            special.then_some(Special { token, learnt })
        };
        Self {
            ids: context.iter().map(|id| id.get()).collect(),
            shared: columns,
            chunks,
            specials: response.iter().zip(learnt).filter_map(special).collect(),
            ..Self::default()
        }
    }

    /// The example without the chunks that begin before draft token `from` of the whole context: an earlier part of
    /// the response has taught them.
    pub fn after(mut self, from: usize) -> Self {
        self.chunks.retain(|chunk| chunk.draft.start >= from);
        self
    }

    /// Restricts the columns on which the two distributions are compared. Kept are those to which the
    /// target gives at least the probability `likely` at some position, those of the emitted tokens, and
    /// `sampled` of the others, drawn uniformly. A drawn column stands for an equal share of the others,
    /// so that the normalising sums of both distributions are estimated without bias.
    ///
    /// N-grams are then learnt in these likely columns, their own, and as many others of the drafter's
    /// `vocabulary`.
    pub fn narrow(&mut self, likely: f64, sampled: usize, vocabulary: usize, rng: &mut StreamRng) {
        let mut wanted = vec![false; self.shared.len()];
        let (mut law, least) = (Vec::new(), likely.ln() as f32);
        for chunk in &self.chunks {
            let label = self.ids.get(chunk.draft.start);
            if let Some(Ok(label)) = label.map(|id| self.shared.binary_search(id)) {
                wanted[label] = true;
            }
            if let Some(taught) = chunk.law.as_ref().filter(|law| law.len() == wanted.len()) {
                taught.read(&mut law);
                for (wanted, log_prob) in wanted.iter_mut().zip(&law) {
                    *wanted |= *log_prob >= least;
                }
            }
        }
        let columns = Columns::sample(&wanted, sampled, rng);
        for chunk in &mut self.chunks {
            if let Some(taught) = chunk.law.as_mut().filter(|law| law.len() == wanted.len()) {
                taught.read(&mut law);
                *taught = TeacherRow::new(columns.ids.iter().map(|column| law[*column as usize]));
            }
        }
        let ngrams = self.chunks.iter().filter(|chunk| chunk.draft.len() > 1);
        let spelled = ngrams.flat_map(|chunk| self.ids.get(chunk.draft.clone()).unwrap_or(&[]));
        let mut spelled = spelled.peekable();
        self.spelled = spelled.peek().is_some().then(|| {
            let mut kept = vec![false; vocabulary];
            let likely = self.shared.iter().zip(&wanted);
            let likely = likely.filter(|(_, wanted)| **wanted).map(|(id, _)| id);
            for id in spelled.chain(likely) {
                if let Some(kept) = kept.get_mut(*id as usize) {
                    *kept = true;
                }
            }
            Columns::sample(&kept, sampled, rng)
        });
        let Columns { ids, stands_for } = columns;
        self.shared = ids.iter().map(|i| self.shared[*i as usize]).collect();
        self.stands_for = stands_for;
    }

    /// The tokens that are read to learn from it: up to the one before the last that a loss looks at.
    pub fn read(&self) -> &[u32] {
        let ends = self.chunks.iter().map(|chunk| chunk.draft.end - 1);
        &self.ids[..ends.max().unwrap_or(0)]
    }

    /// Bytes that it takes. `shared` counts as its own: only the parts of one response have it in common, until each
    /// is [narrowed](Self::narrow).
    pub fn bytes(&self) -> usize {
        let law = |chunk: &Chunk| chunk.law.as_ref().map_or(0, TeacherRow::bytes);
        let laws: usize = self.chunks.iter().map(law).sum();
        let spelled = self.spelled.as_ref();
        let spelled = spelled.map_or(0, |own| {
            size_of_val(&own.ids[..]) + size_of_val(&own.stands_for[..])
        });
        size_of::<Self>()
            + size_of_val(&self.ids[..])
            + size_of_val(&self.shared[..])
            + size_of_val(&self.chunks[..])
            + laws
            + size_of_val(&self.specials[..])
            + size_of_val(&self.stands_for[..])
            + spelled
            + size_of_val(&self.states[..])
    }

    /// The example cut to `positions` tokens, as the drafter reads a text that is too long for it:
    /// its end, after the first token if that is special. The part that is cut off is not learnt.
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

/// Joins a special draft token with the special target token that it is mapped to, if both are at
/// the same offset. [`align_offsets`] cannot do so, because special tokens have length 0.
fn pair_specials(
    spans: Vec<AlignedSpan>,
    draft: &[DraftId],
    target: &[TargetId],
    alignment: &Alignment,
) -> Vec<AlignedSpan> {
    let mut paired: Vec<AlignedSpan> = Vec::with_capacity(spans.len());
    // The first span of this offset that still waits for a counterpart.
    let mut waiting = 0;
    for span in spans {
        let counterpart = |other: &AlignedSpan| {
            let (d, t) = (
                draft.get(other.draft.start)?,
                target.get(span.target.start)?,
            );
            let mapped = alignment.direct(*d) == Some(*t) && alignment.draft_of(*t) == Some(*d);
            (mapped && other.target.is_empty()).then_some(())
        };
        if !span.draft.is_empty() {
            if !span.target.is_empty() {
                waiting = paired.len() + 1;
            }
            paired.push(span);
            continue;
        }
        let found = (waiting..paired.len()).find(|i| counterpart(&paired[*i]).is_some());
        match found {
            Some(i) => {
                paired[i].target = span.target;
                waiting = i + 1;
            }
            None => paired.push(span),
        }
    }
    paired
}
