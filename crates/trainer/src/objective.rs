//! Objectives of text: the likelihood of the next token, and the unlikelihood of marked ones.

use cpu_engine::Vectors;
use distill_loss::{Graded, Objective, Scored};

use crate::elementwise::{CrossEntropyRow, Scale};

/// Number of rows of a group. Small groups keep few logits of a wide vocabulary at a time; the
/// trainer scores groups over the same columns together as far as it has room.
const ROWS: usize = 64;

/// Positions in groups, scored over the whole vocabulary.
fn groups(positions: impl Iterator<Item = usize>) -> Vec<Scored> {
    let positions: Vec<usize> = positions.collect();
    let group = |positions: &[usize]| Scored {
        positions: positions.to_vec(),
        columns: None,
    };
    positions.chunks(ROWS).map(group).collect()
}

/// Mean next-token cross entropy over equally weighted positions. Term 0 is the sum over the
/// positions, divided by their number.
pub struct NextToken<'a> {
    sequences: &'a [&'a [u32]],
    weight: f32,
    vectors: Vectors,
}

impl<'a> NextToken<'a> {
    /// An objective that scores every token but the first of each sequence.
    pub fn new(sequences: &'a [&'a [u32]]) -> Self {
        let positions: usize = sequences.iter().map(|s| s.len().saturating_sub(1)).sum();
        Self {
            sequences,
            weight: 1.0 / positions.max(1) as f32,
            vectors: Vectors::widest(),
        }
    }
}

impl Objective for NextToken<'_> {
    fn scored(&self, sequence: usize) -> Vec<Scored> {
        groups(0..self.sequences[sequence].len().saturating_sub(1))
    }

    fn grade(&self, sequence: usize, group: usize, logits: &mut [f32]) -> Graded {
        let start = group * ROWS;
        let labels = &self.sequences[sequence][start + 1..];
        let rows = labels.len().min(ROWS);
        let width = logits.len() / rows.max(1);
        let mut graded = Graded::default();
        for (row, label) in logits.chunks_exact_mut(width.max(1)).zip(labels) {
            graded.terms[0] += self.vectors.run(CrossEntropyRow {
                logits: row,
                label: *label as usize,
                weight: self.weight,
            });
        }
        graded
    }
}

/// Next-token loss on texts, together with a loss on answers that makes their marked tokens less
/// likely: the sequence-level unlikelihood of Welleck et al. (2020, arXiv 1908.04319).
///
/// The loss is the [`NextToken`] loss of the texts, plus `weight` times the mean of `-ln(1 -
/// p(token))` over all answered tokens (0 for tokens that are not marked), plus `keep` times their
/// mean of `KL(law || p)` (0 where no distribution `law` is given). Term 0 is the first loss; terms
/// 1 and 2 are the others without their weights.
pub struct Unlikelihood<'a> {
    text: NextToken<'a>,
    answers: &'a [Marked],
    weight: f32,
    keep: f32,
    share: f32,
}

/// A prompt with an answer, and the marks of its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marked {
    /// Tokens of prompt and answer. Those after the last marked index may be left out.
    pub ids: Vec<u32>,
    /// Indices of the unwanted tokens in `ids`, ascending, none of them 0.
    pub unwanted: Vec<usize>,
    /// Other indices, ascending, none of them 0, each with the distribution that the model is to
    /// keep there: a probability for every token of the vocabulary.
    pub kept: Vec<(usize, Vec<f32>)>,
}

impl Marked {
    /// Indices that are unwanted or kept, ascending.
    fn places(&self) -> Vec<usize> {
        let kept = self.kept.iter().map(|(place, _)| *place);
        let mut places: Vec<usize> = self.unwanted.iter().copied().chain(kept).collect();
        places.sort_unstable();
        places
    }

    fn law(&self, place: usize) -> Option<&[f32]> {
        let found = self.kept.binary_search_by_key(&place, |(place, _)| *place);
        found.ok().map(|found| self.kept[found].1.as_slice())
    }
}

impl<'a> Unlikelihood<'a> {
    /// An objective for a batch of `texts` followed by the ids of `answers`. `answered` is the
    /// number of tokens of all answers, including those without a mark, which need not be among
    /// `answers`.
    pub fn new(
        texts: &'a [&'a [u32]],
        answers: &'a [Marked],
        answered: usize,
        weight: f64,
        keep: f64,
    ) -> Self {
        Self {
            text: NextToken::new(texts),
            answers,
            weight: weight as f32,
            keep: keep as f32,
            share: 1.0 / answered.max(1) as f32,
        }
    }

    /// The answer that is sequence `sequence` of the batch; `None` if it is a text.
    fn answer(&self, sequence: usize) -> Option<&'a Marked> {
        let place = sequence.checked_sub(self.text.sequences.len())?;
        self.answers.get(place)
    }

    /// Replaces logits by the gradient at an unwanted token. Returns the share of term 1.
    fn unwanted(&self, row: &mut [f32], label: usize) -> f64 {
        let surprise = self.text.vectors.run(CrossEntropyRow {
            logits: row,
            label,
            weight: 1.0,
        });
        let p = (-surprise).exp();
        let rest = (1.0 - p).max(LEAST_REST);
        // d/dz of -ln(1 - p) is -p / (1 - p) times that of -ln p.
        let factor = -self.weight * self.share * (p / rest) as f32;
        self.text.vectors.run(Scale { row, factor });
        -f64::from(self.share) * rest.ln()
    }

    /// Replaces logits by the gradient where a distribution is to be kept. Returns the share of
    /// term 2.
    fn kept(&self, row: &mut [f32], law: &[f32]) -> f64 {
        let weight = self.keep * self.share;
        let entropy_and_logits: f64 = law
            .iter()
            .zip(&*row)
            .filter(|(q, _)| **q > 0.0)
            .map(|(q, z)| f64::from(*q) * (f64::from(*q).ln() - f64::from(*z)))
            .sum();
        // The normaliser's logarithm is the surprise of any token plus its logit.
        let first = f64::from(row[0]);
        let surprise = self.text.vectors.run(CrossEntropyRow {
            logits: row,
            label: 0,
            weight: 1.0,
        });
        row[0] += 1.0;
        for (p, q) in row.iter_mut().zip(law) {
            *p = weight * (*p - q);
        }
        f64::from(self.share) * (entropy_and_logits + surprise + first)
    }
}

/// Lower bound of `1 - p`, so that a token of probability 1 has a bounded gradient.
const LEAST_REST: f64 = 1e-4;

impl Objective for Unlikelihood<'_> {
    fn scored(&self, sequence: usize) -> Vec<Scored> {
        let Some(answer) = self.answer(sequence) else {
            return self.text.scored(sequence);
        };
        groups(answer.places().into_iter().map(|place| place - 1))
    }

    fn grade(&self, sequence: usize, group: usize, logits: &mut [f32]) -> Graded {
        let Some(answer) = self.answer(sequence) else {
            return self.text.grade(sequence, group, logits);
        };
        let places = answer.places();
        let places = places.chunks(ROWS).nth(group).unwrap_or_default();
        let width = logits.len() / places.len().max(1);
        let mut graded = Graded::default();
        for (row, place) in logits.chunks_exact_mut(width.max(1)).zip(places) {
            match answer.law(*place) {
                Some(law) => graded.terms[2] += self.kept(row, law),
                None => graded.terms[1] += self.unwanted(row, answer.ids[*place] as usize),
            }
        }
        graded
    }
}
