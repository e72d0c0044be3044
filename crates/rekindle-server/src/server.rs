//! The server: listens, hands connections on, and stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rekindle_core::{Error, ErrorKind, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::connection::{self, Entrance};
use crate::limits::Limits;
use crate::mcp;
use crate::request::{self, Gate};

/// A server that listens, and what it serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
    pub(crate) limits: Limits,
    pub(crate) router: Router,
    /// Ends the streams that would never end by themselves.
    pub(crate) streams: CancellationToken,
}

impl Server {
    /// Listens. An address that other machines reach is refused without a token.
    pub async fn bind(address: SocketAddr, access: Access, limits: Limits) -> Result<Self> {
        access.check(address)?;
        let listening = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            std::io::Result::Ok((listener, address))
        };
        let (listener, address) = listening.await.map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("nobody can listen on {address}"))
                .hint("choose another port, or 0 for any that is free")
                .because(error)
        })?;
        let streams = CancellationToken::new();
        Ok(Self { listener, address, access, limits, router: Router::new().fallback(request::nothing_here), streams })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the Model Context Protocol under `/mcp`; `make` gives what answers, for each client.
    pub fn mcp<H: rmcp::ServerHandler>(mut self, make: impl Fn() -> H + Send + Sync + 'static) -> Self {
        self.router = mcp::mount(self.router, make, &self.limits, self.streams.clone());
        self
    }

    /// Serves until `stop`. Answers under way are finished first, unless that takes longer than
    /// [`Limits::with_draining`] says.
    pub async fn run_until(self, stop: CancellationToken) {
        let Self { listener, address, access, limits, router, streams } = self;
        let entrance = Arc::new(Entrance::new(Gate { address, access, limits }, router));
        let (tasks, at_once) = (TaskTracker::new(), Arc::new(Semaphore::new(limits.connections)));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&listener, &at_once) => accepted,
            };
            let (stream, permit) = accepted;
            let serving = connection::serve(stream, Arc::clone(&entrance), stop.clone());
            tasks.spawn(async move {
                serving.await;
                drop(permit);
            });
        }
        drop(listener);
        drain(&tasks, &streams, limits.draining).await;
    }
}

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, at_once: &Arc<Semaphore>) -> (TcpStream, tokio::sync::OwnedSemaphorePermit) {
    let permit = at_once.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            // A client that went, or no file descriptors: the next try may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Lets answers end. Streams are ended at half-time: they wait for what may never come.
async fn drain(tasks: &TaskTracker, streams: &CancellationToken, patience: Duration) {
    tasks.close();
    if tokio::time::timeout(patience / 2, tasks.wait()).await.is_err() {
        streams.cancel();
        let _ = tokio::time::timeout(patience / 2, tasks.wait()).await;
    }
    streams.cancel();
}
