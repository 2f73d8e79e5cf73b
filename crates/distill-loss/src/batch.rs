//! The examples of one update as an objective: Eq. 3-4, executed.

use crate::alm::alm;
use crate::direct::DirectLoss;
use crate::example::{Chunk, Example};
use crate::ngram::NgramLoss;
use crate::ngram::approximate_kl::{Merged, approximate_kl};
use crate::ngram::nll::ngram_likelihood;
use crate::objective::{Graded, Objective, Scored};
use crate::rows::log_sum_exp;
use crate::terms::Terms;

/// Number of rows from which a group takes no more chunks.
const ROWS: usize = 64;

/// Chunks of one example that are scored over the same columns, with a row for every draft token.
struct Group {
    /// Set of shared tokens, for positions of the direct term; `None` for the draft vocabulary.
    columns: Option<usize>,
    chunks: Vec<usize>,
}

/// The example has no states of the last blocks, or too few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an example without the states that the last blocks learn from")]
pub struct MissingStates;

/// The means of both terms and the loss, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// Mean of the direct term over its positions or, for ALM, mean divergence of a chunk; NaN without positions.
    pub direct: f64,
    /// Mean of the n-gram term over its tokens, over its n-grams with [`NgramLoss::ApproximateKl`]; NaN without
    /// any.
    pub ngram: f64,
    /// The loss that is minimised, as the [objective](crate#the-objective) has it.
    pub loss: f64,
}

/// The examples of one update: hybrid distillation (Eq. 3-4) as an [`Objective`].
///
/// [`scored`](Objective::scored) gives the positions and columns whose logits each example needs,
/// and [`grade`](Objective::grade) replaces these logits by the gradient of the loss. Sequence `i`
/// of the objective is example `i`, up to its last scored position
/// ([`sequences`](Self::sequences)).
///
/// The sums of [`Graded::terms`] are the direct term, the n-gram term, the positions at which the drafter agrees with
/// the target, and the positions that were looked at for this; [`losses`](Self::losses) and [`agreed`](Self::agreed)
/// read them.
pub struct Batch<'a> {
    terms: Terms,
    examples: Vec<&'a Example>,
    /// Distinct sets of shared tokens.
    columns: Vec<Vec<u32>>,
    groups: Vec<Vec<Group>>,
    positions: usize,
    ngram_tokens: usize,
    /// N-grams that the n-gram term looks at.
    ngrams: usize,
    /// Number of leading examples of which nothing was learnt yet. On them the drafter's agreement
    /// is measured.
    fresh: usize,
    /// Weights of one position and of one n-gram token: the [objective](crate#the-objective) is the sum of the
    /// direct losses times the first plus the sum of the n-gram losses times the second (Eq. 3-4).
    position_weight: f64,
    ngram_weight: f64,
}

impl<'a> Batch<'a> {
    /// Examples of which nothing was learnt yet, then others that are seen once more.
    pub fn new(
        fresh: impl IntoIterator<Item = &'a Example>,
        again: impl IntoIterator<Item = &'a Example>,
        terms: Terms,
    ) -> Self {
        let mut examples: Vec<&Example> = fresh.into_iter().collect();
        let fresh = examples.len();
        examples.extend(again);
        let mut batch = Self {
            terms,
            columns: Vec::new(),
            groups: Vec::new(),
            positions: 0,
            ngram_tokens: 0,
            ngrams: 0,
            fresh,
            position_weight: 0.0,
            ngram_weight: 0.0,
            examples,
        };
        for example in batch.examples.clone() {
            let shared = batch.subset(&example.shared);
            let spelled = example.spelled.as_ref().filter(|_| terms.samples_ngrams());
            let spelled = spelled.map(|columns| batch.subset(&columns.ids));
            let groups = batch.plan(example, shared, spelled);
            batch.groups.push(groups);
        }
        let all = (batch.positions + batch.ngram_tokens).max(1) as f64;
        batch.position_weight = 1.0 / all;
        let lambda = match terms {
            // This loss has the weight p(t) in the place of lambda.
            Terms::Hybrid {
                ngram: Some(NgramLoss::Pointwise),
                ..
            } => 1.0,
            Terms::Hybrid { lambda, .. } => lambda,
            Terms::Alm { .. } => 0.0,
        };
        batch.ngram_weight = lambda / all;
        batch
    }

    /// Place of these columns among the sets of columns.
    fn subset(&mut self, ids: &[u32]) -> usize {
        let known = self.columns.iter().position(|columns| columns[..] == *ids);
        known.unwrap_or_else(|| {
            self.columns.push(ids.to_vec());
            self.columns.len() - 1
        })
    }

