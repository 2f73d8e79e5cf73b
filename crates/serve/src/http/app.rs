//! State that the handlers of requests share.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};

use super::Http;
use crate::error::ApiError;
use crate::service::Service;

/// Limits on what a client may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a body.
    pub body: usize,
    /// Time for the head of a request, for its body, and for reading what is written to the client.
    pub timeout: Duration,
    /// Maximum number of connections at a time; further ones wait.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 1 << 20,
            timeout: Duration::from_secs(30),
            connections: 512,
        }
    }
}

/// State that handlers share.
pub(super) struct App {
    pub(super) service: Service,
    /// The options, without the key.
    pub(super) http: Http,
    /// Start of the server, in seconds since 1970.
    pub(super) started: u64,
    /// Digest of the key, so that the time of a comparison does not depend on what is sent.
    pub(super) key: Option<[u8; 32]>,
}

/// The body, if it is small enough and arrives in time.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limits: Limits,
) -> Result<Bytes, ApiError> {
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|n| n.to_str().ok());
    let declared: Option<u64> = declared.and_then(|n| n.parse().ok());
    if declared.is_some_and(|n| n > limits.body as u64) {
        return Err(ApiError::TooLarge(limits.body));
    }
    let whole = axum::body::to_bytes(body, limits.body);
    match tokio::time::timeout(limits.timeout, whole).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(ApiError::TooLarge(limits.body)),
        Err(_) => Err(ApiError::Slow(limits.timeout.as_secs())),
    }
}
