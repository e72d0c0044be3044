//! `inspect_checkpoint` over HTTP on SQLite, against a bare handler of the same web framework that gives the
//! same bytes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use axum::Router;
use axum::routing::post;
use rekindle::Engine;
use rekindle_mcp::McpServer;
use rekindle_server::{Access, CancellationToken, Limits, Server};
use serde_json::json;
use tokio::net::TcpListener;

use super::client::{Client, call};
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::median;

/// Clients at once.
const CLIENTS: usize = 8;

/// Measures it.
pub async fn measure(bench: &Bench) -> Result<()> {
    bench.progress("inspect_checkpoint over HTTP");
    let directory = bench.directory()?;
    let stop = CancellationToken::new();
    let address = serve(directory.path(), stop.clone()).await?;
    let request = prepare(address).await?;
    let bytes = Client::connect(address).await?.ask(&request).await?.to_vec();
    let floor = serve_bare(bytes, stop.clone()).await?;
    let each = bench.size(2_000, 10_000);
    let (mut floors, mut figures) = (Vec::new(), Vec::new());
    for round in 0..=bench.size(5, 15) {
        let pair = (rate(floor, &request, each).await?, rate(address, &request, each).await?);
        if round > 0 {
            floors.push(pair.0);
            figures.push(pair.1);
        }
    }
    stop.cancel();
    let name = "inspect_checkpoint over HTTP, sqlite, against a bare handler";
    bench.record(name, (median(&figures), median(&floors)), "calls/s", Bar::AtLeast(0.2))
}

/// The server as `rekindle mcp --http` has it.
pub async fn serve(directory: &Path, stop: CancellationToken) -> Result<SocketAddr> {
    let engine = Engine::open(&format!("sqlite:{}/rekindle.db", directory.display()))?;
    let server = McpServer::builder(engine).build();
    let http = Server::bind("127.0.0.1:0".parse()?, Access::unauthenticated("bench"), Limits::default()).await?;
    let http = http.mcp(move |_| server.clone());
    let address = http.address();
    tokio::spawn(http.run_until(stop));
    Ok(address)
}

/// A session with a checkpoint of about two kilobytes, and the request that inspects it.
pub async fn prepare(address: SocketAddr) -> Result<Vec<u8>> {
    let rows: Vec<_> =
        (0..40).map(|number| json!({ "row": number, "text": "forty characters of a text, or so" })).collect();
    let save = call("checkpoint_save", &json!({ "session_id": "bench", "state": { "rows": rows } }));
    Client::connect(address).await?.ask(&save).await?;
    Ok(call("inspect_checkpoint", &json!({ "session_id": "bench" })))
}

async fn serve_bare(bytes: Vec<u8>, stop: CancellationToken) -> Result<SocketAddr> {
    let bytes = axum::body::Bytes::from(bytes);
    let json = [("content-type", "application/json")];
    let router = Router::new().route("/mcp", post(async move |_: axum::body::Bytes| (json, bytes.clone())));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await });
    Ok(address)
}

/// How many requests a second are answered.
async fn rate(address: SocketAddr, request: &[u8], each: usize) -> Result<f64> {
    let start = Instant::now();
    let clients = (0..CLIENTS).map(|_| {
        let request = request.to_vec();
        tokio::spawn(async move { asked(address, &request, each / CLIENTS).await.map_err(|error| error.to_string()) })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await??;
    }
    Ok((each / CLIENTS * CLIENTS) as f64 / start.elapsed().as_secs_f64())
}

/// Asks so many times on one connection.
pub async fn asked(address: SocketAddr, request: &[u8], times: usize) -> Result<()> {
    let mut client = Client::connect(address).await?;
    for _ in 0..times {
        client.ask(request).await?;
    }
    Ok(())
}
