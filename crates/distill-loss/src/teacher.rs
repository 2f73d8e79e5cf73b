//! The target's knowledge of the tokens it emitted: their likelihoods, and its distribution where a loss reads it.

use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use spec_decode::TeacherSink;
use vocab_align::{Alignment, TargetId, TokenId};

use crate::math::minimum;
use crate::rows::log_sum_exp;
use crate::terms::Terms;

/// Log-probabilities below this are recorded as this: no sampler tells them apart, and losses stay
/// finite on tokens a target rules out.
const FLOOR: f32 = -100.0;

/// A log-probability as it is recorded. NaN stays, so that a loss tells of it.
fn floored(log_prob: f32) -> f32 {
    if log_prob < FLOOR { FLOOR } else { log_prob }
}

/// The target's distribution at one position, on the shared tokens only.
///
/// Log-probabilities in f16: relative precision 2^-11, that is at most 0.01 nats at -20, far below
/// the noise of a minibatch, at a quarter of the memory of f64 rows over the whole vocabulary. Where
/// most tokens have the least of all probabilities, as in a distribution of which only the top tokens
/// were recorded, only the others are held.
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
        let log_probs: Vec<f32> = log_probs.map(floored).collect();
        let mut all = vec![f16::ZERO; log_probs.len()];
        all.convert_from_f32_slice(&log_probs);
        let least = f16::from_f32(minimum(&log_probs)).to_bits();
        // Bits are compared many at a time, numbers one by one.
        let few = all.iter().filter(|x| x.to_bits() != least).count();
        if few * size_of::<(u32, f16)>() >= all.len() * size_of::<f16>() {
            return Self(Held::All(all));
        }
        let mut columns = Vec::with_capacity(few);
        let mut values = Vec::with_capacity(few);
        let others = (0..).zip(&all).filter(|(_, x)| x.to_bits() != least);
        for (column, value) in others {
            columns.push(column);
            values.push(*value);
        }
        Self(Held::Few {
            len: all.len(),
            least: f16::from_bits(least),
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

    /// True if the vocabularies share nothing.
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

/// The target's knowledge of a token that it emitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Taught {
    /// Log-probability of the token at temperature 1, at least -100; minus infinity if it is not
    /// known, and then the token teaches nothing.
    pub log_prob: f32,
    /// The distribution, if a loss reads it and it is known.
    pub law: Option<TeacherRow>,
}

impl Taught {
    /// A token whose row of logits is not known.
    const UNKNOWN: Self = Self {
        log_prob: f32::NEG_INFINITY,
        law: None,
    };
}

/// All that was recorded of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Draft ids of the columns of every distribution, ascending.
    pub columns: Arc<[u32]>,
    /// An entry for every emitted token, in order.
    pub taught: Vec<Taught>,
}

/// Records the target's distribution at every emitted token during verification, without a second forward.
///
/// It is the sink of a round: hand it to [`Session::round`](spec_decode::Session::round) or to
/// [`Session::generate`](spec_decode::Session::generate), then make an [`Example`](crate::Example) of its record.
///
/// A token that comes without logits teaches nothing. Tokens beyond the columns of an engine that is narrower than
/// its tokenizer are ruled out.
pub struct Recorder {
    /// Target tokens of the columns.
    targets: Vec<TargetId>,
    laws: bool,
    record: Record,
}

impl Recorder {
    /// Records what `terms` read: distributions over the target tokens of `alignment.pairs()`.
    pub fn new(alignment: &Alignment, terms: Terms) -> Self {
        let pairs = alignment.pairs();
        Self {
            targets: pairs.iter().map(|(_, target)| *target).collect(),
            laws: terms.reads_direct_law() || terms.reads_ngram_law(),
            record: Record {
                columns: pairs.iter().map(|(draft, _)| draft.get()).collect(),
                taught: Vec::new(),
            },
        }
    }

    /// An entry for every emitted token, in order.
    pub fn taught(&self) -> &[Taught] {
        &self.record.taught
    }

    /// The record without the distributions of the tokens before `from`.
    pub fn since(&self, from: usize) -> Record {
        let (before, after) = self.taught().split_at(from.min(self.taught().len()));
        // A chunk that ends after `from` may begin before it, and needs the likelihoods of all its
        // tokens.
        let before = before.iter().map(|taught| Taught {
            log_prob: taught.log_prob,
            law: None,
        });
        let taught = before.chain(after.iter().cloned()).collect();
        Record {
            columns: Arc::clone(&self.record.columns),
            taught,
        }
    }
}

impl TeacherSink for Recorder {
    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        self.record.taught.truncate(index);
        if logits.is_empty() {
            self.record.taught.push(Taught::UNKNOWN);
            return;
        }
        let shift = log_sum_exp(logits) as f32;
        let log_prob = |target: TargetId| {
            let logit = logits.get(target.index()).copied();
            logit.unwrap_or(f32::NEG_INFINITY) - shift
        };
        let law = self.targets.iter().map(|target| log_prob(*target));
        let law = self.laws.then(|| TeacherRow::new(law));
        self.record.taught.push(Taught {
            log_prob: floored(log_prob(token).min(0.0)),
            law,
        });
    }
}

impl From<Recorder> for Record {
    fn from(recorder: Recorder) -> Self {
        recorder.record
    }
}
