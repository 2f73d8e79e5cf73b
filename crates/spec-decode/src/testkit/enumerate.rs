//! Enumeration of every outcome of a randomised procedure, with its probability.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Chance, LawError};

/// Source of randomness that runs through all outcomes instead of drawing one.
///
/// Clones share one script, so drafting and verification can hold one each.
#[derive(Clone, Debug, Default)]
pub struct Oracle(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    /// Events of the present run: options with positive probability, and the index of the one
    /// taken.
    events: Vec<(Vec<(usize, f64)>, usize)>,
    /// Number of events so far in this run.
    met: usize,
}

impl Oracle {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `run` once for every outcome. Returns their number. `run` must meet the same events in
    /// the same order whenever the same options are taken.
    pub fn each(&self, mut run: impl FnMut(&Self)) -> usize {
        self.script().events.clear();
        let mut runs = 0;
        loop {
            self.script().met = 0;
            run(self);
            runs += 1;
            if !self.script().advance() {
                return runs;
            }
        }
    }

    /// Probability of the options taken in the present run.
    pub fn probability(&self) -> f64 {
        let script = self.script();
        script
            .events
            .iter()
            .map(|(options, taken)| options[*taken].1)
            .product()
    }

    fn choose(&self, options: impl FnOnce() -> Vec<(usize, f64)>) -> Option<usize> {
        let mut script = self.script();
        let at = script.met;
        if at == script.events.len() {
            let options = options();
            if options.is_empty() {
                return None;
            }
            script.events.push((options, 0));
        }
        script.met += 1;
        let (options, taken) = &script.events[at];
        Some(options[*taken].0)
    }
}

impl Script {
    fn advance(&mut self) -> bool {
        while let Some((options, taken)) = self.events.last_mut() {
            *taken += 1;
            if *taken < options.len() {
                return true;
            }
            self.events.pop();
        }
        false
    }
}

impl Chance for Oracle {
    fn accept(&mut self, p: f64, q: f64) -> bool {
        let accepted = (p / q).min(1.0);
        let options = move || {
            [(1, accepted), (0, 1.0 - accepted)]
                .into_iter()
                .filter(|&(_, probability)| probability > 0.0)
                .collect()
        };
        self.choose(options) == Some(1)
    }

    fn pick(&mut self, weights: &[f64]) -> Result<usize, LawError> {
        let total: f64 = weights.iter().sum();
        let options = || {
            let indexed = weights.iter().enumerate();
            indexed
                .filter(|&(_, &w)| w > 0.0)
                .map(|(i, &w)| (i, w / total))
                .collect()
        };
        self.choose(options).ok_or(LawError::NoMass {
            candidates: weights.len(),
        })
    }
}

/// The distribution of the result of `run`.
pub fn law_of<T: Ord>(mut run: impl FnMut(&Oracle) -> T) -> BTreeMap<T, f64> {
    let mut law = BTreeMap::new();
    Oracle::default().each(|oracle| {
        let outcome = run(oracle);
        *law.entry(outcome).or_default() += oracle.probability();
    });
    law
}
