//! Where it happens: a store with a server of its own, if it needs one, and a directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rekindle_fixtures::{Postgres, Redis};
use tempfile::TempDir;

use crate::Result;
use crate::options::Engine;

/// How long leases and claims last here.
pub const LEASE: Duration = Duration::from_secs(3);

/// Where it happens.
#[derive(Debug)]
pub struct Stage {
    directory: TempDir,
    server: Server,
}

#[derive(Debug)]
enum Server {
    Postgres(Postgres),
    Redis(Redis),
    None,
}

impl Stage {
    /// Sets it up.
    pub fn new(engine: Engine) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        std::fs::create_dir(directory.path().join("books"))?;
        let server = match engine {
            Engine::Postgres => Server::Postgres(Postgres::start(&["max_connections=200"])),
            Engine::Redis => Server::Redis(Redis::start(&["--appendonly", "yes", "--appendfsync", "always"])),
            Engine::Sqlite => Server::None,
        };
        Ok(Self { directory, server })
    }

    /// The URL of the store.
    pub fn url(&self) -> String {
        match &self.server {
            Server::Postgres(server) => server.url(),
            Server::Redis(server) => server.url(),
            Server::None => format!("sqlite:{}", self.directory.path().join("rekindle.db").display()),
        }
    }

    /// Where the books are.
    pub fn books(&self) -> PathBuf {
        self.directory.path().join("books")
    }

    /// Where workers write what they have to say, and commands have their home.
    pub fn logs(&self) -> &Path {
        self.directory.path()
    }

    /// Kills the server, if there is one, and starts it again after a while; whether there is one.
    pub fn restart_server(&self, pause: Duration) -> bool {
        match &self.server {
            Server::Postgres(server) => {
                server.kill();
                std::thread::sleep(pause);
                server.restart();
            }
            Server::Redis(server) => {
                server.kill();
                std::thread::sleep(pause);
                server.restart();
            }
            Server::None => return false,
        }
        true
    }
}