    /// Sorts the chunks of an example with these sets of columns, of shared tokens and of n-grams, into
    /// groups and counts them.
    fn plan(&mut self, example: &Example, shared: usize, ngrams: Option<usize>) -> Vec<Group> {
        let (mut direct, mut spelled) = (Vec::new(), Vec::new());
        for (i, chunk) in example.chunks.iter().enumerate() {
            match self.terms {
                Terms::Alm { .. } => {
                    self.positions += 1;
                    spelled.push(i);
                }
                Terms::Hybrid { .. } if chunk.targets != 1 => {}
                Terms::Hybrid {
                    direct: Some(loss), ..
                } if chunk.draft.len() == 1 => {
                    if is_taught(example, chunk, loss_at(loss, chunk)) {
                        self.positions += 1;
                        direct.push(i);
                    }
                }
                Terms::Hybrid {
                    ngram: Some(loss), ..
                } if chunk.draft.len() > 1 => {
                    let lawful = chunk
                        .law
                        .as_ref()
                        .is_some_and(|l| l.len() == example.shared.len());
                    if loss != NgramLoss::ApproximateKl || lawful {
                        self.ngrams += 1;
                        self.ngram_tokens += chunk.draft.len();
                        spelled.push(i);
                    }
                }
                Terms::Hybrid { .. } => {}
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        for (columns, chunks) in [(Some(shared), direct), (ngrams, spelled)] {
            let mut rows = ROWS;
            for i in chunks {
                match groups.last_mut() {
                    Some(group) if rows < ROWS => group.chunks.push(i),
                    _ => {
                        groups.push(Group {
                            columns,
                            chunks: vec![i],
                        });
                        rows = 0;
                    }
                }
                rows += example.chunks[i].draft.len();
            }
        }
        groups
    }

    /// Positions of the direct term, or chunks of ALM: P of the objective.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Draft tokens of the n-gram term: G of the objective.
    pub fn ngram_tokens(&self) -> usize {
        self.ngram_tokens
    }

    /// True if there is nothing to learn.
    pub fn is_empty(&self) -> bool {
        self.positions + self.ngram_tokens == 0
    }

    /// Every example, with the number of its tokens up to its last scored position.
    fn spans(&self) -> impl Iterator<Item = (&'a Example, usize)> {
        let ends = (0..self.examples.len()).map(|i| {
            let positions = self.scored(i).into_iter().flat_map(|s| s.positions);
            positions.max().map_or(0, |last| last + 1)
        });
        self.examples.iter().copied().zip(ends)
    }

    /// Draft ids that a trainer of all weights runs through, by example.
    pub fn sequences(&self) -> Vec<&'a [u32]> {
        let spans = self.spans();
        spans.map(|(example, end)| &example.ids[..end]).collect()
    }

    /// States that a trainer of the last blocks runs through, by example: `[length, width]`.
    ///
    /// # Errors
    /// An example without them.
    pub fn states(&self, width: usize) -> Result<Vec<&'a [f32]>, MissingStates> {
        self.spans()
            .map(|(example, end)| example.states.get(..end * width).ok_or(MissingStates))
            .collect()
    }

    /// The losses of a batch whose groups have all been graded, and their sums [added](Graded::add).
    pub fn losses(&self, graded: Graded) -> Losses {
        Losses {
            direct: graded.terms[0] / self.positions as f64,
            ngram: graded.terms[1] / self.ngram_count(),
            loss: self.position_weight * graded.terms[0] + self.ngram_weight * graded.terms[1],
        }
    }

    /// Share of fresh positions at which the drafter agrees with the target, from 0 to 1; `None` if
    /// no position was compared. In greedy text it agrees if the emitted token is its most probable
    /// shared token. In drawn text the agreement is the mass that both distributions have in
    /// common, which is the probability that a drafted token is accepted.
    pub fn agreed(graded: Graded) -> Option<f64> {
        let [_, _, agreed, compared] = graded.terms;
        (compared > 0.0).then(|| agreed / compared)
    }

    /// Number of positions that [`agreed`](Self::agreed) is the share of.
    pub fn compared(graded: Graded) -> f64 {
        graded.terms[3]
    }

    /// The number that the n-gram term is averaged over.
    fn ngram_count(&self) -> f64 {
        match self.terms {
            Terms::Hybrid {
                ngram: Some(NgramLoss::ApproximateKl),
                ..
            } => self.ngrams as f64,
            _ => self.ngram_tokens as f64,
        }
    }

    /// The loss of a position, and the drafter's agreement with the target there. `law` is a buffer.
    fn grade_direct(
        &self,
        loss: DirectLoss,
        example: &Example,
        chunk: &Chunk,
        row: &mut [f32],
        law: &mut Vec<f32>,
    ) -> Graded {
        if let Some(taught) = &chunk.law {
            taught.read(law);
        }
        for (logit, stands_for) in row.iter_mut().zip(&example.stands_for) {
            *logit += stands_for;
        }
        for (log_prob, stands_for) in law.iter_mut().zip(&example.stands_for) {
            *log_prob += stands_for;
        }
        let agreed = agreement(example, chunk, row, law);
        let compared = f64::from(u8::from(agreed.is_some()));
        let label = label(example, chunk).unwrap_or_default();
        let loss = loss_at(loss, chunk).grade(row, law, label, self.position_weight);
        Graded {
            terms: [loss, 0.0, agreed.unwrap_or(0.0), compared],
        }
    }

