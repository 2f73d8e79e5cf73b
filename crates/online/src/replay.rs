//! The latest examples, some of which an update sees once more.

use std::collections::VecDeque;

use super::example::Example;
use experiment::LearnConfig;
use streams::StreamRng;

/// A window over the examples learnt from.
pub(super) struct Replay {
    count: usize,
    window: usize,
    pub(super) kept: VecDeque<Example>,
    /// What these take.
    bytes: usize,
    rng: StreamRng,
}

impl Replay {
    /// Nothing to replay yet; `seed` and `name` decide what will be.
    pub(super) fn new(config: &LearnConfig, seed: u64, name: &str) -> Self {
        Self {
            count: config.replay,
            window: config.replay_window,
            kept: VecDeque::new(),
            bytes: 0,
            rng: StreamRng::new(seed, &format!("replay{name}")),
        }
    }

    /// Indices of distinct examples, all alike likely.
    pub(super) fn draw(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.kept.len()).collect();
        if self.count > 0 {
            self.rng.shuffle(&mut order);
        }
        order.truncate(self.count);
        order
    }

    /// Adds examples that were learnt from.
    pub(super) fn keep(&mut self, examples: Vec<Example>) {
        if self.count == 0 {
            return;
        }
        self.bytes += examples.iter().map(Example::bytes).sum::<usize>();
        self.kept.extend(examples);
        while self.kept.len() > self.window {
            self.forget();
        }
    }

    /// Forgets the oldest example.
    pub(super) fn forget(&mut self) {
        let bytes = self.kept.pop_front().map_or(0, |oldest| oldest.bytes());
        self.bytes -= bytes;
    }

    /// What its examples take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
