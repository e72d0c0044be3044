//! What the conformance suite of the Model Context Protocol asks servers for, on the stack that serves
//! Rekindle: the same HTTP server, and tasks that are durable runs. Listens on a free port of this machine,
//! says where, and ends when its standard input does.

mod fixtures;
mod handler;
mod rounds;
mod runs;
mod texts;

use std::io::{Read as _, Write as _};

use rekindle_server::{Access, CancellationToken, Limits, Server};

use handler::Fixtures;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stop = CancellationToken::new();
    let folder = tempfile::tempdir()?;
    let (durable, worker) = runs::start(folder.path())?;
    let fixtures = Fixtures::new(durable);
    let server =
        Server::bind("127.0.0.1:0".parse()?, Access::unauthenticated("conformance"), Limits::default()).await?;
    let server = server.mcp(move |_| fixtures.clone());
    writeln!(std::io::stdout(), "http://{}/mcp", server.address())?;
    let working = tokio::spawn(worker.run(stop.clone()));
    let ended = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        ended.cancel();
    });
    server.run_until(stop).await;
    working.await??;
    Ok(())
}
