//! What a verified response teaches: the target's law where vocabularies meet, its likelihoods
//! everywhere.

use std::ops::Range;
use std::sync::Arc;

use distill_loss::log_sum_exp;
use half::f16;
use half::slice::HalfFloatSliceExt;
use spec_decode::{Groups, Lexicon, Pair, TeacherSink};
use vocab_align::{AlignedSpan, Alignment, DraftId, TargetId, TokenId, Vocabulary, align_offsets};

use experiment::Terms;
use streams::StreamRng;

/// Log-probabilities below this are recorded as this: no sampler tells them apart, and losses stay
/// finite on tokens a target rules out.
const FLOOR: f32 = -100.0;

/// The target's law at one position, on the shared tokens only.
///
/// Log-probabilities in f16: relative precision 2^-11, that is at most 0.01 nats at -20, far below
/// the noise of a minibatch, at a quarter of the memory of f64 rows over the whole vocabulary. Where
/// most tokens have the least of all probabilities, as in a law that was recorded by its top tokens,
/// only the others are held.
#[derive(Clone, Debug, PartialEq)]
pub struct TeacherRow(Held);

#[derive(Clone, Debug, PartialEq)]
enum Held {
    All(Vec<f16>),
    /// `columns` have `values`, all others of `len` have `least`.
    Few {
        len: usize,
        least: f16,
        columns: Vec<u32>,
        values: Vec<f16>,
    },
}

impl TeacherRow {
    /// Stores log-probabilities in the order of [`Alignment::pairs`].
    pub fn new(log_probs: impl Iterator<Item = f32>) -> Self {
        let bounded = log_probs.map(|x| if x < FLOOR { FLOOR } else { x });
        let all: Vec<f16> = bounded.map(f16::from_f32).collect();
        let Some(least) = all.iter().copied().reduce(f16::min) else {
            return Self(Held::All(all));
        };
        let others = || (0..).zip(&all).filter(|(_, x)| **x != least);
        let few = others().count();
        if few * size_of::<(u32, f16)>() >= all.len() * size_of::<f16>() {
            return Self(Held::All(all));
        }
        let mut columns = Vec::with_capacity(few);
        let mut values = Vec::with_capacity(few);
        for (column, value) in others() {
            columns.push(column);
            values.push(*value);
        }
        Self(Held::Few {
            len: all.len(),
            least,
            columns,
            values,
        })
    }

