//! Serving until the client goes or a signal comes, with a worker beside it.

use std::time::Duration;

use rekindle::worker::{CancellationToken, Worker};
use rekindle::{Error, ErrorKind};
use rekindle_mcp::McpServer;
use rekindle_mcp::rmcp::service::{QuitReason, serve_server_with_ct};
use rekindle_mcp::rmcp::transport::async_rw::AsyncRwTransport;
use rekindle_mcp::rmcp::transport::stdio_pipes;
use rekindle_server::Server;

use crate::commands::worker::Log;
use crate::failure::Failure;
use crate::run::Signals;

/// The longest message a client may send on standard input. Longer ones cannot be answered, for nobody knows
/// their ids: so this is well above what any tool takes, which says so itself.
const MAX_MESSAGE: usize = 64 << 20;
/// The time answers under way have to end, besides that of runs.
const ANSWERS: Duration = Duration::from_secs(5);

/// Serves the client at standard input and output, until it closes them.
pub async fn stdio(log: &Log, server: McpServer, worker: Option<Worker>) -> Result<(), Failure> {
    until_stopped(log, worker, |stop| async move {
        let (input, output) = stdio_pipes();
        let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE);
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Closed, "the client does not speak the protocol").because(error)
        };
        let service = match serve_server_with_ct(server, transport, stop.clone()).await {
            Ok(service) => service,
            // It went before it said anything, or was sent away: that is not its fault.
            Err(_) if stop.is_cancelled() => return Ok(()),
            Err(rekindle_mcp::rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(failed(error.into())),
        };
        match service.waiting().await {
            Ok(QuitReason::JoinError(error)) | Err(error) => Err(failed(error.into())),
            Ok(_) => Ok(()),
        }
    })
    .await
}

/// Serves HTTP, on a port or a socket. Signals are listened to before `announce` says so.
pub async fn http(
    log: &Log,
    server: Server,
    worker: Option<Worker>,
    announce: impl FnOnce() -> std::io::Result<()>,
) -> Result<(), Failure> {
    until_stopped(log, worker, |stop| async move {
        announce().map_err(|error| Error::new(ErrorKind::Closed, "nobody reads the output").because(error))?;
        server.run_until(stop).await;
        Ok(())
    })
    .await
}

/// Runs `serve` and the worker until one of them ends or a signal comes; then both end. A second signal
/// does not wait for calls under way.
async fn until_stopped<F>(
    log: &Log,
    worker: Option<Worker>,
    serve: impl FnOnce(CancellationToken) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Error>>,
{
    let grace = worker.as_ref().map(Worker::longest_grace).unwrap_or_default();
    let mut signals = Signals::listen(log.ui(), move || grace.get() + ANSWERS)?;
    let (stop, at_once) = (CancellationToken::new(), CancellationToken::new());
    let working = {
        let (drain, at_once) = (stop.clone(), at_once.clone());
        async move {
            match worker {
                Some(worker) => worker.run_until(drain, at_once).await.map(|_| ()),
                None => {
                    drain.cancelled().await;
                    Ok(())
                }
            }
        }
    };
    let serving = serve(stop.clone());
    tokio::pin!(working, serving);
    let (mut worked, mut served) = (None, None);
    while worked.is_none() || served.is_none() {
        tokio::select! {
            ended = &mut working, if worked.is_none() => worked = Some(ended),
            ended = &mut serving, if served.is_none() => served = Some(ended),
            name = signals.next() => {
                log.stopping(name, stop.is_cancelled());
                if stop.is_cancelled() {
                    at_once.cancel();
                }
            }
        }
        stop.cancel();
    }
    served.unwrap_or(Ok(()))?;
    Ok(worked.unwrap_or(Ok(()))?)
}
