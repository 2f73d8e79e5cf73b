//! The lessons of one update as the trainer's objective.

use distill_loss::{DirectLoss, Merged, NgramLoss, alm, approximate_kl, ngram_likelihood};
use lm::{Graded, Objective, Scored};

use super::lesson::{Chunk, Lesson};
use crate::learn::Terms;

/// Rows of a group, the least that the trainer scores at a time.
const ROWS: usize = 64;

/// Chunks of one lesson that are scored over the same columns.
enum Group {
    /// One row a chunk, over the shared tokens.
    Direct(Vec<usize>),
    /// A row for every draft token, over the draft vocabulary.
    Spelled(Vec<usize>),
}

/// Lessons with what each of them is asked.
pub(super) struct Batch<'a> {
    terms: Terms,
    lessons: Vec<&'a Lesson>,
    /// Distinct sets of shared tokens.
    columns: Vec<Vec<u32>>,
    /// By lesson: its set.
    subsets: Vec<usize>,
    groups: Vec<Vec<Group>>,
    /// Positions of the direct term, or chunks of ALM.
    pub(super) positions: usize,
    /// Draft tokens of the n-gram term.
    pub(super) ngram_tokens: usize,
    /// N-grams it looks at.
    ngrams: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(lessons: Vec<&'a Lesson>, terms: Terms) -> Self {
        let mut batch = Self {
            terms,
            columns: Vec::new(),
            subsets: Vec::new(),
            groups: Vec::new(),
            positions: 0,
            ngram_tokens: 0,
            ngrams: 0,
            lessons,
        };
        for lesson in batch.lessons.clone() {
            let known = batch
                .columns
                .iter()
                .position(|c| c[..] == lesson.shared[..]);
            let subset = known.unwrap_or(batch.columns.len());
            if subset == batch.columns.len() {
                batch.columns.push(lesson.shared.to_vec());
            }
            batch.subsets.push(subset);
            let groups = batch.plan(lesson);
            batch.groups.push(groups);
        }
        batch
    }

    /// Sorts the chunks of a lesson into groups and counts them.
    fn plan(&mut self, lesson: &Lesson) -> Vec<Group> {
        let (mut direct, mut spelled) = (Vec::new(), Vec::new());
        for (i, chunk) in lesson.chunks.iter().enumerate() {
            match self.terms {
                Terms::Alm { .. } => {
                    self.positions += 1;
                    spelled.push(i);
                }
                Terms::Hybrid { .. } if chunk.targets != 1 => {}
                Terms::Hybrid {
                    direct: Some(loss), ..
                } if chunk.draft.len() == 1 => {
                    if is_taught(lesson, chunk, loss) {
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
                        .is_some_and(|l| l.len() == lesson.shared.len());
                    if loss != NgramLoss::ApproximateKl || lawful {
                        self.ngrams += 1;
                        self.ngram_tokens += chunk.draft.len();
                        spelled.push(i);
                    }
                }
                Terms::Hybrid { .. } => {}
            }
        }
        let mut groups: Vec<Group> = direct
            .chunks(ROWS)
            .map(|chunks| Group::Direct(chunks.to_vec()))
            .collect();
        let (mut group, mut rows) = (Vec::new(), 0);
        for i in spelled {
            rows += lesson.chunks[i].draft.len();
            group.push(i);
            if rows >= ROWS {
                groups.push(Group::Spelled(std::mem::take(&mut group)));
                rows = 0;
            }
        }
        if !group.is_empty() {
            groups.push(Group::Spelled(group));
        }
        groups
    }

    /// Whether there is anything to learn.
    pub(super) fn is_empty(&self) -> bool {
        self.positions + self.ngram_tokens == 0
    }

    /// What the trainer runs through: every lesson up to its last scored position.
    pub(super) fn sequences(&self) -> Vec<&'a [u32]> {
        let ends = (0..self.lessons.len()).map(|i| {
            let positions = self.scored(i).into_iter().flat_map(|s| s.positions);
            positions.max().map_or(0, |last| last + 1)
        });
        self.lessons
            .iter()
            .zip(ends)
            .map(|(lesson, end)| &lesson.ids[..end])
            .collect()
    }

    /// Means of both terms, NaN where a term has nothing, and the loss.
    pub(super) fn losses(&self, graded: Graded) -> (f64, f64, f64) {
        let (of_direct, of_ngram) = self.weights();
        let loss = of_direct * graded.terms[0] + of_ngram * graded.terms[1];
        (
            graded.terms[0] / self.positions as f64,
            graded.terms[1] / self.ngram_count(),
            loss,
        )
    }

    /// What the n-gram term is averaged over.
    fn ngram_count(&self) -> f64 {
        match self.terms {
            Terms::Hybrid {
                ngram: Some(NgramLoss::ApproximateKl),
                ..
            } => self.ngrams as f64,
            _ => self.ngram_tokens as f64,
        }
    }

    /// Weights of one position and of one n-gram token.
    fn weights(&self) -> (f64, f64) {
        let lambda = match self.terms {
            Terms::Hybrid { lambda, .. } => lambda,
            Terms::Alm { .. } => 0.0,
        };
        (
            1.0 / (self.positions as f64).max(1.0),
            lambda / self.ngram_count().max(1.0),
        )
    }

    fn grade_direct(
        &self,
        loss: DirectLoss,
        lesson: &Lesson,
        chunks: &[usize],
        logits: &mut [f32],
    ) -> f64 {
        let (weight, _) = self.weights();
        let mut law = Vec::new();
        let mut total = 0.0;
        for (row, i) in logits.chunks_exact_mut(lesson.shared.len()).zip(chunks) {
            let chunk = &lesson.chunks[*i];
            if let Some(taught) = &chunk.law {
                taught.read(&mut law);
            }
            let label = label(lesson, chunk).unwrap_or_default();
            total += loss.grade(row, &mut law, label, weight);
        }
        total
    }

    fn grade_ngram(
        &self,
        loss: NgramLoss,
        lesson: &Lesson,
        chunk: &Chunk,
        logits: &mut [f32],
    ) -> f64 {
        let (_, weight) = self.weights();
        let spelling = &lesson.ids[chunk.draft.clone()];
        match (loss, &chunk.law) {
            (NgramLoss::ApproximateKl, Some(law)) => {
                let mut teacher = Vec::new();
                law.read(&mut teacher);
                let merged = Merged {
                    shared: &lesson.shared,
                    teacher: &mut teacher,
                    log_prob: chunk.log_prob,
                    spelling,
                };
                approximate_kl(logits, merged, weight)
            }
            (NgramLoss::Pointwise, _) => {
                let p = chunk.log_prob.exp();
                p * ngram_likelihood(logits, spelling, weight * p)
            }
            _ => ngram_likelihood(logits, spelling, weight),
        }
    }
}

