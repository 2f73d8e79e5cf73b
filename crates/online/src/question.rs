//! A question to an arm.

use spec_decode::{Pair, Prompt, SessionConfig, StreamName};

/// A prompt with its target and settings.
pub struct Question<'a> {
    /// The vocabularies.
    pub pair: &'a Pair,
    /// Settings of the session. The arm replaces the acceptance rule and, if it names one, the
    /// mode; it also decides what the drafter reads, and whether n-grams are learnt.
    pub session: &'a SessionConfig,
    /// The prompt in both vocabularies.
    pub prompt: Prompt<'a>,
    /// Name of the random streams.
    pub name: StreamName,
    /// True if the prompt is streamed, false if it is held out.
    pub streamed: bool,
    /// True if padded models answer.
    pub padded: bool,
}
