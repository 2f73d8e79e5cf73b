//! Messages to the decode thread.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use adaptive_draft::Head;
use models::Packed;
use online::ArmState;

use super::remote_queue::Reply;
use super::verifier::VerifyRequest;
use crate::request::Job;

/// A message to the decode thread.
pub(crate) enum Command {
    /// A request.
    Request(Box<Job>),
    /// Drafts of another server.
    Verify(VerifyRequest),
    /// The reply to drafts sent to a remote target.
    RemoteReply(Reply),
    /// New weights of an adapter.
    Weights(String, Box<Packed>),
    /// A new state of an adapter's acceptance head, and the number of its training steps.
    Head(String, Arc<Head>, u64),
    /// A request for a copy of what the decode thread knows.
    Snapshot(Sender<ArmState>),
    /// No more requests are taken; running answers have until then.
    Stop(Instant),
}
