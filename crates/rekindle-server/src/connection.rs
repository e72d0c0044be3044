//! One connection: its requests one after the other, and no patience with a client that does not read.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rekindle::Identity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::crowd::Member;
use crate::request::{self, Gate};

/// Where every request comes in.
#[derive(Debug)]
pub(crate) struct Entrance {
    gate: Gate,
    served: TowerToHyperService<Router>,
}

impl Entrance {
    /// To what `router` serves, past the gate.
    pub(crate) fn new(gate: Gate, router: Router) -> Self {
        Self { gate, served: TowerToHyperService::new(router) }
    }

    async fn answer(&self, from: &Caller, request: Request<Incoming>) -> Result<Response, Infallible> {
        let request = request.map(Body::new);
        Ok(request::pass(&self.gate, from.peer.as_ref(), &from.member, request, &self.served).await)
    }
}

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) member: Member,
    /// Of a process on this machine, who it belongs to.
    pub(crate) peer: Option<Identity>,
}

/// Serves what comes on a connection until it ends; after `stop` the answer under way is its last. A connection
/// that shows no credential is closed when its time is over or its place is needed.
pub(crate) async fn serve<S>(stream: S, from: Caller, entrance: Arc<Entrance>, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = entrance.gate.limits;
    let (close, from) = (from.member.close.clone(), Arc::new(from));
    let service = {
        let from = Arc::clone(&from);
        service_fn(move |request| {
            let (entrance, from) = (Arc::clone(&entrance), Arc::clone(&from));
            async move { entrance.answer(&from, request).await }
        })
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.reading)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(Impatient::new(stream, limits.writing)), service);
    tokio::pin!(connection);
    // How a connection ended concerns its client alone, which knows.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        () = close.cancelled() => return,
        () = unknown_for(limits.greeting, &from.member) => return,
    }
    let _ = connection.await;
}

/// Ends if no credential was shown for a time.
async fn unknown_for(time: Duration, member: &Member) {
    tokio::time::sleep(time).await;
    if member.is_known() {
        std::future::pending().await
    }
}

/// A stream that fails once nothing could be written for a time.
struct Impatient<S> {
    stream: S,
    patience: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, stuck: None }
    }

    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let patience = self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        match stuck.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.judge(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.judge(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