    fn grade_ngram(
        &self,
        loss: NgramLoss,
        example: &Example,
        chunk: &Chunk,
        logits: &mut [f32],
    ) -> f64 {
        let weight = self.ngram_weight;
        let spelling = &example.ids[chunk.draft.clone()];
        match (loss, &chunk.law) {
            (NgramLoss::ApproximateKl, Some(law)) => {
                let mut teacher = Vec::new();
                law.read(&mut teacher);
                let merged = Merged {
                    shared: &example.shared,
                    teacher: &mut teacher,
                    log_prob: chunk.log_prob,
                    spelling,
                    direct: chunk.own,
                };
                approximate_kl(logits, merged, weight)
            }
            (NgramLoss::Pointwise | NgramLoss::ScaledPointwise, _) => {
                let p = chunk.log_prob.exp();
                p * spelled_likelihood(example, spelling, logits, weight * p)
            }
            _ => spelled_likelihood(example, spelling, logits, weight),
        }
    }
}

/// [`ngram_likelihood`] in the columns of an example.
fn spelled_likelihood(example: &Example, spelling: &[u32], logits: &mut [f32], weight: f64) -> f64 {
    let Some(columns) = &example.spelled else {
        return ngram_likelihood(logits, spelling, weight);
    };
    for row in logits.chunks_exact_mut(columns.ids.len().max(1)) {
        for (logit, stands_for) in row.iter_mut().zip(&columns.stands_for) {
            *logit += stands_for;
        }
    }
    let places = spelling.iter().map(|id| columns.ids.binary_search(id));
    let places: Result<Vec<u32>, usize> = places.map(|place| place.map(|at| at as u32)).collect();
    match places {
        Ok(places) => ngram_likelihood(logits, &places, weight),
        // A token without a column teaches nothing.
        Err(_) => {
            logits.fill(0.0);
            0.0
        }
    }
}

/// Agreement of the drafter with the target at a position, from 0 to 1. In greedy text it is 1 if
/// no column has a larger logit than the emitted token, else 0. In drawn text it is the mass that
/// both distributions have in common, which is the probability that a drafted token is accepted.
/// Both rows include [`Example::stands_for`].
fn agreement(example: &Example, chunk: &Chunk, logits: &[f32], law: &[f32]) -> Option<f64> {
    if !example.sampled {
        // Columns are compared as single tokens here, without the others that they stand for.
        let own = |(i, x): (usize, &f32)| x - example.stands_for.get(i).unwrap_or(&0.0);
        let label = label(example, chunk)?;
        let emitted = own((label, logits.get(label)?));
        let best = logits.iter().enumerate().all(|each| own(each) <= emitted);
        return Some(f64::from(u8::from(best)));
    }
    chunk.law.as_ref().filter(|_| law.len() == logits.len())?;
    let [of_drafter, of_target] = [logits, law].map(|row| log_sum_exp(row) as f32);
    let both = logits.iter().zip(law);
    let common = both.map(|(q, p)| f64::from((q - of_drafter).min(p - of_target)).exp());
    Some(common.sum::<f64>().min(1.0))
}

/// Column of the token a direct chunk emitted.
fn label(example: &Example, chunk: &Chunk) -> Option<usize> {
    let id = example.ids.get(chunk.draft.start)?;
    example.shared.binary_search(id).ok()
}

/// The loss that teaches a chunk of one draft token where the direct term is `loss`.
///
/// A special token is taught by its likelihood. A drafter trained on prose gives the end of a turn
/// almost no mass, and the gradient of the reverse KL is in proportion to that mass: it would never
/// teach the drafter to end a turn.
fn loss_at(loss: DirectLoss, chunk: &Chunk) -> DirectLoss {
    if chunk.special { DirectLoss::Nll } else { loss }
}

/// True if the example holds what a direct loss reads at a chunk.
fn is_taught(example: &Example, chunk: &Chunk, loss: DirectLoss) -> bool {
    if loss.reads_law() {
        let law = chunk.law.as_ref();
        law.is_some_and(|law| !law.is_empty() && law.len() == example.shared.len())
    } else {
        label(example, chunk).is_some()
    }
}

