//! The Model Context Protocol over streamable HTTP. Clients of 2026-07-28 need no session; those of
//! earlier revisions get one, as long as there is room.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt as _;
use rmcp::ServerHandler;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::request::refused;

const PATH: &str = "/mcp";
/// How long an answer that was given is kept for a client that comes back for it.
const KEPT: Duration = Duration::from_secs(10);

/// Serves what `make` gives under `/mcp`.
pub(crate) fn mount<H: ServerHandler>(
    router: Router,
    make: impl Fn() -> H + Send + Sync + 'static,
    limits: &Limits,
    streams: CancellationToken,
) -> Router {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.completed_cache_ttl = KEPT;
    let sessions = Arc::new(sessions);
    // Names and origins were checked before, for everything that is served.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_max_request_body_bytes(limits.body)
        .with_cancellation_token(streams);
    let service = StreamableHttpService::new(move || Ok(make()), sessions.clone(), config);
    let room = Room { sessions, most: limits.sessions };
    router
        .merge(Router::new().route_service(PATH, service).layer(axum::middleware::from_fn_with_state(room, keep_room)))
}

/// How many sessions there are, and may be.
#[derive(Clone)]
struct Room {
    sessions: Arc<LocalSessionManager>,
    most: usize,
}

/// Turns away who would begin one session too many.
async fn keep_room(State(room): State<Room>, mut request: Request, next: Next) -> Response {
    if room.sessions.sessions.read().await.len() >= room.most {
        let begins;
        (begins, request) = looked_into(request).await;
        if begins {
            let message = "there are as many sessions as this server serves; try later";
            return refused(StatusCode::SERVICE_UNAVAILABLE, message);
        }
    }
    let ends = request.method() == Method::DELETE;
    let mut answer = next.run(request).await;
    // There is nothing more to come, and clients take 202 for a refusal.
    if ends && answer.status() == StatusCode::ACCEPTED {
        *answer.status_mut() = StatusCode::NO_CONTENT;
    }
    answer
}

/// Whether a request begins a session: only what it asks for says so, whatever its headers claim.
async fn looked_into(request: Request) -> (bool, Request) {
    let (head, body) = request.into_parts();
    // It arrived whole before: this neither waits nor fails.
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let begins = matches!(
        serde_json::from_slice(&bytes),
        Ok(ClientJsonRpcMessage::Request(asked)) if matches!(asked.request, ClientRequest::InitializeRequest(_))
    );
    (begins, Request::from_parts(head, Body::from(bytes)))
}
