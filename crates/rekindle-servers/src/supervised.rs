//! A server under a shell that waits for the end of its input: it stops the server and removes its
//! directory when whoever started it stops, crashes or is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `$1` is the directory, `$2` the signal that stops the server, the rest the command.
const SCRIPT: &str = r#"
directory=$1; stop=$2; shift 2
exec 2>/dev/null
"$@" </dev/null >>"$directory/log" 2>&1 &
server=$!
echo "$server"
read -r word
kill -CONT "$server" 2>/dev/null
kill -s "$stop" "$server" 2>/dev/null
wait "$server"
[ "$word" = keep ] || rm -rf "$directory"
"#;

/// What to do to a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End it at once.
    Kill,
    /// Freeze it.
    Stop,
    /// Let it go on.
    Continue,
}

/// A server that runs.
#[derive(Debug)]
pub struct Supervised {
    shell: Child,
    server: u32,
    directory: PathBuf,
}

impl Supervised {
    /// Starts `command`; `stop` is the signal that ends it in good order.
    pub fn start(directory: &Path, stop: &str, command: &[String]) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "sh", directory.to_str().unwrap(), stop])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = line.trim().parse().unwrap();
        Self { shell, server, directory: directory.to_owned() }
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        let name = match signal {
            Signal::Kill => "-KILL",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let _ = Command::new("kill").args([name, &self.server.to_string()]).status();
    }

    /// Stops the server in good order, or finishes off one that was killed. Its data stays.
    pub fn stop(mut self) {
        let _ = self.shell.stdin.take().unwrap().write_all(b"keep\n");
        let _ = self.shell.wait();
    }

    /// What the server said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.shell.stdin.take().is_some() {
            let _ = self.shell.wait();
        }
    }
}

/// A directory of its own, which the supervisor removes.
pub(crate) fn directory(prefix: &str) -> PathBuf {
    tempfile::Builder::new().prefix(prefix).tempdir().unwrap().keep()
}

/// A port nobody uses.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until `ready` says so.
pub(crate) fn wait_until(what: &str, server: &Supervised, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} does not start:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}
