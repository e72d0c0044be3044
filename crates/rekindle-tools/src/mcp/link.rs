//! The connection to a server: made when it is needed, made anew when it broke.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use rekindle::Secret;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::process::Child;
use tokio::sync::Mutex;

use super::builder::{Config, Target};
use super::handler::{Calls, Handler};
use super::process::Process;
use crate::process::{BEAT_WITHIN, Group, Mark, Start};

/// How long closing a connection may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// A server, whether it is reached just now or not.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) config: Config,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Open(Option<Arc<Link>>),
    Shut,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Peer<RoleClient>,
    pub(super) calls: Calls,
    service: StdMutex<Option<RunningService<RoleClient, Handler>>>,
    process: Option<Process>,
}

impl Lines {
    pub(super) fn new(config: Config) -> Self {
        Self { config, state: Mutex::new(State::Open(None)) }
    }

    /// The connection; a new one if there is none that works. The error says why there is none.
    pub(super) async fn link(&self) -> Result<Arc<Link>, String> {
        let mut state = self.state.lock().await;
        match &mut *state {
            State::Shut => Err("it was shut down".to_owned()),
            State::Open(Some(link)) if !link.peer.is_transport_closed() => Ok(Arc::clone(link)),
            State::Open(link) => {
                // The old one ends its process before there is another.
                *link = None;
                let new = Arc::new(Link::open(&self.config).await?);
                *link = Some(Arc::clone(&new));
                Ok(new)
            }
        }
    }

    pub(super) async fn shutdown(&self) {
        let before = std::mem::replace(&mut *self.state.lock().await, State::Shut);
        if let State::Open(Some(link)) = before {
            link.close().await;
        }
    }
}

impl Link {
    async fn open(config: &Config) -> Result<Self, String> {
        let handler = Handler::default();
        let calls = Arc::clone(&handler.calls);
        let (service, process) = match &config.target {
            Target::Process(start) => {
                let (mut child, group) = start_server(start).await?;
                let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
                    return Err("it has no pipes".to_owned());
                };
                let process = Process::watch(child, group);
                let transport = AsyncRwTransport::new_client(stdout, stdin);
                let serving = tokio::time::timeout(config.connect_timeout, rmcp::serve_client(handler, transport));
                (serving.await, Some(process))
            }
            Target::Http { client, url, headers, bearer } => {
                let transport = http_transport(client, url, headers, bearer.as_ref());
                let serving = tokio::time::timeout(config.connect_timeout, rmcp::serve_client(handler, transport));
                (serving.await, None)
            }
        };
        let service = match service {
            Ok(Ok(service)) => service,
            Ok(Err(error)) => return Err(refused(config, &error, process).await),
            Err(_) => {
                let said = last_words(process.as_ref()).await;
                return Err(format!("it did not answer `initialize` within {:?}{said}", config.connect_timeout));
            }
        };
        Ok(Self { peer: service.peer().clone(), calls, service: StdMutex::new(Some(service)), process })
    }

    /// How the server ended and what it said last, if it is a program.
    pub(super) async fn last_words(&self) -> String {
        last_words(self.process.as_ref()).await
    }

    async fn close(&self) {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut service) = service {
            // Closes the input of a program.
            let _ = service.close_with_timeout(CLOSE_WITHIN).await;
        }
        if let Some(process) = &self.process {
            process.end().await;
        }
    }
}

/// Starts a server with a guard that hears from this process for as long as it is alive.
async fn start_server(start: &Start) -> Result<(Child, Group), String> {
    let start = start.clone();
    let spawning = tokio::task::spawn_blocking(move || {
        let (child, group) = start.spawn(Mark::Server, BEAT_WITHIN)?;
        group.beat()?;
        Ok((child, group))
    });
    spawning.await.map_err(|error| format!("it cannot be started: {error}"))?
}

/// What a server at a URL is reached by.
fn http_transport(
    client: &Client,
    url: &str,
    headers: &HashMap<HeaderName, HeaderValue>,
    bearer: Option<&Secret>,
) -> StreamableHttpClientTransport<Client> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers.clone());
    config.auth_header = bearer.map(|token| token.expose().to_owned());
    StreamableHttpClientTransport::with_client(client.clone(), config)
}

async fn refused(config: &Config, error: &ClientInitializeError, process: Option<Process>) -> String {
    let said = last_words(process.as_ref()).await;
    let why = match error {
        ClientInitializeError::ConnectionClosed(_) => "it ended before it answered `initialize`".to_owned(),
        error if error.is_authorization_required() => "it wants to be authorized".to_owned(),
        error => format!("it cannot be reached: {error}"),
    };
    config.masks.text(format!("{why}{said}"))
}

async fn last_words(process: Option<&Process>) -> String {
    match process {
        Some(process) => process.last_words().await,
        None => String::new(),
    }
}
