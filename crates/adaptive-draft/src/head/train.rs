//! Training of the head: weighted binary cross-entropy over verified draft tokens, as in SpecDec++
//! (Huang, Guo and Wang, arXiv 2405.19715).

use std::collections::VecDeque;

use lm::{AdamW, AdamWConfig};
use spec_decode::{Purpose, StreamName};

use super::{Head, HeadScratch, sigmoid};
use crate::HeadError;

/// One verified draft token.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Features, as [`write_features`](crate::write_features) writes them.
    pub features: Vec<f32>,
    /// Label min(1, p / q'), in `0..=1`.
    pub label: f32,
}

/// Settings of a head and its training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadConfig {
    /// Number of units of the hidden layer; 0 for a linear head.
    pub hidden: usize,
    /// Constant learning rate of AdamW.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Weight of the rejected part of a label, `w (1 - y) log(1 - P)`; that of the accepted part is
    /// 1. SpecDec++ uses 1, 3, 6 and 12.
    pub reject_weight: f64,
    /// N, the size of the buffer R. The oldest examples are dropped.
    pub buffer: usize,
    /// Number of examples drawn from R for one step of interleaved training.
    pub batch: usize,
    /// Number of steps per turn, which is one call of a `step_on` method.
    pub steps: usize,
}

impl Default for HeadConfig {
    fn default() -> Self {
        Self {
            hidden: 32,
            lr: 3e-3,
            weight_decay: 0.01,
            reject_weight: 1.0,
            buffer: 8192,
            batch: 256,
            steps: 1,
        }
    }
}

/// Results of one turn of training. All but the first three are about the examples that arrived
/// since the turn before, as predicted before any training on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadReport {
    /// Number of steps before this turn.
    pub number: u64,
    /// Number of examples of its first step.
    pub examples: usize,
    /// Weighted cross-entropy on them before that step, in nats.
    pub loss: f64,
    /// Number of new examples.
    pub fresh: usize,
    /// Their weighted cross-entropy, in nats. This and the following are NaN without new examples.
    pub fresh_loss: f64,
    /// Mean P(accept).
    pub predicted: f64,
    /// Mean label.
    pub accepted: f64,
    /// Expected calibration error: mean distance between predicted and true acceptance over ten
    /// bins of prediction, weighted by their sizes.
    pub calibration_error: f64,
}

/// A head with its optimiser and its buffer R.
#[derive(Clone, Debug)]
pub struct HeadTrainer {
    pub(super) head: Head,
    pub(super) config: HeadConfig,
    pub(super) optimizer: AdamW,
    /// The buffer R.
    pub(super) buffer: VecDeque<Example>,
    /// Number of examples at its end that arrived since the last turn.
    pub(super) fresh: usize,
    /// Seed of the random streams that draw batches.
    pub(super) seed: u64,
}

/// Mean loss of a batch of so many examples, and its gradient.
struct Graded {
    examples: usize,
    loss: f64,
    gradient: Vec<f32>,
}

impl HeadTrainer {
    /// A trainer of `head`. `seed` determines the batches.
    pub fn new(head: Head, config: HeadConfig, seed: u64) -> Self {
        Self {
            head,
            config,
            optimizer: AdamW::new(Self::optimizer(&config)),
            buffer: VecDeque::new(),
            fresh: 0,
            seed,
        }
    }

    pub(super) fn optimizer(config: &HeadConfig) -> AdamWConfig {
        AdamWConfig {
            weight_decay: config.weight_decay,
            max_grad_norm: Some(1.0),
            ..AdamWConfig::default()
        }
    }

    /// The present head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Adds verified tokens to R. The oldest beyond N are dropped, and those with a feature or label
    /// that is no finite number.
    pub fn extend(&mut self, examples: impl IntoIterator<Item = Example>) {
        let before = self.buffer.len();
        let finite = |e: &Example| e.features.iter().all(|x| x.is_finite()) && e.label.is_finite();
        self.buffer.extend(examples.into_iter().filter(finite));
        self.fresh += self.buffer.len() - before;
        let excess = self.buffer.len().saturating_sub(self.config.buffer);
        self.buffer.drain(..excess);
        self.fresh = self.fresh.min(self.buffer.len());
    }

