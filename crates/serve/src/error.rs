//! Errors of requests: one table from error to HTTP status, type and code, for plain and streamed
//! answers alike.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Reason for which a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The body is not JSON, or not of the shape of the API.
    #[error("the body is not a valid request: {0}")]
    Malformed(String),
    /// A parameter is impossible.
    #[error("{message}")]
    Invalid {
        /// The parameter.
        param: Cow<'static, str>,
        /// The error in it.
        message: String,
    },
    /// Prompt and answer do not fit into the context.
    #[error(
        "the prompt has {tokens} tokens and the context {context}, so that there is no room for an answer of {wanted}"
    )]
    ContextLength {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens of the context.
        context: usize,
        /// Tokens of the answer asked for.
        wanted: usize,
    },
    /// No such model.
    #[error("there is no model `{0}`; GET /v1/models lists those there are")]
    UnknownModel(String),
    /// No such page.
    #[error("there is no {0}")]
    NotFound(String),
    /// The page takes other methods.
    #[error("{0} is not allowed here")]
    Method(String),
    /// The body is not declared as JSON.
    #[error("send the header `content-type: application/json`")]
    ContentType,
    /// The key is missing or wrong.
    #[error("a valid API key is needed: `authorization: Bearer KEY`")]
    Unauthorized,
    /// A name that is none of this machine's loopback.
    #[error("the host `{0}` is not served; without an API key only loopback names are")]
    Host(String),
    /// The body is too large.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// The client sent its request too slowly.
    #[error("the body did not come within {0} s")]
    Slow(u64),
    /// Too many requests wait already.
    #[error("the queue is full ({0} requests); try again later")]
    QueueFull(usize),
    /// The answer took too long.
    #[error("the answer was not finished within {0} s")]
    Timeout(u64),
    /// The server is being stopped.
    #[error("the server is shutting down")]
    Stopping,
    /// A remote target that cannot be reached.
    #[error("{0}")]
    Target(String),
    /// A fault of the server's own.
    #[error("internal error: {0}")]
    Internal(String),
}

impl ApiError {
    /// An impossible value of `param`.
    pub fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (param, message) = (param.into(), message.into());
        Self::Invalid { param, message }
    }

    /// HTTP status, type and code of the error.
    fn row(&self) -> (StatusCode, &'static str, Option<&'static str>) {
        const INVALID: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        match self {
            Self::Malformed(_) | Self::Invalid { .. } => (StatusCode::BAD_REQUEST, INVALID, None),
            Self::ContextLength { .. } => {
                let code = Some("context_length_exceeded");
                (StatusCode::BAD_REQUEST, INVALID, code)
            }
            Self::UnknownModel(_) => (StatusCode::NOT_FOUND, INVALID, Some("model_not_found")),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, INVALID, None),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, INVALID, None),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID, None),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, INVALID, Some("invalid_api_key")),
            Self::Host(_) => (StatusCode::FORBIDDEN, INVALID, Some("host_not_served")),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, INVALID, None),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, INVALID, Some("timeout")),
            Self::QueueFull(_) => {
                let kind = "rate_limit_error";
                (StatusCode::TOO_MANY_REQUESTS, kind, Some("queue_full"))
            }
            Self::Timeout(_) => (StatusCode::GATEWAY_TIMEOUT, SERVER, Some("timeout")),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, SERVER, Some("stopping")),
            Self::Target(_) => (StatusCode::BAD_GATEWAY, SERVER, Some("target_unreachable")),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, SERVER, None),
        }
    }

    /// The status of a plain answer.
    pub fn status(&self) -> StatusCode {
        self.row().0
    }

    /// The error object of the API.
    pub fn to_json(&self) -> Value {
        let (_, kind, code) = self.row();
        let param = match self {
            Self::Invalid { param, .. } => Some(&**param),
            Self::UnknownModel(_) => Some("model"),
            _ => None,
        };
        json!({"error": {
            "message": self.to_string(), "type": kind, "param": param, "code": code,
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status(), axum::Json(self.to_json())).into_response();
        let headers = response.headers_mut();
        match self {
            Self::QueueFull(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // The rest of the body is not read, so the connection cannot be used again.
            Self::TooLarge(_) | Self::Slow(_) => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
