//! `rekindle mcp`: other agents inspect, resume and run durable work, over the Model Context Protocol.

mod access;
mod agents;
mod install;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rekindle::Engine;
use rekindle::worker::Worker;
use rekindle_mcp::McpServer;
use rekindle_server::{Limits, Server};

use crate::app::{self, App};
use crate::commands::worker::{Files, Log};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use agents::AgentFiles;
use install::Client;

/// Where it listens unless something else is said.
const ADDRESS: &str = "127.0.0.1:7311";

/// How many runs go on at once unless something else is said.
const CONCURRENCY: u32 = 4;

/// What to serve, and to whom.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rekindle mcp --agent agent.yaml                  for a client that starts it
  rekindle mcp --http --agent agent.yaml           on http://127.0.0.1:7311/mcp, with a new token
  rekindle mcp --http 0.0.0.0:7311 --token @env:REKINDLE_TOKEN
  rekindle mcp --socket run/mcp.sock               for programs of yours on this machine
  rekindle mcp --install                           which clients there are
  rekindle mcp --install cursor --agent a.yaml     what to put into the client's configuration
  rekindle mcp --install cursor --agent a.yaml --write

Runs that clients start go on in this process, and in any `rekindle worker` on the same store;
after a crash another one finds and finishes them.")]
pub struct Arguments {
    /// A file clients may run by its name; may be said more than once
    #[arg(long, value_name = "FILE")]
    agent: Vec<PathBuf>,
    /// Serves streamable HTTP instead of standard input and output
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = ADDRESS, value_parser = address)]
    http: Option<SocketAddr>,
    /// Serves streamable HTTP on a socket of this machine that only you can use, without a token
    #[arg(long, value_name = "PATH", conflicts_with_all = ["http", "install"])]
    socket: Option<PathBuf>,
    /// Take the token that clients must know from @env:VARIABLE, @file:path and so on. Without one, a token is
    /// made at the start
    #[arg(long, value_name = "SECRET", requires = "http")]
    token: Option<String>,
    /// Write a token that is made at the start to this file, readable by you alone
    #[arg(long, value_name = "PATH", requires = "http", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Another name the server is called by, behind a proxy; may be said more than once
    #[arg(long, value_name = "NAME", requires = "http")]
    allow_host: Vec<String>,
    /// Pages of this origin may ask too, e.g. https://app.example.com; may be said more than once
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    /// Only what changes nothing
    #[arg(long)]
    read_only: bool,
    /// Runs nothing itself: leaves it to workers
    #[arg(long)]
    no_worker: bool,
    /// How many runs go on at once
    #[arg(long, value_name = "N", default_value_t = CONCURRENCY)]
    concurrency: u32,
    /// Prints what a client's configuration needs, instead of serving; without a name, which there are
    #[arg(long, value_name = "CLIENT", num_args = 0..=1, conflicts_with_all = ["http"])]
    install: Option<Option<Client>>,
    /// Puts it there: everything else in that file stays
    #[arg(long, requires = "install")]
    write: bool,
}

impl Arguments {
    /// Serves, or says how to be served.
    pub async fn run(self, app: &App) -> Outcome {
        let files = self.files(app);
        if let Some(client) = self.install {
            return install::run(app, client, &self.said(&files), self.write);
        }
        let agents = AgentFiles::load(app, &files)?;
        let engine = app.engine(if self.read_only { app::Access::Existing } else { app::Access::Create })?;
        let worker = self.worker(app, &engine)?;
        let server = self.server(app, engine, agents);
        let log = Log::new(app);
        match self.http {
            Some(address) => {
                let (access, made) = self.access(app)?;
                let http = Server::bind(address, access, Limits::default()).await?;
                let url = format!("http://{}/mcp", http.address());
                let token = made.map(|made| made.hand_over(app, http.address())).transpose()?;
                let http = http.mcp(move |caller| server.acting_for(caller.clone()));
                let announce = || log.serving(&url, token.as_ref().map(access::TokenFile::path));
                serve::http(&log, http, worker, announce).await?;
            }
            None => match &self.socket {
                Some(path) => {
                    let socket = Server::bind_socket(path, self.socket_access(app), Limits::default()).await?;
                    let socket = socket.mcp(move |caller| server.acting_for(caller.clone()));
                    let announce = || log.serving(&format!("unix:{}", path.display()), None);
                    serve::http(&log, socket, worker, announce).await?;
                }
                None => serve::stdio(&log, server, worker).await?,
            },
        }
        Ok(Exit::Ok)
    }

    /// The files clients may run: those that were said, or else those of the configuration.
    fn files(&self, app: &App) -> Vec<PathBuf> {
        if self.agent.is_empty() { app.settings.mcp_agents() } else { self.agent.clone() }
    }

    /// What a client has to say so that it gets this server.
    fn said<'a>(&self, files: &'a [PathBuf]) -> install::Said<'a> {
        let mut options = Vec::new();
        if self.read_only {
            options.push("--read-only".to_owned());
        }
        if self.no_worker {
            options.push("--no-worker".to_owned());
        }
        if self.concurrency != CONCURRENCY {
            options.extend(["--concurrency".to_owned(), self.concurrency.to_string()]);
        }
        install::Said { files, options }
    }

    fn server(&self, app: &App, engine: Engine, agents: AgentFiles) -> McpServer {
        let mut builder = McpServer::builder(engine).author(app.identity());
        if !agents.is_empty() {
            builder = builder.agents(Arc::new(agents));
        }
        if self.read_only { builder.read_only().build() } else { builder.build() }
    }

    /// What runs what clients start; nothing where there is no queue.
    fn worker(&self, app: &App, engine: &Engine) -> Result<Option<Worker>, Failure> {
        let queue = engine.journal().store().queue().is_some();
        if !queue && !self.read_only {
            app.ui.remark("nothing can be run: this store keeps no queue; sqlite:, postgres: and redis: do");
        }
        if self.no_worker || self.read_only || !queue {
            return Ok(None);
        }
        let heard = Log::new(app);
        let builder = Worker::builder(engine.clone()).concurrency(self.concurrency);
        let builder =
            builder.resolver(Files::new(app.clone(), engine.clone(), false)).observer(move |event| heard.remark(event));
        Ok(Some(builder.build()?))
    }
}

/// Where to listen: an address with a port, or only a port of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().map_err(|_| format!("write it like {ADDRESS}, or only the port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        for text in ["7399", ":7399", "localhost:7399", "127.0.0.1:7399"] {
            assert_eq!(address(text).unwrap().to_string(), "127.0.0.1:7399", "{text}");
        }
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for text in ["", "example.com:80", "127.0.0.1", "99999", "http://127.0.0.1:80"] {
            assert!(address(text).unwrap_err().contains(ADDRESS), "{text}");
        }
    }
}
