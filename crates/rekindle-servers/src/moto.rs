//! moto, a second implementation of S3: not exact under races, but not ours either.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::supervised::{Supervised, directory, free_port, wait_until};

/// A moto server with the bucket `bucket`.
#[derive(Debug)]
pub struct Moto {
    port: u16,
    server: Supervised,
}

impl Moto {
    /// Installs it with `scripts/moto` and starts it. Nothing if it cannot be had here: the test is to
    /// return.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start.
    pub fn start() -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/moto");
        let installed = Command::new(script).stderr(Stdio::null()).output().ok();
        let Some(output) = installed.filter(|output| output.status.success()) else {
            // Not by the macro, whose output is kept from sight when a test passes.
            let _ = writeln!(std::io::stderr(), "skipped: moto cannot be installed, so nothing was tested against it");
            return None;
        };
        let program = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let port = free_port();
        let command = [program, "-H".to_owned(), "127.0.0.1".to_owned(), "-p".to_owned(), port.to_string()];
        let server = Supervised::start(&directory("rekindle-moto-"), "TERM", &command);
        let moto = Self { port, server };
        wait_until("moto", &moto.server, || {
            moto.make_bucket().is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
        });
        Some(moto)
    }

    /// The URL of its bucket, with everything a client needs.
    pub fn url(&self) -> String {
        format!(
            "s3://bucket?endpoint=http://127.0.0.1:{}&allow_http=true&aws_access_key_id=me&aws_secret_access_key=secret",
            self.port
        )
    }

    fn make_bucket(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let request = "PUT /bucket HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}
