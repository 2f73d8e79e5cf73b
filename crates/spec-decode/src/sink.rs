//! Recording of the target's logits for distillation.

use vocab_align::TargetId;

/// Receiver of the target's logits of every emitted token, for distillation without a second target
/// forward.
pub trait TeacherSink {
    /// True if [`record`](Self::record) reads logits. Otherwise a target on a device need not copy
    /// them to the host, and they may be empty.
    fn reads(&self) -> bool {
        true
    }

    /// Called once per emitted token, in order.
    ///
    /// `index` counts the tokens of the response from 0. `logits` (`[V_p]`, raw, before any
    /// temperature) is the row that determined `token`. It is empty if the round was verified
    /// elsewhere and the row is not known.
    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]);
}

/// A sink that records nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoSink;

impl TeacherSink for NoSink {
    fn reads(&self) -> bool {
        false
    }

    fn record(&mut self, _index: usize, _token: TargetId, _logits: &[f32]) {}
}
