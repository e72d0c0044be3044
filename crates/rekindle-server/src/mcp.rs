//! The Model Context Protocol over streamable HTTP. Clients of 2026-07-28 need no session; those of
//! earlier revisions get one, as long as there is room.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::request::refused;

const PATH: &str = "/mcp";
const SESSION: &str = "mcp-session-id";

/// Serves what `make` gives under `/mcp`.
pub(crate) fn mount<H: ServerHandler>(
    router: Router,
    make: impl Fn() -> H + Send + Sync + 'static,
    limits: &Limits,
    streams: CancellationToken,
) -> Router {
    let sessions = Arc::new(LocalSessionManager::default());
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
async fn keep_room(State(room): State<Room>, request: Request, next: Next) -> Response {
    let may_begin = !request.headers().contains_key(SESSION);
    if may_begin && room.sessions.sessions.read().await.len() >= room.most && begins(&request) {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "there are as many sessions as this server serves; try later");
    }
    let ends = request.method() == Method::DELETE;
    let mut answer = next.run(request).await;
    // There is nothing more to come, and clients take 202 for a refusal.
    if ends && answer.status() == StatusCode::ACCEPTED {
        *answer.status_mut() = StatusCode::NO_CONTENT;
    }
    answer
}

/// Requests of revisions without sessions say which one they speak.
fn begins(request: &Request) -> bool {
    let version = request.headers().get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    version.is_none_or(|version| version < "2026-07-28")
}