    /// Number of shared tokens.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::All(all) => all.len(),
            Held::Few { len, .. } => *len,
        }
    }

    /// Whether the vocabularies share nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the numbers take.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Held::All(all) => size_of_val(all.as_slice()),
            Held::Few {
                columns, values, ..
            } => size_of_val(columns.as_slice()) + size_of_val(values.as_slice()),
        }
    }

    /// Writes the log-probabilities over `out`.
    pub fn read(&self, out: &mut Vec<f32>) {
        out.resize(self.len(), 0.0);
        match &self.0 {
            Held::All(all) => all.convert_to_f32_slice(out),
            Held::Few {
                least,
                columns,
                values,
                ..
            } => {
                out.fill(least.to_f32());
                for (column, value) in columns.iter().zip(values) {
                    if let Some(out) = out.get_mut(*column as usize) {
                        *out = value.to_f32();
                    }
                }
            }
        }
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

/// What a law is recorded over.
enum LawColumns {
    /// Target tokens that have a draft token of their own.
    Shared(Vec<TargetId>),
    /// Groups of target tokens: by target id, the column its group is summed in, or [`NO_COLUMN`].
    Groups(Vec<u32>),
}

/// Target tokens outside all groups.
const NO_COLUMN: u32 = u32::MAX;

/// Records the target's law at every emitted token while it is there anyway (no second forward).
pub struct Recorder {
    /// Draft ids of the columns, ascending.
    columns: Arc<[u32]>,
    of: LawColumns,
    laws: bool,
    taught: Vec<Taught>,
}

impl Recorder {
    /// Records what `terms` read, laws at the target tokens of `alignment.pairs()`.
    pub fn new(alignment: &Alignment, terms: Terms) -> Self {
        let pairs = alignment.pairs();
        Self {
            columns: pairs.iter().map(|(draft, _)| draft.get()).collect(),
            of: LawColumns::Shared(pairs.iter().map(|(_, target)| *target).collect()),
            laws: terms.reads_direct_law() || terms.reads_ngram_law(),
            taught: Vec::new(),
        }
    }

    /// As [`new`](Self::new), but laws over all draft tokens that drafting by `lexicon` may begin
    /// with: at `d` the mass of its group, `P(d) = sum p(t)` over the tokens that are spelled from
    /// `d` on. `target_vocab` is the number of rows of the target's head.
    pub fn over_groups(lexicon: &Lexicon<'_>, target_vocab: usize, terms: Terms) -> Self {
        let columns: Arc<[u32]> = lexicon.root_children().into();
        let groups = Groups::new(lexicon, target_vocab);
        let column = |raw: u32| {
            let group = groups.of(TargetId(raw))?;
            let column = columns.binary_search(&group.get()).ok()?;
            u32::try_from(column).ok()
        };
        let members = (0..target_vocab as u32).map(|raw| column(raw).unwrap_or(NO_COLUMN));
        Self {
            of: LawColumns::Groups(members.collect()),
            columns,
            laws: terms.reads_direct_law() || terms.reads_ngram_law(),
            taught: Vec::new(),
        }
    }

    /// One entry an emitted token, in order.
    pub fn taught(&self) -> &[Taught] {
        &self.taught
    }

    /// The record from token `from` on, with nothing in the place of the tokens before it.
    pub(super) fn since(&self, from: usize) -> (Arc<[u32]>, Vec<Taught>) {
        let nothing = Taught {
            log_prob: 0.0,
            law: None,
        };
        let from = from.min(self.taught.len());
        let mut taught = vec![nothing; from];
        taught.extend_from_slice(&self.taught[from..]);
        (Arc::clone(&self.columns), taught)
    }

    fn law(&self, logits: &[f32], shift: f32) -> TeacherRow {
        match &self.of {
            LawColumns::Shared(targets) => {
                TeacherRow::new(targets.iter().map(|target| logits[target.index()] - shift))
            }
            LawColumns::Groups(members) => {
                let mut masses = vec![0.0_f64; self.columns.len()];
                for (logit, column) in logits.iter().zip(members) {
                    if let Some(mass) = masses.get_mut(*column as usize) {
                        *mass += f64::from(logit - shift).exp();
                    }
                }
                TeacherRow::new(masses.into_iter().map(|mass| mass.ln() as f32))
            }
        }
    }
}

impl TeacherSink for Recorder {
    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        let shift = log_sum_exp(logits) as f32;
        let law = self.laws.then(|| self.law(logits, shift));
        self.taught.truncate(index);
        self.taught.push(Taught {
            log_prob: (logits[token.index()] - shift).min(0.0),
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
    /// Where several draft tokens spell one target token: the draft token that is it by itself, if
    /// there is one.
    pub own: Option<u32>,
    /// Whether one draft token is a special one of the target, the end of a turn say. Such a token is
    /// taught by its likelihood whatever the direct term is, and has no law.
    pub special: bool,
}

/// One response as training material.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Prompt and response in draft ids.
    pub ids: Vec<u32>,
    /// Draft ids of the columns of every law, ascending: the shared tokens, or all that drafting
    /// may begin with.
    pub shared: Arc<[u32]>,
    /// The response, in order. Chunks of one and one token are the positions of L_DM, chunks of
    /// several draft tokens and one target token those of L_N-gram.
    pub chunks: Vec<Chunk>,
    /// Special tokens of the response, and whether a chunk of one target token teaches each.
    pub specials: Vec<(TargetId, bool)>,
    /// Added to the logits of each column, and to the target's, before they are compared: 0 for a column that
    /// stands for itself, the logarithm of the number it stands for where columns were
    /// [sampled](Self::narrow). Empty for all 0.
    pub stands_for: Vec<f32>,
    /// What entered the first of the drafter's last blocks, `[read(), hidden_size]`, where these learn
    /// alone; else empty.
    pub states: Vec<f32>,
    /// True of a response that was drawn; else each token is the target's best.
    pub sampled: bool,
    /// True where the response goes on: the rest of it is another example.
    pub goes_on: bool,
}

impl Example {
    /// Aligns the two spellings of a response. The context comes with how many bytes of the
    /// response each of its tokens behind the prompt stands for; where the drafter reads another
    /// text than the target wrote (normalised, or unknown), nothing is taught. With `ends`, a
    /// special token and its counterpart are a chunk like any other, though neither has bytes to be
    /// aligned by.
    pub fn new(
        (context, draft_lengths): (&[DraftId], &[usize]),
        prompt_len: usize,
        response: &[TargetId],
        recorder: Recorder,
        pair: &Pair,
        terms: Terms,
        ends: bool,
    ) -> Self {
        let Recorder {
            columns, taught, ..
        } = recorder;
        Self::of(
            (context, draft_lengths),
            prompt_len,
            response,
            (columns, taught),
            pair,
            terms,
            ends,
        )
    }

    /// As [`new`](Self::new), of what was recorded over `columns`, an entry a token.
    pub(super) fn of(
        (context, draft_lengths): (&[DraftId], &[usize]),
        prompt_len: usize,
        response: &[TargetId],
        (columns, taught): (Arc<[u32]>, Vec<Taught>),
        pair: &Pair,
        terms: Terms,
        ends: bool,
    ) -> Self {
        let spelling = &context[prompt_len..];
        let target_lengths = pair.alignment.spelled_lengths(&pair.target, response);
        let mut spans = align_offsets(draft_lengths, &target_lengths);
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
                log_prob: known.iter().map(|t| f64::from(t.log_prob)).sum(),
                law: known.pop().and_then(|t| t.law).filter(|_| wanted),
                own: own.map(TokenId::get),
                special,
            });
        }
        let special = |(token, learnt): (&TargetId, bool)| {
            let special = pair.target.role(*token).is_some();
            special.then_some((*token, learnt))
        };
        Self {
            ids: context.iter().map(|id| id.get()).collect(),
            shared: columns,
            chunks,
            specials: response.iter().zip(learnt).filter_map(special).collect(),
            stands_for: Vec::new(),
            states: Vec::new(),
            sampled: false,
            goes_on: false,
        }
    }

    /// Without what an earlier part of the response has taught: chunks that begin before draft token
    /// `from` of the whole context.
    pub(super) fn behind(mut self, from: usize) -> Self {
        self.chunks.retain(|chunk| chunk.draft.start >= from);
        self
    }
}

