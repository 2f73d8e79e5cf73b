//! The latest examples, some of which an update sees once more.

use std::collections::VecDeque;

use streams::StreamRng;

use crate::example::Example;

/// A window over the examples that were learnt from.
///
/// ```
/// use distill_loss::{Example, Replay};
/// use streams::StreamRng;
///
/// let mut replay = Replay::new(2, 3, StreamRng::new(1, "replay"));
/// assert!(replay.draw().is_empty());
/// replay.keep(vec![Example::default(); 5]);
/// assert_eq!(replay.draw().len(), 2);
/// ```
pub struct Replay {
    count: usize,
    window: usize,
    kept: VecDeque<Example>,
    /// Size of `kept` in bytes.
    bytes: usize,
    rng: StreamRng,
}

impl Replay {
    /// A window of the last `window` examples, of which each update sees `count`; 0 for none.
    pub fn new(count: usize, window: usize, rng: StreamRng) -> Self {
        Self {
            count,
            window,
            kept: VecDeque::new(),
            bytes: 0,
            rng,
        }
    }

    /// Distinct examples, drawn uniformly: `count` of them, or all if there are fewer.
    pub fn draw(&mut self) -> Vec<&Example> {
        let mut order: Vec<usize> = (0..self.kept.len()).collect();
        if self.count > 0 {
            self.rng.shuffle(&mut order);
        }
        order.truncate(self.count);
        order.into_iter().map(|i| &self.kept[i]).collect()
    }

    /// Adds examples that were learnt from. If the window is full, the oldest are dropped.
    pub fn keep(&mut self, examples: Vec<Example>) {
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
    pub fn forget(&mut self) {
        let bytes = self.kept.pop_front().map_or(0, |oldest| oldest.bytes());
        self.bytes -= bytes;
    }

    /// Bytes that its examples take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