impl Objective for Batch<'_> {
    fn columns(&self) -> &[Vec<u32>] {
        &self.columns
    }

    fn scored(&self, sequence: usize) -> Vec<Scored> {
        let chunks = &self.examples[sequence].chunks;
        let before = |i: &usize| chunks[*i].draft.start - 1..chunks[*i].draft.end - 1;
        let scored = |group: &Group| Scored {
            positions: group.chunks.iter().flat_map(before).collect(),
            columns: group.columns,
        };
        self.groups[sequence].iter().map(scored).collect()
    }

    fn grade(&self, sequence: usize, group: usize, logits: &mut [f32]) -> Graded {
        let example = self.examples[sequence];
        let members = &self.groups[sequence][group].chunks;
        let chunks = || members.iter().map(|i| &example.chunks[*i]);
        let rows: usize = chunks().map(|chunk| chunk.draft.len()).sum();
        let width = logits.len() / rows.max(1);
        let (mut graded, mut law) = (Graded::default(), Vec::new());
        let mut rest = logits;
        for chunk in chunks() {
            let (own, after) = rest.split_at_mut(chunk.draft.len() * width);
            rest = after;
            match self.terms {
                Terms::Alm { tau } => {
                    let labels = &example.ids[chunk.draft.clone()];
                    let weight = self.position_weight;
                    graded.terms[0] += alm(own, labels, chunk.log_prob, tau, weight);
                }
                Terms::Hybrid {
                    direct: Some(loss), ..
                } if chunk.draft.len() == 1 => {
                    graded.add(self.grade_direct(loss, example, chunk, own, &mut law));
                }
                Terms::Hybrid {
                    ngram: Some(loss), ..
                } => graded.terms[1] += self.grade_ngram(loss, example, chunk, own),
                Terms::Hybrid { .. } => own.fill(0.0),
            }
        }
        if sequence >= self.fresh {
            // Agreement is measured on fresh examples only.
            graded.terms[2..].fill(0.0);
        }
        graded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::teacher::TeacherRow;

    /// One position that says token 7, the second of three columns, by this distribution.
    fn taught(law: [f32; 3]) -> Example {
        Example {
            ids: vec![1, 7],
            shared: [3, 7, 9].into(),
            chunks: vec![Chunk {
                draft: 1..2,
                targets: 1,
                log_prob: f64::from(law[1].ln()),
                law: Some(TeacherRow::new(law.into_iter().map(f32::ln))),
                own: None,
                special: false,
            }],
            ..Example::default()
        }
    }

    fn agreed(example: &Example, drafter: [f32; 3]) -> Option<f64> {
        let chunk = &example.chunks[0];
        let mut law = Vec::new();
        chunk.law.as_ref().unwrap().read(&mut law);
        let mut logits = drafter.map(f32::ln);
        for (logit, stands_for) in logits.iter_mut().zip(&example.stands_for) {
            *logit += stands_for;
        }
        agreement(example, chunk, &logits, &law)
    }

    #[test]
    fn greedy_text_is_agreed_with_by_the_best_token() {
        let example = taught([0.3, 0.6, 0.1]);
        assert_eq!(agreed(&example, [0.2, 0.5, 0.3]), Some(1.0));
        assert_eq!(agreed(&example, [0.5, 0.4, 0.1]), Some(0.0));
        // A column that stands for many others is not better for that.
        let mut narrowed = example;
        narrowed.stands_for = vec![0.0, 0.0, 5.0];
        assert_eq!(agreed(&narrowed, [0.2, 0.5, 0.3]), Some(1.0));
        assert_eq!(agreed(&narrowed, [0.2, 0.3, 0.5]), Some(0.0));
        // A token outside the columns never agrees.
        let mut other = narrowed;
        other.ids[1] = 8;
        assert_eq!(agreed(&other, [0.2, 0.5, 0.3]), None);
    }

    #[test]
    fn sampled_text_is_agreed_with_as_often_as_a_draft_is_accepted() {
        let mut example = taught([0.3, 0.6, 0.1]);
        example.sampled = true;
        // The mass that both distributions have in common: 0.2, 0.5 and 0.1. They are in f16.
        let found = agreed(&example, [0.2, 0.5, 0.3]).unwrap();
        assert!((found - 0.8).abs() < 2e-3, "{found}");
        let same = agreed(&example, [0.3, 0.6, 0.1]).unwrap();
        assert!((same - 1.0).abs() < 2e-3, "{same}");
    }

    #[test]
    fn examples_that_were_learnt_from_before_do_not_judge() {
        let example = taught([0.3, 0.6, 0.1]);
        let terms = Terms::hybrid(DirectLoss::ReverseKl, NgramLoss::Nll, 0.2);
        let batch = Batch::new([&example], [&example], terms);
        let graded = |sequence| {
            let mut logits = [0.2_f32, 0.5, 0.3].map(f32::ln);
            batch.grade(sequence, 0, &mut logits)
        };
        assert_eq!(Batch::agreed(graded(0)), Some(1.0));
        assert_eq!(Batch::agreed(graded(1)), None);
    }
}
