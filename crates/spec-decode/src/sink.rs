//! The teacher's signal, recorded while it is there anyway.

use vocab_align::TargetId;

/// Receives the target's logits of every emitted token, for distillation without a second target
/// forward.
pub trait TeacherSink {
    /// Called once per emitted token, in order.
    ///
    /// `index` counts the tokens of the response from 0, `logits` (`[V_p]`, raw, before any
    /// temperature) is the row that decided `token`.
    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]);
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoSink;

impl TeacherSink for NoSink {
    fn record(&mut self, _index: usize, _token: TargetId, _logits: &[f32]) {}
}
