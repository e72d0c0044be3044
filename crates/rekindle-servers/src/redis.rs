//! Redis from the packages of the system.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

use crate::supervised::{Signal, Supervised, directory, free_port, wait_until};

/// A Redis server that keeps an append-only file.
#[derive(Debug)]
pub struct Redis {
    directory: PathBuf,
    port: u16,
    settings: Vec<String>,
    server: Mutex<Option<Supervised>>,
}

impl Redis {
    /// One for the whole process, quick rather than durable: for tests that do not stop it.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Redis> =
            LazyLock::new(|| Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]));
        &SHARED
    }

    /// Starts a new one with `settings`, as on its command line.
    ///
    /// # Panics
    ///
    /// If Redis is not installed or does not start.
    pub fn start(settings: &[&str]) -> Self {
        let redis = Self {
            directory: directory("rekindle-redis-"),
            port: free_port(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            server: Mutex::new(None),
        };
        redis.restart();
        redis
    }

    /// Starts the server again after [`Redis::kill`] or [`Redis::stop`], on the same port.
    pub fn restart(&self) {
        let directory = self.directory.to_str().unwrap().to_owned();
        let port = self.port.to_string();
        let own = ["redis-server", "--bind", "127.0.0.1", "--port", &port, "--dir", &directory, "--save", ""];
        let mut command: Vec<String> = own.map(str::to_owned).to_vec();
        command.extend(self.settings.iter().cloned());
        let server = Supervised::start(&self.directory, "TERM", &command);
        wait_until("Redis (is it installed? run scripts/servers)", &server, || self.answers());
        *self.server.lock().unwrap() = Some(server);
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.signal(Signal::Kill);
            server.stop();
        }
    }

    /// Stops the server in good order.
    pub fn stop(&self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.stop();
        }
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(server) = &*self.server.lock().unwrap() {
            server.signal(signal);
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port it listens on at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a command with `redis-cli` and gives back what it printed.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn command(&self, words: &[&str]) -> String {
        let output = self.cli(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn cli(&self, words: &[&str]) -> Command {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(words).stderr(Stdio::null());
        command
    }

    fn answers(&self) -> bool {
        self.cli(&["PING"]).output().is_ok_and(|output| output.stdout.trim_ascii() == b"PONG")
    }
}
