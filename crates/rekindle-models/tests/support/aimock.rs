//! Starts aimock, which plays model providers on a local port: it streams, calls tools and fails as
//! told by its fixtures, and keeps a journal of what it was asked.
//!
//! Needs only the standard library and `serde_json`, so the tests of other crates can take this file
//! too: `#[path = "../../../rekindle-models/tests/support/aimock.rs"] mod aimock;`
//!
//! The package is looked for in the directory `REKINDLE_AIMOCK` names, or put there by
//! `scripts/aimock`. Without Node tests that need it are skipped, and say so.
#![allow(clippy::unwrap_used, dead_code)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

/// Loaded ahead of the program: ends it when nobody holds its input any more, since it must not outlive
/// a test that was killed.
const ENDER: &str = r#"data:text/javascript,process.stdin.on("end",()=>process.exit()).resume()"#;

/// A server under way; it ends when this is dropped.
#[derive(Debug)]
pub struct AimockServer {
    process: Child,
    fixtures: PathBuf,
    address: String,
}

impl AimockServer {
    /// Starts it with a list of fixtures, e.g.
    /// `[{"match": {"userMessage": "hello"}, "response": {"content": "hi"}}]`. Nothing if there is no
    /// Node: the test is to return.
    pub fn start(fixtures: &Value) -> Option<Self> {
        let Some(package) = package() else {
            // Not by the macro, whose output is kept from sight when a test passes.
            let _ = writeln!(std::io::stderr(), "skipped: node not found, so nothing was tested against aimock");
            return None;
        };
        let program = package.join("node_modules/@copilotkit/aimock/dist/cli.js");
        let fixtures = write(fixtures);
        let mut process = Command::new("node")
            .args(["--import", ENDER])
            .arg(program)
            .args(["--port", "0", "--strict", "--validate-on-load", "--chunk-size", "4", "--fixtures"])
            .arg(&fixtures)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let address = address(&mut process);
        Some(Self { process, fixtures, address })
    }

    /// Its URL without a path. OpenAI's base URL is this with `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked so far, in order: objects with `path`, `headers`, `body` and `response`.
    pub fn journal(&self) -> Vec<Value> {
        let journal = self.control("GET", "/__aimock/journal", "");
        journal.as_array().unwrap().clone()
    }

    /// From now on every request meets these faults, e.g. `{"malformedRate": 1}`; `{}` ends them.
    pub fn set_chaos(&self, chaos: &Value) {
        // It warns of what is replaced.
        self.control("DELETE", "/__aimock/chaos", "");
        self.control("POST", "/__aimock/chaos", &chaos.to_string());
    }

    /// The next request fails with that status.
    pub fn fail_next(&self, status: u16, message: &str) {
        let body = json!({"status": status, "body": {"message": message}});
        self.control("POST", "/__aimock/error", &body.to_string());
    }

    fn control(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // An answer to the old version is not in chunks.
        let head = format!("{method} {path} HTTP/1.0\r\ncontent-type: application/json\r\n");
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for AimockServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.fixtures);
    }
}

/// Where the package is; found or installed once.
fn package() -> Option<PathBuf> {
    static PACKAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    PACKAGE.get_or_init(find).clone()
}

fn find() -> Option<PathBuf> {
    if Command::new("node").arg("--version").stdout(Stdio::null()).status().is_err() {
        return None;
    }
    if let Some(directory) = std::env::var_os("REKINDLE_AIMOCK") {
        return Some(directory.into());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/aimock");
    let output = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "scripts/aimock failed");
    Some(String::from_utf8(output.stdout).unwrap().trim().into())
}

/// The fixtures as a file.
fn write(fixtures: &Value) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("aimock-{}-{number}.json", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, json!({ "fixtures": fixtures }).to_string()).unwrap();
    path
}

/// The address it says it listens on.
fn address(process: &mut Child) -> String {
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut said = String::new();
    let address = lines.by_ref().map(Result::unwrap).find_map(|line| {
        said.push_str(&line);
        line.split_once("listening on http://").map(|(_, address)| address.to_owned())
    });
    // What it says later is of no interest, but somebody must read it.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    address.unwrap_or_else(|| panic!("aimock did not start: {said}"))
}
