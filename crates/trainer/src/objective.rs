//! What a trainer minimises: which logits are wanted, and what they cost.

use cpu_engine::Vectors;

use crate::elementwise::{CrossEntropyRow, ROW_TERMS};

/// Rows of one sequence that are scored together, over the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scored {
    /// Positions whose logits are wanted; the logits at a position predict the token after it.
    pub positions: Vec<usize>,
    /// Index into [`Objective::columns`]; `None` for the whole vocabulary.
    pub columns: Option<usize>,
}

/// Sums an objective reports; what each means is the objective's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Graded {
    /// Added up over groups and sequences, always in the same order.
    pub terms: [f64; ROW_TERMS],
}

impl Graded {
    /// Adds another group's sums.
    pub fn add(&mut self, other: Self) {
        for (sum, term) in self.terms.iter_mut().zip(other.terms) {
            *sum += term;
        }
    }
}

/// A loss on the logits of a batch of sequences.
pub trait Objective: Sync {
    /// Subsets of the vocabulary that groups refer to. The rows of the output head are gathered
    /// once a pass, so that scoring costs what a vocabulary of that size would.
    fn columns(&self) -> &[Vec<u32>] {
        &[]
    }

    /// Groups of scored positions of sequence `sequence`.
    fn scored(&self, sequence: usize) -> Vec<Scored>;

    /// Replaces the logits of a group by the gradient of the loss with respect to them.
    ///
    /// # Shapes
    /// - `logits`: `[positions, columns]`, row-major, as [`scored`](Self::scored) asked for
    fn grade(&self, sequence: usize, group: usize, logits: &mut [f32]) -> Graded;
}

/// Rows of a group, so that wide vocabularies need few logits at a time; the trainer scores groups
/// over the same columns together as far as it has room.
const ROWS: usize = 64;

/// Mean next-token cross entropy of equally weighted positions; term 0 is its sum over all
/// positions divided by `positions`.
pub struct NextToken<'a> {
    sequences: &'a [&'a [u32]],
    weight: f32,
    vectors: Vectors,
}

impl<'a> NextToken<'a> {
    /// Scores every token but the first of each sequence.
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
        let last = self.sequences[sequence].len().saturating_sub(1);
        (0..last)
            .step_by(ROWS)
            .map(|start| Scored {
                positions: (start..last.min(start + ROWS)).collect(),
                columns: None,
            })
            .collect()
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
