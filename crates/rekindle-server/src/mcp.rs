//! The Model Context Protocol over streamable HTTP. Clients of 2026-07-28 need no session; those of
//! earlier revisions get one, as long as there is room.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use http_body_util::BodyExt as _;
use rekindle::Identity;
use rmcp::ServerHandler;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use rmcp::transport::streamable_http_server::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::request::refused;
use crate::sessions::Sessions;

const PATH: &str = "/mcp";
const SESSION: &str = "mcp-session-id";
/// How long an answer that was given is kept for a client that comes back for it.
const KEPT: Duration = Duration::from_secs(10);

tokio::task_local! {
    /// The caller, while the SDK makes what answers.
    static ASKING: Identity;
}

/// Serves what `make` gives under `/mcp`.
pub(crate) fn mount<H: ServerHandler>(
    router: Router,
    make: impl Fn(&Identity) -> H + Send + Sync + 'static,
    limits: &Limits,
    streams: CancellationToken,
) -> Router {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.completed_cache_ttl = KEPT;
    let manager = Arc::new(sessions);
    // Names and origins were checked before, for everything that is served.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_max_request_body_bytes(limits.body)
        .with_cancellation_token(streams);
    let make = move || ASKING.try_with(&make).map_err(std::io::Error::other);
    let service = StreamableHttpService::new(make, manager.clone(), config);
    let served = Arc::new(Served {
        service,
        manager,
        sessions: Arc::default(),
        beginning: AtomicUsize::new(0),
        most: limits.sessions,
    });
    let answer = move |request: Request| {
        let served = Arc::clone(&served);
        async move { served.answer(request).await }
    };
    router.route(PATH, any(answer))
}

/// What is served, and to how many.
struct Served<H: ServerHandler> {
    service: StreamableHttpService<H, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    sessions: Arc<Sessions>,
    /// Requests under way that may begin a session.
    beginning: AtomicUsize,
    /// How many sessions there may be.
    most: usize,
}

impl<H: ServerHandler> Served<H> {
    /// Answers a request, unless it would begin one session too many or use that of another.
    async fn answer(&self, request: Request) -> Response {
        let Some(identity) = request.extensions().get::<Identity>().cloned() else {
            return refused(StatusCode::UNAUTHORIZED, "a credential is needed");
        };
        let credential = identity.credential.clone();
        let named = request.headers().get(SESSION).and_then(|id| id.to_str().ok());
        match named.map(|id| self.sessions.enter(id, credential.as_deref())) {
            // As if there were no such session: whose it is concerns its owner.
            Some(None) => refused(StatusCode::NOT_FOUND, "there is no such session; begin a new one"),
            Some(Some(Some(used))) => {
                let answer = self.pass(identity, request).await;
                let (head, body) = answer.into_parts();
                Response::from_parts(head, used.during(body))
            }
            Some(Some(None)) | None => self.begin(identity, credential, request).await,
        }
    }

    /// Answers a request that may begin a session.
    async fn begin(&self, identity: Identity, credential: Option<String>, mut request: Request) -> Response {
        let under_way = Counted::new(&self.beginning);
        if self.manager.sessions.read().await.len() + under_way.others >= self.most {
            let begins;
            (begins, request) = looked_into(request).await;
            if begins && !self.make_room().await {
                let message = "there are as many sessions as this server serves, all in use; try later";
                return refused(StatusCode::SERVICE_UNAVAILABLE, message);
            }
        }
        let answer = self.pass(identity, request).await;
        if let Some(id) = answer.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            self.sessions.begin(id, credential.as_deref());
        }
        answer
    }

    /// Forgets sessions until there is room for one more.
    async fn make_room(&self) -> bool {
        loop {
            {
                let live = self.manager.sessions.read().await;
                self.sessions.keep(&live.keys().map(|id| &**id).collect::<HashSet<&str>>());
                if live.len() < self.most {
                    return true;
                }
            }
            let Some(oldest) = self.sessions.forget_idle() else { return false };
            if self.manager.close_session(&oldest).await.is_err() {
                return false;
            }
        }
    }

    async fn pass(&self, identity: Identity, request: Request) -> Response {
        let ends = request.method() == Method::DELETE;
        // Boxed, because it is large and would be moved from layer to layer.
        let mut answer = ASKING.scope(identity, Box::pin(self.service.handle(request))).await;
        // There is nothing more to come, and clients take 202 for a refusal.
        if ends && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer.map(Body::new)
    }
}

/// Counts something while it lasts.
struct Counted<'a> {
    count: &'a AtomicUsize,
    /// The number of others when it began.
    others: usize,
}

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        Self { count, others: count.fetch_add(1, Ordering::AcqRel) }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
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