impl Example {
    /// Compares the two laws on fewer columns from now on: those to which the target gives at least the
    /// probability `likely` at some position, those of the tokens it emitted, and `sampled` of the
    /// others, all alike likely to be drawn, each of which stands for as many as there are others to a
    /// drawn one. So the sum over all columns of either law, from which it is normalised, is estimated
    /// without bias.
    pub fn narrow(&mut self, likely: f64, sampled: usize, rng: &mut StreamRng) {
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
        let mut others: Vec<usize> = (0..wanted.len()).filter(|i| !wanted[*i]).collect();
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
        columns.extend((0..wanted.len()).filter(|i| wanted[*i]).map(|i| (i, 0.0)));
        columns.sort_unstable_by_key(|(column, _)| *column);
        for chunk in &mut self.chunks {
            if let Some(taught) = chunk.law.as_mut().filter(|law| law.len() == wanted.len()) {
                taught.read(&mut law);
                *taught = TeacherRow::new(columns.iter().map(|(column, _)| law[*column]));
            }
        }
        self.shared = columns.iter().map(|(i, _)| self.shared[*i]).collect();
        self.stands_for = columns.into_iter().map(|(_, each)| each).collect();
    }

    /// The tokens that are read to learn from it: up to the one before the last that a loss looks at.
    pub fn read(&self) -> &[u32] {
        let ends = self.chunks.iter().map(|chunk| chunk.draft.end - 1);
        &self.ids[..ends.max().unwrap_or(0)]
    }

    /// Bytes that it takes, apart from `shared`, which examples of a pair may have in common.
    pub fn bytes(&self) -> usize {
        let law = |chunk: &Chunk| chunk.law.as_ref().map_or(0, TeacherRow::bytes);
        let laws: usize = self.chunks.iter().map(law).sum();
        let states = size_of_val(&self.states[..]);
        size_of::<Self>()
            + size_of_val(&self.ids[..])
            + size_of_val(&self.chunks[..])
            + laws
            + states
    }

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

/// Joins a special draft token and the special target token it is mapped to where both stand at
/// the same offset, in order. [`align_offsets`] knows lengths only, and they have none.
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
