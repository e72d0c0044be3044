//! The server: listens, hands connections on, and stops.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rekindle::{Error, ErrorKind, Identity, Result};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::{Access, Place};
use crate::connection::{self, Caller, Entrance};
use crate::crowd::Crowd;
use crate::limits::Limits;
use crate::listener::{Listener, Stream};
use crate::mcp;
use crate::request::{self, Gate};

/// A server that listens, and what it serves.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    access: Access,
    pub(crate) limits: Limits,
    pub(crate) router: Router,
    /// Ends the streams that would never end by themselves.
    pub(crate) streams: CancellationToken,
}

impl Server {
    /// Listens on a port; refused without a token.
    pub async fn bind(address: SocketAddr, access: Access, limits: Limits) -> Result<Self> {
        access.check(Place::Port(address))?;
        let listener = Listener::on_port(address).await.map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("nobody can listen on {address}"))
                .hint("choose another port, or 0 for any that is free")
                .because(error)
        })?;
        Ok(Self::over(listener, access, limits))
    }

    /// Listens on a socket that only its owner may use, in a directory that is made if it is missing. Who
    /// connects is known by the system: see [`Access::with_peer`]. What an earlier server left there is replaced.
    pub async fn bind_socket(path: &Path, access: Access, limits: Limits) -> Result<Self> {
        access.check(Place::Socket)?;
        let listener = Listener::on_socket(path).await.map_err(|error| {
            let message = format!("nobody can listen on {}", path.display());
            let hint = match error.kind() {
                std::io::ErrorKind::AddrInUse => "another server listens there: stop it, or choose another path",
                _ => "choose a path in a directory that only you can write to",
            };
            Error::new(ErrorKind::Invalid, message).hint(hint).because(error)
        })?;
        Ok(Self::over(listener, access, limits))
    }

    fn over(listener: Listener, access: Access, limits: Limits) -> Self {
        let streams = CancellationToken::new();
        Self { listener, access, limits, router: Router::new().fallback(request::nothing_here), streams }
    }

    /// The address it listens on; that of nothing for a socket.
    pub fn address(&self) -> SocketAddr {
        match self.listener.place() {
            Place::Port(address) => address,
            Place::Socket => SocketAddr::from(([0, 0, 0, 0], 0)),
        }
    }

    /// Serves the Model Context Protocol under `/mcp`; `make` gives what answers a client of that identity.
    pub fn mcp<H: rmcp::ServerHandler>(mut self, make: impl Fn(&Identity) -> H + Send + Sync + 'static) -> Self {
        self.router = mcp::mount(self.router, make, &self.limits, self.streams.clone());
        self
    }

    /// Serves until `stop`. Answers under way are finished first, unless that takes longer than
    /// [`Limits::with_draining`] says.
    pub async fn run_until(self, stop: CancellationToken) {
        let Self { listener, access, limits, router, streams } = self;
        let gate = Gate { place: listener.place(), access: access.clone(), limits };
        let entrance = Arc::new(Entrance::new(gate, router));
        let (tasks, crowd) = (TaskTracker::new(), Crowd::new(limits.connections, limits.unauthenticated));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&listener, &crowd) => accepted,
            };
            let (stream, from, uid) = accepted;
            let peer = uid.map(|uid| access.peer(uid).cloned());
            if let Some(None) = peer {
                continue;
            }
            let caller = Caller { member: crowd.join(from), peer: peer.flatten() };
            let (entrance, stop) = (Arc::clone(&entrance), stop.clone());
            match stream {
                Stream::Tcp(stream) => {
                    let _ = stream.set_nodelay(true);
                    tasks.spawn(connection::serve(stream, caller, entrance, stop));
                }
                #[cfg(unix)]
                Stream::Unix(stream) => {
                    tasks.spawn(connection::serve(stream, caller, entrance, stop));
                }
            }
        }
        drop(listener);
        drain(&tasks, &streams, limits.draining).await;
    }
}

/// The next connection, once there is room for it, and its user if that is known.
async fn accept(listener: &Listener, crowd: &Crowd) -> (Stream, crate::crowd::Source, Option<u32>) {
    crowd.room().await;
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                // Those that were to give way may have shown credentials meanwhile.
                crowd.room().await;
                return accepted;
            }
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
