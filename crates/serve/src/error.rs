//! Errors of a service, and of its requests: one table from error to HTTP status, type and code,
//! for plain and streamed answers alike.

use std::borrow::Cow;
use std::error::Error;

use adaptive_draft::HeadError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lm::{LmError, ModelError};
use models::ModelsError;
use online::OnlineError;
use serde_json::{Value, json};
use spec_decode::SpecError;

pub(crate) type Result<T, E = ServeError> = std::result::Result<T, E>;

/// Reason for which a service cannot start, learn, save or stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A model folder cannot be opened, or its engine cannot be built or used.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// A configuration or weights cannot be read, or an engine refuses them.
    #[error(transparent)]
    Lm(#[from] LmError),
    /// An engine failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An answer failed.
    #[error(transparent)]
    Decode(#[from] SpecError),
    /// The drafter cannot learn, or a state cannot be used.
    #[error(transparent)]
    Online(Box<OnlineError>),
    /// An acceptance head cannot be trained.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// Something is missing, refused or out of order; the value says what, and may have a hint.
    #[error("{0}")]
    Said(Cow<'static, str>),
    /// Something cannot be used: an option, a target, saved weights, a file.
    #[error("{what}")]
    Of {
        /// A name for it.
        what: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The server of a remote target refuses a request.
    #[error("{url}: {status} {message}{}", refused_hint(*status))]
    Refused {
        /// Address of the server.
        url: String,
        /// Status of its reply.
        status: StatusCode,
        /// Its error message; empty if there is none.
        message: String,
    },
    /// The last saving of the state failed.
    #[error("the state could not be saved; what was learnt after the last saving is lost")]
    NotSaved(#[source] Box<ServeError>),
    /// The learner's thread panicked.
    #[error("the learner's thread panicked")]
    LearnerPanicked,
}

impl ServeError {
    pub(crate) fn said(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Said(what.into())
    }

    /// The error of `what` by its cause.
    pub(crate) fn of<E: Into<Box<dyn Error + Send + Sync>>>(
        what: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Of {
            what,
            source: source.into(),
        }
    }

    /// The messages of the error and its causes in one line.
    pub(crate) fn in_full(&self) -> String {
        online::in_full(self)
    }
}

// Boxed, since results carry the error and this one is the largest.
impl From<OnlineError> for ServeError {
    fn from(error: OnlineError) -> Self {
        Self::Online(Box::new(error))
    }
}

/// Advice about a status that the server of a remote target replied with.
fn refused_hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "\nhint: --target-key KEY, or OMNIDRAFT_TARGET_KEY",
        StatusCode::NOT_FOUND => "\nhint: the server there needs --expose-logits",
        _ => "",
    }
}

/// The error that a [`ServeError`], an [`OnlineError`] or a [`ModelsError`] passes on unchanged, or
/// `cause` itself. A printed chain of causes leaves such wrappers out: their text is the same.
pub fn passed_on<'a>(cause: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    online::passed_on(models::inner_error!(
        cause,
        ServeError: Models Lm Model Decode Online Head System
    ))
}

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
    /// A request without a key names a host that is not this machine's loopback.
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
    /// A remote target cannot be reached, or refuses a round.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_passed_on_is_found_in_a_chain() {
        let inner = LmError::OtherModel.to_string();
        let error = OnlineError::from(ModelsError::from(LmError::OtherModel));
        let error = ServeError::from(error);
        assert!(passed_on(&error).is::<LmError>());
        assert_eq!(error.in_full(), inner);
        let error = ServeError::of("what `L` learnt")(OnlineError::from(LmError::OtherModel));
        assert!(passed_on(&error).is::<ServeError>());
        let cause = error.source().map(online::passed_on);
        assert!(cause.is_some_and(|cause| cause.is::<LmError>()));
        assert_eq!(error.in_full(), format!("what `L` learnt: {inner}"));
    }

    #[test]
    fn a_refusal_of_another_server_has_a_hint() {
        let refused = |status| {
            let error = ServeError::Refused {
                url: "http://there".to_owned(),
                status,
                message: "no".to_owned(),
            };
            error.to_string()
        };
        let told = refused(StatusCode::UNAUTHORIZED);
        assert!(told.starts_with("http://there: 401 Unauthorized no\nhint: --target-key"));
        assert!(refused(StatusCode::NOT_FOUND).contains("--expose-logits"));
        assert_eq!(
            refused(StatusCode::BAD_GATEWAY),
            "http://there: 502 Bad Gateway no"
        );
    }
}
