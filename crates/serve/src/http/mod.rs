//! HTTP interface of a [`Service`]: routes, access checks, connections.

mod answer;
mod app;
mod fields;
mod origins;
mod remote;
mod request;

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

use crate::error::{ApiError, Result, ServeError};
use crate::request::Event;
use crate::service::Service;
use crate::stats::About;
pub use app::Limits;
use app::{App, read};
use request::Kind;

/// The page at `/`.
const PAGE: &str = include_str!("page.html");
/// Number of threads that read requests and write answers; decoding has a thread of its own.
const WORKERS: usize = 2;
/// Pause between two checks of whether the last answers have ended.
const POLL: Duration = Duration::from_millis(20);
/// Time that the end waits for prompts that are being tokenised.
const TOKENISING: Duration = Duration::from_secs(30);
/// Number of threads that tokenise prompts.
const TOKENISERS: usize = 2;

/// Options of the HTTP interface.
#[derive(Debug, Clone)]
pub struct Http {
    /// Address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Key that requests must have; without one, the server listens on loopback addresses only.
    pub api_key: Option<String>,
    /// Limits on what a client may use.
    pub limits: Limits,
    /// Program and machine as `/metrics` shows them.
    pub about: About,
    /// Origins (`http://localhost:3000`) whose pages may read answers in a browser; `*` for all.
    pub origins: Vec<String>,
}

impl Http {
    /// On this machine alone, without a key; port 0 takes a free one.
    pub fn loopback(port: u16) -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            api_key: None,
            limits: Limits::default(),
            about: About::default(),
            origins: Vec::new(),
        }
    }

    /// Refuses an address that other machines can reach, unless there is a key.
    ///
    /// # Errors
    /// The address is not loopback and there is no key.
    pub fn check(&self) -> Result<()> {
        if self.api_key.is_none() && !self.address.ip().is_loopback() {
            let address = self.address;
            return Err(ServeError::said(format!(
                "{address} can be reached from other machines\nhint: give an --api-key, or listen on 127.0.0.1"
            )));
        }
        Ok(())
    }
}

/// Waits for an interrupt or a request of the system to terminate.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Calls `on_interrupt` at every interrupt, on a thread of its own, instead of ending the program.
///
/// # Errors
/// A thread that cannot be started.
pub fn watch_interrupts(on_interrupt: impl Fn() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let watch = move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                on_interrupt();
            }
        });
    };
    std::thread::Builder::new()
        .name("interrupts".to_owned())
        .spawn(watch)?;
    Ok(())
}

/// Listens until `stop` resolves, then stops the service. `ready` is called with the address.
///
/// # Errors
/// An address that is not loopback without a key, or cannot be bound; a service that failed.
pub fn serve(
    service: Service,
    mut http: Http,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    http.check()?;
    let (address, limits, key) = (http.address, http.limits, http.api_key.take());
    let listener = TcpListener::bind(address)
        .map_err(ServeError::of(format!("cannot listen on {address}")))?;
    listener.set_nonblocking(true)?;
    let app = Arc::new(App {
        service,
        started: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        key: key.map(|key| Sha256::digest(key.as_bytes()).into()),
        http,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(TOKENISERS)
        .thread_name("http")
        .enable_all()
        .build()?;
    let router = router(Arc::clone(&app));
    let serving = Arc::clone(&app);
    runtime.block_on(async {
        ready(listener.local_addr()?);
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            () = accept(listener, router, limits) => {}
            () = stop => {}
        }
        // No more connections; running answers may finish.
        serving.service.stop_accepting();
        while serving.service.is_alive() {
            tokio::time::sleep(POLL).await;
        }
        tokio::time::sleep(POLL).await;
        drop(serving);
        Ok::<_, std::io::Error>(())
    })?;
    // Handlers hold references to `app`; they end with the runtime.
    runtime.shutdown_timeout(Duration::from_millis(200));
    // A thread that tokenises a prompt holds one longer, and what was learnt is saved after it.
    let until = Instant::now() + TOKENISING;
    let mut app = app;
    loop {
        app = match Arc::try_unwrap(app) {
            Ok(mut app) => return app.service.stop(),
            Err(_) if Instant::now() > until => {
                let message = "a request is still at work; the state as last saved counts";
                return Err(ServeError::said(message));
            }
            Err(app) => app,
        };
        std::thread::sleep(POLL);
    }
}

/// Accepts connections, each on a task of its own.
async fn accept(listener: tokio::net::TcpListener, router: Router, limits: Limits) {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // No file descriptor was free, or the client closed the connection at once.
                tracing::debug!("a connection failed: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.timeout));
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.timeout)
                .max_buf_size(64 << 10)
                .serve_connection(TokioIo::new(Box::pin(stream)), service);
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
}

fn router(app: Arc<App>) -> Router {
    let api = Router::new()
        .route(
            "/v1/chat/completions",
            post(|app, headers, body| answer(app, Kind::Chat, headers, body)),
        )
        .route(
            "/v1/completions",
            post(|app, headers, body| answer(app, Kind::Text, headers, body)),
        )
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .merge(remote::router(&app))
        .layer(from_fn_with_state(Arc::clone(&app), key))
        .route("/", get(page))
        .route("/health", get(health))
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard));
    api.with_state(app)
}