    /// One turn on the examples that arrived since the last one (Algorithm 3); `None` without any.
    ///
    /// # Errors
    /// A gradient that is not finite.
    pub fn step_on_fresh(&mut self) -> Result<Option<HeadReport>, HeadError> {
        let start = self.buffer.len() - self.fresh;
        self.turn(|own, _| own.graded(own.buffer.range(start..)))
    }

    /// One turn on batches drawn from R with replacement (Algorithm 4); `None` while R is empty.
    ///
    /// # Errors
    /// A gradient that is not finite.
    pub fn step_on_buffer(&mut self) -> Result<Option<HeadReport>, HeadError> {
        let (n, seed, size) = (self.buffer.len(), self.seed, self.config.batch);
        self.turn(|own, step| {
            // Named by the step, so that a trainer read from a file draws the same batches.
            let mut dice = StreamName::new(seed, step).dice(Purpose::Head);
            let draws = if n == 0 { 0 } else { size };
            let mut draw = || ((dice.uniform() * n as f64) as usize).min(n - 1);
            own.graded((0..draws).map(|_| &own.buffer[draw()]))
        })
    }

    /// One turn on these examples, which need not be in R; `None` without any.
    ///
    /// # Errors
    /// A gradient that is not finite.
    pub fn step_on(&mut self, examples: &[Example]) -> Result<Option<HeadReport>, HeadError> {
        self.turn(|own, _| own.graded(examples.iter()))
    }

    /// Takes the configured number of steps, on the batches of their numbers as `graded` grades
    /// them; `None` for an empty batch. Reports the first step.
    fn turn(
        &mut self,
        graded: impl Fn(&Self, u64) -> Graded,
    ) -> Result<Option<HeadReport>, HeadError> {
        let fresh = self.assess();
        let mut first = None;
        for _ in 0..self.config.steps.max(1) {
            let number = self.steps();
            let batch = graded(self, number);
            if batch.examples == 0 {
                return Ok(None);
            }
            let (weights, lr) = (&mut self.head.weights, self.config.lr);
            self.optimizer.step_flat(weights, &batch.gradient, lr)?;
            first.get_or_insert(HeadReport {
                number,
                examples: batch.examples,
                loss: batch.loss,
                ..fresh
            });
        }
        self.fresh = 0;
        Ok(first)
    }

    /// Number of steps taken so far.
    pub fn steps(&self) -> u64 {
        self.optimizer.steps()
    }

