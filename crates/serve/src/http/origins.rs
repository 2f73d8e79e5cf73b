//! Cross-origin requests: pages of other origins that may read answers in a browser.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Seconds that a browser may cache the answer to a preflight request.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, OPTIONS");
const HEADERS: HeaderValue = HeaderValue::from_static("authorization, content-type");

/// The origin of a request if it is one of `origins`, with or without a slash at its end.
pub(super) fn allowed(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    let same = |own: &String| own == "*" || own.trim_end_matches('/').eq_ignore_ascii_case(text);
    origins.iter().any(same).then(|| origin.clone())
}

/// True for a preflight request: the browser asks what a page may send, before it sends it.
pub(super) fn is_preflight(request: &Request) -> bool {
    let asked = header::ACCESS_CONTROL_REQUEST_METHOD;
    request.method() == Method::OPTIONS && request.headers().contains_key(asked)
}

/// The answer to a preflight request.
pub(super) fn answer_preflight(headers: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let told = response.headers_mut();
    told.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    told.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        wanted.unwrap_or(HEADERS),
    );
    told.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
    response
}

/// Lets a page of this origin read the answer.
pub(super) fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}
