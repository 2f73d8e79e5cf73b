//! The latest lessons, some of which an update sees once more.

use std::collections::VecDeque;

use super::lesson::Lesson;
use crate::learn::LearnConfig;
use crate::streams::StreamRng;

/// A window over the lessons learnt from.
pub(super) struct Replay {
    count: usize,
    window: usize,
    pub(super) kept: VecDeque<Lesson>,
    rng: StreamRng,
}

impl Replay {
    /// Nothing to replay yet; `seed` and `name` decide what will be.
    pub(super) fn new(config: &LearnConfig, seed: u64, name: &str) -> Self {
        Self {
            count: config.replay,
            window: config.replay_window,
            kept: VecDeque::new(),
            rng: StreamRng::new(seed, &format!("replay{name}")),
        }
    }

    /// Indices of distinct lessons, all alike likely.
    pub(super) fn draw(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.kept.len()).collect();
        if self.count > 0 {
            self.rng.shuffle(&mut order);
        }
        order.truncate(self.count);
        order
    }

    /// Adds lessons that were learnt from.
    pub(super) fn keep(&mut self, lessons: Vec<Lesson>) {
        if self.count == 0 {
            return;
        }
        self.kept.extend(lessons);
        let excess = self.kept.len().saturating_sub(self.window);
        self.kept.drain(..excess);
    }
}