    /// Mean loss of a batch and its gradient.
    fn graded<'e>(&self, batch: impl ExactSizeIterator<Item = &'e Example>) -> Graded {
        let examples = batch.len();
        let mut gradient = vec![0.0; self.head.weights.len()];
        let mut scratch = HeadScratch::default();
        let mut loss = 0.0;
        for Example { features, label } in batch {
            let logit = f64::from(self.head.logit(features, &mut scratch));
            let (value, slope) = self.cross_entropy(logit, f64::from(*label));
            loss += value / examples as f64;
            let slope = (slope / examples as f64) as f32;
            self.head.backward(features, &scratch, slope, &mut gradient);
        }
        Graded {
            examples,
            loss,
            gradient,
        }
    }

    /// Loss and its derivative with respect to the logit.
    fn cross_entropy(&self, logit: f64, label: f64) -> (f64, f64) {
        let weight = self.config.reject_weight;
        // log(1 + e^x) without overflow.
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let loss = label * softplus(-logit) + weight * (1.0 - label) * softplus(logit);
        let p = sigmoid(logit);
        (loss, weight * (1.0 - label) * p - label * (1.0 - p))
    }

    /// Predictions on the examples that the head has not been trained on.
    fn assess(&self) -> HeadReport {
        const BINS: usize = 10;
        let mut bins = [(0.0, 0.0); BINS];
        let (mut loss, mut predicted, mut accepted) = (0.0, 0.0, 0.0);
        let mut scratch = HeadScratch::default();
        for example in self.buffer.range(self.buffer.len() - self.fresh..) {
            let label = f64::from(example.label);
            let logit = f64::from(self.head.logit(&example.features, &mut scratch));
            let p = sigmoid(logit);
            loss += self.cross_entropy(logit, label).0;
            predicted += p;
            accepted += label;
            let bin = &mut bins[((p * BINS as f64) as usize).min(BINS - 1)];
            *bin = (bin.0 + p, bin.1 + label);
        }
        let n = self.fresh as f64;
        let gaps = bins.iter().map(|(p, y)| (p - y).abs()).sum::<f64>();
        HeadReport {
            number: 0,
            examples: 0,
            loss: f64::NAN,
            fresh: self.fresh,
            fresh_loss: loss / n,
            predicted: predicted / n,
            accepted: accepted / n,
            calibration_error: gaps / n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acceptance depends on the first feature alone: sigmoid(3 x).
    fn examples(n: usize, seed: u64) -> Vec<Example> {
        let mut dice = StreamName::new(seed, 0).dice(Purpose::Plain);
        let example = |_| {
            let features: Vec<f32> = (0..6).map(|_| 2.0 * dice.uniform() as f32 - 1.0).collect();
            let accepted = dice.uniform() < sigmoid(3.0 * f64::from(features[0]));
            Example {
                features,
                label: if accepted { 1.0 } else { 0.0 },
            }
        };
        (0..n).map(example).collect()
    }

    fn trained(config: HeadConfig) -> (HeadTrainer, HeadReport) {
        let mut trainer = HeadTrainer::new(Head::new(6, config.hidden, 1), config, 1);
        trainer.extend(examples(4000, 1));
        for _ in 0..600 {
            trainer.step_on_buffer().unwrap().unwrap();
        }
        trainer.extend(examples(2000, 2));
        let report = trainer.step_on_fresh().unwrap().unwrap();
        (trainer, report)
    }

    #[test]
    fn both_heads_learn_what_can_be_learnt() {
        for hidden in [0, 8] {
            let config = HeadConfig {
                hidden,
                steps: 4,
                ..HeadConfig::default()
            };
            let (trainer, report) = trained(config);
            assert!(report.calibration_error < 0.04, "{report:?}");
            assert!((report.predicted - report.accepted).abs() < 0.03);
            // The entropy of sigmoid(3 x), x uniform, is 0.458 nats; a constant has 0.693.
            assert!(report.fresh_loss < 0.50, "{report:?}");
            let p = |x: f32| {
                let features = [x, 0.0, 0.0, 0.0, 0.0, 0.0];
                let head = trainer.head();
                head.probability(&features, &mut HeadScratch::default())
            };
            assert!(p(0.8) > 0.85 && p(-0.8) < 0.15);
        }
    }

    #[test]
    fn weighing_rejections_predicts_fewer_acceptances() {
        let heavy = HeadConfig {
            reject_weight: 6.0,
            ..HeadConfig::default()
        };
        let (_, report) = trained(heavy);
        assert!(report.predicted < report.accepted - 0.15, "{report:?}");
    }

    #[test]
    fn the_slope_is_the_derivative_of_the_loss() {
        let config = HeadConfig {
            reject_weight: 2.5,
            ..HeadConfig::default()
        };
        let trainer = HeadTrainer::new(Head::new(1, 0, 0), config, 0);
        for (logit, label) in [(0.3, 0.2), (-4.0, 1.0), (30.0, 0.0), (-50.0, 0.7)] {
            let at = |x| trainer.cross_entropy(x, label).0;
            let numeric = (at(logit + 1e-5) - at(logit - 1e-5)) / 2e-5;
            let slope = trainer.cross_entropy(logit, label).1;
            assert!((numeric - slope).abs() < 1e-5, "{logit} {label}");
        }
    }

    #[test]
    fn the_oldest_examples_leave_the_buffer() {
        let config = HeadConfig {
            buffer: 100,
            ..HeadConfig::default()
        };
        let mut trainer = HeadTrainer::new(Head::new(6, 0, 1), config, 1);
        assert!(trainer.step_on_buffer().unwrap().is_none());
        assert!(trainer.step_on_fresh().unwrap().is_none());
        let all = examples(250, 3);
        trainer.extend(all.clone());
        assert_eq!(trainer.buffer.len(), 100);
        assert_eq!(trainer.buffer[0], all[150]);
        let report = trainer.step_on_fresh().unwrap().unwrap();
        assert_eq!((report.examples, report.number), (100, 0));
        assert!(trainer.step_on_fresh().unwrap().is_none());
    }
}
