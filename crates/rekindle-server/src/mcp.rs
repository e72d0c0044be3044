//! The Model Context Protocol over streamable HTTP. Clients of 2026-07-28 need no session; those of
//! earlier revisions get one, as long as there is room.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
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
    let served = Arc::new(Served { service, sessions, most: limits.sessions });
    let answer = move |request: Request| {
        let served = Arc::clone(&served);
        async move { served.answer(request).await }
    };
    router.route(PATH, any(answer))
}

/// What is served, and to how many.
struct Served<H: ServerHandler> {
    service: StreamableHttpService<H, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// How many sessions there may be.
    most: usize,
}

impl<H: ServerHandler> Served<H> {
    /// Answers a request, unless it would begin one session too many.
    async fn answer(&self, mut request: Request) -> Response {
        if self.sessions.sessions.read().await.len() >= self.most {
            let begins;
            (begins, request) = looked_into(request).await;
            if begins {
                let message = "there are as many sessions as this server serves; try later";
                return refused(StatusCode::SERVICE_UNAVAILABLE, message);
            }
        }
        let ends = request.method() == Method::DELETE;
        // Boxed, because it is large and would be moved from layer to layer.
        let mut answer = Box::pin(self.service.handle(request)).await;
        // There is nothing more to come, and clients take 202 for a refusal.
        if ends && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer.map(Body::new)
    }
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