/// Column of the token a direct chunk emitted.
fn label(lesson: &Lesson, chunk: &Chunk) -> Option<usize> {
    let id = lesson.ids.get(chunk.draft.start)?;
    lesson.shared.binary_search(id).ok()
}

/// Whether the lesson holds what a direct loss reads at a chunk.
fn is_taught(lesson: &Lesson, chunk: &Chunk, loss: DirectLoss) -> bool {
    if loss.reads_law() {
        let law = chunk.law.as_ref();
        law.is_some_and(|law| !law.is_empty() && law.len() == lesson.shared.len())
    } else {
        label(lesson, chunk).is_some()
    }
}

impl Objective for Batch<'_> {
    fn columns(&self) -> &[Vec<u32>] {
        &self.columns
    }

    fn scored(&self, sequence: usize) -> Vec<Scored> {
        let chunks = &self.lessons[sequence].chunks;
        let before = |i: &usize| chunks[*i].draft.start - 1..chunks[*i].draft.end - 1;
        self.groups[sequence]
            .iter()
            .map(|group| match group {
                Group::Direct(members) => Scored {
                    positions: members.iter().flat_map(before).collect(),
                    columns: Some(self.subsets[sequence]),
                },
                Group::Spelled(members) => Scored {
                    positions: members.iter().flat_map(before).collect(),
                    columns: None,
                },
            })
            .collect()
    }

    fn grade(&self, sequence: usize, group: usize, logits: &mut [f32]) -> Graded {
        let lesson = self.lessons[sequence];
        let mut graded = Graded::default();
        match (&self.groups[sequence][group], self.terms) {
            (
                Group::Direct(chunks),
                Terms::Hybrid {
                    direct: Some(loss), ..
                },
            ) => graded.terms[0] = self.grade_direct(loss, lesson, chunks, logits),
            (Group::Spelled(members), terms) => {
                let chunks = || members.iter().map(|i| &lesson.chunks[*i]);
                let rows: usize = chunks().map(|chunk| chunk.draft.len()).sum();
                let width = logits.len() / rows.max(1);
                let mut rest = logits;
                for chunk in chunks() {
                    let (own, after) = rest.split_at_mut(chunk.draft.len() * width);
                    rest = after;
                    match terms {
                        Terms::Alm { tau } => {
                            let labels = &lesson.ids[chunk.draft.clone()];
                            let (weight, _) = self.weights();
                            graded.terms[0] += alm(own, labels, chunk.log_prob, tau, weight);
                        }
                        Terms::Hybrid {
                            ngram: Some(loss), ..
                        } => graded.terms[1] += self.grade_ngram(loss, lesson, chunk, own),
                        Terms::Hybrid { .. } => own.fill(0.0),
                    }
                }
            }
            (Group::Direct(_), _) => logits.fill(0.0),
        }
        graded
    }
}
