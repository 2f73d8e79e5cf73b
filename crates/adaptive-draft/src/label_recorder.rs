//! Collection of training examples from drafts of any policy.

use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, RoundOutcome};

use crate::labels::labels;
use crate::throughput::{Chain, Score, Scorer, bin_of};
use crate::{DraftSignal, Example, Head, write_features};

/// Policy that lets another policy decide and records every verified token, as an example for a
/// head and in the chains of throughput plans.
#[derive(Debug)]
pub struct LabelRecorder<'a, P> {
    inner: P,
    head: Option<&'a Head>,
    chains: &'a mut [Chain],
    examples: Option<&'a mut Vec<Example>>,
    round: Vec<Token>,
    scorer: Scorer,
}

/// A token of the present round.
#[derive(Debug)]
struct Token {
    features: Vec<f32>,
    /// Bins of its scores, by chain.
    bins: Vec<usize>,
}

impl<'a, P> LabelRecorder<'a, P> {
    /// Records into `examples`, and into `chains`; `head` computes the scores of chains that need
    /// one.
    pub fn new(
        inner: P,
        head: Option<&'a Head>,
        chains: &'a mut [Chain],
        examples: Option<&'a mut Vec<Example>>,
    ) -> Self {
        Self {
            inner,
            head,
            chains,
            examples,
            round: Vec::new(),
            scorer: Scorer::default(),
        }
    }

    fn record(&mut self, step: &DraftStep<'_>) {
        let mut features = Vec::new();
        if self.examples.is_some() {
            let signal = DraftSignal::of(step.token, step.logits);
            write_features(signal, step.state, &mut features);
        }
        let bin = |chain: &Chain| match chain.score() {
            Score::Position => step.position,
            by => bin_of(self.scorer.score(by, self.head, step)),
        };
        let bins = self.chains.iter().map(bin).collect();
        self.round.push(Token { features, bins });
    }
}

impl<P: DraftPolicy> DraftPolicy for LabelRecorder<'_, P> {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        self.round.clear();
        self.inner.plan_copy(found)
    }

    fn next_len(&mut self) -> usize {
        self.round.clear();
        self.inner.next_len()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.record(step);
        self.inner.stop_after(step)
    }

    fn is_worth(&self, others: usize, chance: f64) -> bool {
        self.inner.is_worth(others, chance)
    }

    fn draft_acceptance(&self, position: usize, probability: f64) -> f64 {
        self.inner.draft_acceptance(position, probability)
    }

    fn copy_acceptance(&self, matched: usize) -> f64 {
        self.inner.copy_acceptance(matched)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        self.inner.observe(outcome);
        let judged = labels(outcome);
        for (index, chain) in self.chains.iter_mut().enumerate() {
            let bins = self.round.iter().map(|token| token.bins[index]);
            chain.observe(bins, &judged);
        }
        let Some(examples) = &mut self.examples else {
            return;
        };
        for (token, label) in self.round.drain(..).zip(judged) {
            if let Some(label) = label {
                examples.push(Example {
                    features: token.features,
                    label: label.accepted as f32,
                });
            }
        }
    }
}
