//! Services that speak S3 and that others wrote, installed from Python packages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::s3::bucket_url;
use crate::supervised::{Supervised, directory, free_port, wait_until};

/// An S3 service in a process of its own, with the bucket `bucket`.
#[derive(Debug)]
pub struct ForeignS3 {
    name: &'static str,
    port: u16,
    server: Supervised,
}

impl ForeignS3 {
    /// Installs moto with `scripts/moto` and starts it: not exact under races. Nothing if it cannot be had here: the
    /// test is to return.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start.
    pub fn moto() -> Option<Self> {
        Self::start("moto", "TERM", |program, port, _| {
            [program, "-H", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned).to_vec()
        })
    }

    /// Installs SeaweedFS with `scripts/seaweedfs` and starts it. Nothing if it cannot be had here: the test is to
    /// return.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start.
    pub fn seaweedfs() -> Option<Self> {
        Self::start("seaweedfs", "KILL", |program, port, directory| {
            let parts = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port"];
            let parts = parts.into_iter().chain(["filer.port.grpc", "s3.port.grpc"]);
            let fixed = ["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-volume.max=50"];
            let mut command = vec![program.to_owned()];
            command.extend(fixed.map(str::to_owned));
            let unused = ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"];
            command.extend(unused.map(str::to_owned));
            command.push("-master.volumeSizeLimitMB=64".to_owned());
            command.extend([format!("-dir={directory}"), format!("-s3.port={port}")]);
            command.extend(parts.map(|part| format!("-{part}={}", free_port())));
            command
        })
    }

    fn start(name: &'static str, stop: &str, command: impl Fn(&str, u16, &str) -> Vec<String>) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
        let installed = Command::new(script).stderr(Stdio::null()).output().ok();
        let Some(output) = installed.filter(|output| output.status.success()) else {
            // Not by the macro, whose output is kept from sight when a test passes.
            let _ =
                writeln!(std::io::stderr(), "skipped: {name} cannot be installed, so nothing was tested against it");
            return None;
        };
        let program = String::from_utf8(output.stdout).unwrap();
        let (port, directory) = (free_port(), directory(&format!("rekindle-{name}-")));
        let command = command(program.trim(), port, directory.to_str().unwrap());
        let server = Supervised::start(&directory, stop, &command);
        let service = Self { name, port, server };
        // Made by an earlier try whose answer was another one: made.
        let is_made = |answer: String| ["HTTP/1.1 200", "HTTP/1.1 409"].iter().any(|made| answer.starts_with(made));
        wait_until(name, &service.server, || service.make_bucket().is_some_and(is_made));
        Some(service)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The URL of its bucket, with everything a client needs.
    pub fn url(&self) -> String {
        bucket_url("bucket", self.port)
    }

    /// The URL of a folder of its bucket.
    pub fn url_below(&self, prefix: &str) -> String {
        self.url().replace("bucket?", &format!("bucket/{prefix}?"))
    }

    /// The port it listens on, for a [`Proxy`](crate::Proxy).
    pub fn port(&self) -> u16 {
        self.port
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
