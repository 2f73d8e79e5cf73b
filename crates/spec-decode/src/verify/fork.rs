//! A fork: the division of a node of the trie into branches and the rest.

use vocab_align::{DraftId, TargetId};

use super::known::Known;
use crate::lexicon::Place;

/// The next choice below a node: to take one of its branches, or to stop at or off it.
pub(super) struct Fork {
    /// Branches to choose from, by draft token in ascending order, with their p.
    pub(super) branches: Vec<(DraftId, Place, f64)>,
    /// Tokens of the node in none of these branches, with their p.
    pub(super) rest: Vec<(TargetId, f64)>,
}

impl Fork {
    pub(super) fn rest_mass(&self) -> f64 {
        self.rest.iter().map(|&(_, mass)| mass).sum()
    }

    pub(super) fn total(&self) -> f64 {
        self.rest_mass() + self.branches.iter().map(|&(_, _, mass)| mass).sum::<f64>()
    }

    pub(super) fn branch(&self, draft: DraftId) -> Option<&(DraftId, Place, f64)> {
        let at = self
            .branches
            .binary_search_by_key(&draft, |&(label, _, _)| label);
        self.branches.get(at.ok()?)
    }

    /// Probability that the draft takes none of the branches.
    pub(super) fn stop_probability(&self, known: &Known<'_>) -> f64 {
        known.without(self.branches.iter().map(|&(label, _, _)| label))
    }

    /// P and q of the outcome that the drawn token stands for.
    pub(super) fn outcome(&self, known: &Known<'_>) -> (f64, f64) {
        let total = self.total();
        match self.branch(known.token) {
            Some(&(_, _, mass)) => (mass / total, known.probability(known.token)),
            None => (self.rest_mass() / total, self.stop_probability(known)),
        }
    }

    /// max(0, P - q / w) of every branch and, last, of stopping.
    pub(super) fn residual(&self, known: &Known<'_>, weight: f64) -> Vec<f64> {
        let total = self.total();
        let above = |mass: f64, q: f64| (mass / total - q / weight).max(0.0);
        let branches = self.branches.iter();
        let mut residual: Vec<f64> = branches
            .map(|&(draft, _, mass)| above(mass, known.probability(draft)))
            .collect();
        residual.push(above(self.rest_mass(), self.stop_probability(known)));
        residual
    }

    /// p of every branch and, last, of stopping.
    pub(super) fn masses(&self) -> Vec<f64> {
        let branches = self.branches.iter().map(|&(_, _, mass)| mass);
        branches.chain([self.rest_mass()]).collect()
    }
}
