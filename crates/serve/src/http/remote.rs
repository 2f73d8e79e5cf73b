//! Routes for drafts of other servers: descriptions of targets, and verification of rounds.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use models::TEXT_FILES;

use super::app::{App, read};
use crate::error::ApiError;
use crate::models::Target;
use crate::remote::wire::{ROUNDS, Rounds, TARGETS, TargetInfo, VERSION};

/// Content type of rounds, which a page of another site may not send without a preflight request.
const BINARY: &[u8] = b"application/octet-stream";

/// The routes; none unless drafts of other servers are verified.
pub(super) fn router(app: &App) -> Router<Arc<App>> {
    match app.service.options().expose {
        None => Router::new(),
        Some(_) => Router::new()
            .route(ROUNDS, post(rounds))
            .route(TARGETS, get(info))
            .route(&format!("{TARGETS}/{{name}}"), get(info))
            .route(&format!("{TARGETS}/{{name}}/{{*file}}"), get(file)),
    }
}

/// A local target by its name.
fn local<'a>(app: &'a App, name: Option<&str>) -> Result<(usize, &'a Target), ApiError> {
    let models = app.service.models();
    let index = models.find(name)?;
    let target = &models.targets[index];
    match target.folder() {
        Some(_) => Ok((index, target)),
        None => Err(ApiError::UnknownModel(target.name.clone())),
    }
}

/// The description of a target; of the first one if the address names none.
async fn info(
    State(app): State<Arc<App>>,
    name: Option<Path<String>>,
) -> Result<Response, ApiError> {
    let name = name.as_ref().map(|Path(name)| name.as_str());
    let (_, target) = local(&app, name)?;
    let present = |file: &&&str| target.text.path.join(file).is_file();
    let files = TEXT_FILES.iter().filter(present);
    let info = TargetInfo {
        version: VERSION,
        name: target.name.clone(),
        vocab_size: target.vocab_size,
        context: target.context,
        files: files.map(ToString::to_string).collect(),
        stop: Some(target.text.stop_tokens().into_iter().collect()),
    };
    Ok(axum::Json(info).into_response())
}

/// One of the files that are needed to write and read a target's tokens; other files are not
/// served.
async fn file(
    State(app): State<Arc<App>>,
    Path((name, file)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (_, target) = local(&app, Some(&name))?;
    let missing =
        || ApiError::NotFound(format!("`{}`", file.chars().take(100).collect::<String>()));
    let known = TEXT_FILES.iter().find(|known| **known == file);
    let path = target.text.path.join(known.ok_or_else(missing)?);
    let bytes = tokio::task::spawn_blocking(|| std::fs::read(path)).await;
    let bytes = bytes.ok().and_then(Result::ok).ok_or_else(missing)?;
    Ok(Bytes::from(bytes).into_response())
}

async fn rounds(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map(|kind| kind.as_bytes());
    if kind != Some(BINARY) {
        return Err(ApiError::Malformed(
            "rounds are sent as application/octet-stream".into(),
        ));
    }
    let body = read(&headers, body, app.http.limits).await?;
    let wrong = |e: &dyn std::fmt::Display| ApiError::Malformed(e.to_string());
    let rounds: Rounds = postcard::from_bytes(&body).map_err(|e| wrong(&e))?;
    if rounds.version != VERSION {
        return Err(wrong(&format_args!(
            "version {} is not {VERSION}",
            rounds.version
        )));
    }
    let (target, _) = local(&app, Some(&rounds.target))?;
    let answers = app.service.verify(target, rounds.rounds).await;
    let answers = answers.map_err(|_| ApiError::Stopping)?;
    let bytes = postcard::to_stdvec(&answers).map_err(|e| ApiError::Internal(e.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}
