//! Costs as they are found while decoding.

use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use crate::Costs;

/// Rounds after which a measurement counts 1/e.
const MEMORY: f64 = 1000.0;
/// Weight of the given costs, in rounds.
const PRIOR: f64 = 8.0;

/// Running means of the seconds of rounds, by length.
///
/// Decisions made from them follow the machine: two runs need not decide alike. The law of the
/// output stays, since nothing is decided by what the target draws in the round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasuredCosts {
    /// Rounds and seconds by drafted tokens, from 1.
    draft: Vec<[f64; 2]>,
    /// By positions of the target's forward, from 1.
    verify: Vec<[f64; 2]>,
    rest: [f64; 2],
}

impl MeasuredCosts {
    /// Takes in a round.
    pub fn observe(&mut self, outcome: &RoundOutcome) {
        let keep = 1.0 - 1.0 / MEMORY;
        let all = self.draft.iter_mut().chain(&mut self.verify);
        let all = all.chain([&mut self.rest]).flatten();
        all.for_each(|sum| *sum *= keep);
        let timings = &outcome.timings;
        if let Some(last) = outcome.draft.len().checked_sub(1) {
            add(&mut self.draft, last, timings.draft);
        }
        let judged = timings.target + timings.verify;
        add(&mut self.verify, outcome.proposed(), judged);
        self.rest[0] += 1.0;
        self.rest[1] += timings.translate + timings.commit;
    }

    /// In steps of the target; `given` is believed of what was seen in few rounds.
    pub fn costs(&self, given: &Costs) -> Costs {
        // A step: what makes the forwards seen cost what they are given to cost.
        let seen = |cost: &dyn Fn(usize) -> f64, sums: &[[f64; 2]]| -> f64 {
            let each = sums.iter().enumerate();
            each.map(|(i, [rounds, _])| rounds * cost(i + 1)).sum()
        };
        let expected = seen(&|n| given.verify(n), &self.verify);
        let seconds: f64 = self.verify.iter().map(|[_, seconds]| seconds).sum();
        if expected <= 0.0 || seconds <= 0.0 {
            return given.clone();
        }
        let step = seconds / expected;
        let list = |sums: &[[f64; 2]], cost: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let mut least: f64 = 0.0;
            let each = sums.iter().enumerate().map(|(i, [rounds, seconds])| {
                let mean = (seconds / step + PRIOR * cost(i + 1)) / (rounds + PRIOR);
                least = least.max(mean);
                least
            });
            each.collect()
        };
        let or = |list: Vec<f64>, given: &[f64]| match list.len() {
            0 | 1 => given.to_vec(),
            _ => list,
        };
        Costs {
            draft: or(list(&self.draft, &|n| given.draft(n)), &given.draft),
            verify: or(list(&self.verify, &|n| given.verify(n)), &given.verify),
            round: (self.rest[1] / step + PRIOR * given.round) / (self.rest[0] + PRIOR),
        }
    }
}

fn add(sums: &mut Vec<[f64; 2]>, at: usize, seconds: f64) {
    if sums.len() <= at {
        sums.resize(at + 1, [0.0; 2]);
    }
    sums[at][0] += 1.0;
    sums[at][1] += seconds;
}

/// Lets another policy decide, and measures.
#[derive(Debug)]
pub struct CostMeter<'a, P> {
    inner: P,
    measured: &'a mut MeasuredCosts,
}

impl<'a, P> CostMeter<'a, P> {
    /// Measures into `measured`.
    pub fn new(inner: P, measured: &'a mut MeasuredCosts) -> Self {
        Self { inner, measured }
    }
}

impl<P: DraftPolicy> DraftPolicy for CostMeter<'_, P> {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        self.inner.plan_copy(found)
    }

    fn next_len(&mut self) -> usize {
        self.inner.next_len()
    }

    fn reads_drafter(&self) -> bool {
        self.inner.reads_drafter()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.inner.stop_after(step)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.measured.observe(outcome);
        self.inner.observe(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec_decode::{Origin, Proposal, Timings};
    use vocab_align::{DraftId, TargetId};

    fn round(drafted: usize) -> RoundOutcome {
        RoundOutcome {
            round: 0,
            draft: vec![DraftId(0); drafted],
            proposals: (0..drafted)
                .map(|i| Proposal {
                    target: TargetId(0),
                    span: i..i + 1,
                    kind: ngram_cache::Kind::Direct,
                })
                .collect(),
            accepted: 0,
            emitted: vec![TargetId(0)],
            origin: Origin::Residual,
            scores: Vec::new(),
            emitted_bytes: 0,
            inserted: 0,
            timings: Timings {
                draft: 0.002 * drafted as f64,
                target: 0.02 + 0.001 * drafted as f64,
                commit: 0.001,
                ..Timings::default()
            },
        }
    }

    #[test]
    fn measured_costs_approach_what_rounds_took() {
        let given = Costs {
            draft: vec![0.5],
            verify: vec![1.0, 1.05, 1.1, 1.15],
            round: 0.0,
        };
        let mut measured = MeasuredCosts::default();
        assert_eq!(measured.costs(&given), given);
        for i in 0..4000 {
            measured.observe(&round(i % 4));
        }
        let found = measured.costs(&given);
        assert!(found.check().is_ok(), "{found:?}");
        for drafted in 1..4 {
            let expected = 0.1 * drafted as f64;
            assert!((found.draft(drafted) - expected).abs() < 0.05, "{found:?}");
            let expected = 1.0 + 0.05 * drafted as f64;
            assert!((found.verify(1 + drafted) - expected).abs() < 0.01);
        }
        assert!((found.round - 0.05).abs() < 0.01, "{}", found.round);
    }
}