/// Counts answers by status and answers preflight requests of allowed origins. Without a key it
/// refuses host names that are not loopback (against DNS rebinding): a page of another site must
/// not reach the server through a name of that site that resolves to this machine.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let origin = origins::allowed(&app.http.origins, request.headers());
    let mut response = match host(request.headers(), request.uri()) {
        Some(host) if app.key.is_none() && !is_loopback(&host) => {
            ApiError::Host(host).into_response()
        }
        _ if origin.is_some() && origins::is_preflight(&request) => {
            origins::answer_preflight(request.headers())
        }
        _ => next.run(request).await,
    };
    if let Some(origin) = origin {
        origins::allow(&mut response, origin);
    }
    app.service.stats().request(response.status().as_u16());
    response
}

/// The host that a request names, without its port.
fn host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    if let Some(host) = uri.host() {
        return Some(host.to_owned());
    }
    let header = String::from_utf8_lossy(headers.get(header::HOST)?.as_bytes());
    let authority: Option<axum::http::uri::Authority> = header.parse().ok();
    Some(authority.map_or_else(|| header.clone().into_owned(), |a| a.host().to_owned()))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = bare.parse().ok();
    bare.eq_ignore_ascii_case("localhost") || address.is_some_and(|ip| ip.is_loopback())
}

async fn key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(wanted) = &app.key else {
        return next.run(request).await;
    };
    let sent = request.headers().get(header::AUTHORIZATION);
    let sent = sent.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let sent: Option<[u8; 32]> = sent.map(|key| Sha256::digest(key).into());
    match sent {
        Some(digest) if digest == *wanted => next.run(request).await,
        _ => ApiError::Unauthorized.into_response(),
    }
}

async fn answer(
    State(app): State<Arc<App>>,
    kind: Kind,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    // A page of another site may send other content types without a preflight request.
    let kind_of_body = headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.as_bytes());
    let json = kind_of_body.is_some_and(|value| {
        let value = value.split(|byte| *byte == b';').next().unwrap_or_default();
        value.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    if !json {
        return Err(ApiError::ContentType);
    }
    let body = read(&headers, body, app.http.limits).await?;
    let reading = Arc::clone(&app);
    let parsed = tokio::task::spawn_blocking(move || request::parse(kind, &body, &reading.service));
    let parsed = parsed
        .await
        .map_err(|e| ApiError::Internal(e.to_string()))??;
    let mut events = app.service.submit(parsed.requests.clone())?;
    if !parsed.stream {
        return answer::whole(app.service.models(), &parsed, events).await;
    }
    // A request that fails before its first piece has a status that says so.
    match events.recv().await {
        Some((_, Event::Failed(error))) => Err(error),
        None => Err(ApiError::Internal("the decode thread has ended".into())),
        Some(first) => Ok(answer::stream(parsed, first, events, Arc::clone(&app))),
    }
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let models = app.service.models().targets.iter();
    let data: Vec<_> = models
        .map(|target| model_json(&target.name, target.context, app.started))
        .collect();
    axum::Json(json!({"object": "list", "data": data})).into_response()
}

async fn model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<axum::Json<Value>, ApiError> {
    let models = app.service.models();
    let context = models.targets[models.find(Some(&name))?].context;
    Ok(axum::Json(model_json(&name, context, app.started)))
}

fn model_json(name: &str, context: usize, created: u64) -> Value {
    json!({"id": name, "object": "model", "created": created, "owned_by": "omnidraft", "context_length": context})
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, app.service.stats().prometheus(&app.http.about)).into_response()
}

async fn stats(State(app): State<Arc<App>>) -> Response {
    axum::Json(app.service.stats().to_json()).into_response()
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        // The page needs nothing from other sites, and shows text written by models.
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:",
        ),
    ];
    (headers, PAGE).into_response()
}

async fn health(State(app): State<Arc<App>>) -> Response {
    match app.service.is_alive() {
        true => axum::Json(json!({"status": "ok"})).into_response(),
        false => ApiError::Stopping.into_response(),
    }
}

async fn nothing(request: Request) -> Response {
    let path = request.uri().path();
    let short: String = path.chars().take(100).collect();
    ApiError::NotFound(format!("`{short}`")).into_response()
}

async fn wrong_method(request: Request) -> Response {
    ApiError::Method(request.method().to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn loopback_has_few_names() {
        for host in [
            "localhost",
            "LOCALHOST",
            "127.0.0.1",
            "127.8.9.1",
            "[::1]",
            "::1",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "example.com",
            "10.0.0.1",
            "localhost.example.com",
            "",
            "127.0.0.1.x.org",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
