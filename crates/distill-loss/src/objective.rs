//! A loss as a trainer sees it: the logits that it wants, and the gradient that it returns for them.

/// Rows of one sequence that are scored together, over the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scored {
    /// Positions whose logits are needed. The logits at a position predict the token after it.
    pub positions: Vec<usize>,
    /// Index into [`Objective::columns`]; `None` for the whole vocabulary.
    pub columns: Option<usize>,
}

/// Sums that an objective reports. Each objective defines their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Graded {
    /// The sums over groups and sequences, always added in the same order.
    pub terms: [f64; 4],
}

impl Graded {
    /// Adds another group's sums.
    pub fn add(&mut self, other: Self) {
        for (sum, term) in self.terms.iter_mut().zip(other.terms) {
            *sum += term;
        }
    }
}

/// A loss on the logits of a batch of sequences, without a graph. The caller runs the model: it
/// asks for the logits that are needed ([`scored`](Self::scored)), computes them, and gets the
/// gradient in their place ([`grade`](Self::grade)).
pub trait Objective: Sync {
    /// Subsets of the vocabulary that groups refer to. The rows of the output head are gathered
    /// once per pass, so that scoring costs as much as with a vocabulary of that size.
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
