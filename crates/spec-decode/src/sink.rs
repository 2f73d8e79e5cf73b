//! The teacher's signal, recorded while it is there anyway.

use vocab_align::TargetId;

/// Receives the target's logits of every emitted token, for distillation without a second target
/// forward.
pub trait TeacherSink {
    /// Whether [`record`](Self::record) looks at logits. Where it does not, a target on a device need
    /// not bring them to the host, and they may come empty.
    fn reads(&self) -> bool {
        true
    }

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
    fn reads(&self) -> bool {
        false
    }

    fn record(&mut self, _index: usize, _token: TargetId, _logits: &[f32]) {}
}
