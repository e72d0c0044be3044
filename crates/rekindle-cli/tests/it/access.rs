//! Credentials: the token a server makes, sockets, and who is on record for an approval.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::processes::{end, signal, start};
use crate::support::{Place, said};

/// An agent whose one call two have to approve.
const AGENT: &str = r#"
name: payer
model:
  provider: scripted
  name: s
  script:
    turns:
      - calls: [{name: pay, arguments: {cents: 5}}]
      - text: paid
tools:
  - name: pay
    description: Pays.
    parameters: {cents: integer}
    command: [echo, paid]
    approval: {prompt: "Pay?", approvals: 2}
"#;

struct Serving {
    child: Child,
    said: Value,
}

impl Serving {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let arguments: Vec<&str> = ["mcp", "--json", "--no-worker"].iter().chain(arguments).copied().collect();
        let mut child = start(place, &arguments);
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            panic!("it does not serve: {}", end(child).err);
        }
        Self { said: serde_json::from_str(&line).unwrap(), child }
    }

    fn address(&self) -> &str {
        self.said["url"].as_str().unwrap().strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap()
    }

    /// Status and body of the answer to a call of a tool, with a token.
    fn call(&self, token: &str, tool: &str, arguments: &Value) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let token = format!("Authorization: Bearer {token}\r\n");
        stream.write_all(request(&token, tool, arguments).as_bytes()).unwrap();
        answer(stream)
    }

    fn stop(self) -> String {
        signal(&self.child, Signal::TERM);
        let said = end(self.child);
        assert_eq!(said.code, 0, "{}", said.err);
        said.err
    }
}

fn request(headers: &str, tool: &str, arguments: &Value) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn answer(mut stream: impl std::io::Read) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_server_without_a_token_makes_one_and_shows_it_once() {
    let place = Place::new();
    for (arguments, expected) in [
        (&["--http", "127.0.0.1:0"][..], None),
        (&["--http", "0.0.0.0:0"], None),
        (&["--http", "127.0.0.1:0", "--token-file", "chosen/token"], Some(place.path("chosen/token"))),
    ] {
        let serving = Serving::start(&place, arguments);
        let file = place.path(serving.said["token_file"].as_str().unwrap());
        match expected {
            Some(expected) => assert_eq!(file, expected),
            None => assert!(file.starts_with(place.state().join("rekindle/tokens")), "{}", file.display()),
        }
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
        assert_eq!(token.len(), 43, "32 bytes");
        let list = |token: &str| serving.call(token, "list_resumable_sessions", &json!({})).0;
        if arguments[1].starts_with("127") {
            assert_eq!((list(&token), list("another"), list("")), (200, 401, 401));
        }
        let told = serving.stop();
        assert_eq!(told.matches(&token).count(), 1, "{told}");
        assert!(!file.exists(), "it is of no use any more");
    }
}

#[test]
fn a_token_file_that_others_can_read_is_replaced() {
    let place = Place::new();
    let file = place.write("token", "old");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let opened = std::fs::File::open(&file).unwrap();
    let serving = Serving::start(&place, &["--http", "127.0.0.1:0", "--token-file", "token"]);
    assert_eq!(mode(&file), 0o600);
    let mut seen = String::new();
    (&opened).read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "old", "who had opened it sees nothing");
    serving.stop();
    // Where a token is configured, none is made.
    let configured = ["mcp", "--http", "127.0.0.1:0", "--token-file", "token"];
    place.write("secret", "a-token-that-nobody-guesses");
    place.configure("[server]\ntoken = \"@file:secret\"\n");
    assert_eq!(place.run(&configured).code, 2);
}

#[test]
fn a_socket_knows_its_user() {
    let place = Place::new();
    let serving = Serving::start(&place, &["--socket", "run/mcp.sock"]);
    assert_eq!(serving.said["url"], "unix:run/mcp.sock");
    let socket = place.path("run/mcp.sock");
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(request("", "list_resumable_sessions", &json!({})).as_bytes()).unwrap();
    assert_eq!(answer(stream).0, 200);
    assert_eq!(place.run(&["mcp", "--socket", "run/mcp.sock"]).code, 2, "one server at a time");
    serving.stop();
    assert!(!socket.exists());
}

#[test]
fn two_approvals_are_of_two_credentials() {
    let place = Place::new();
    place.write("payer.yaml", AGENT);
    place.write("anna", "the-token-that-anna-has");
    place.write("bert", "the-token-that-bert-has");
    place.configure("[server.tokens]\nanna = \"@file:anna\"\nbert = \"@file:bert\"\n");
    let approve_as = |user: &str, session: &str| -> Value {
        let mut command = place.command(&["answer", session, "--approve", "--json"]);
        command.env("USER", user);
        let said = said(command);
        assert_eq!(said.code, 0, "{}", said.err);
        serde_json::from_str(&said.out).unwrap()
    };
    let waiting = |session: &str| -> Value {
        place.run(&["run", "payer.yaml", "pay", "--session", session]);
        place.json(&["waits"])["waits"]
            .as_array()
            .unwrap()
            .iter()
            .find(|wait| wait["session"]["id"] == session)
            .cloned()
            .unwrap()
    };
    // One user of the machine under two names.
    let wait = waiting("one");
    assert_eq!(approve_as("maria", "one")["decided"], false);
    let again = approve_as("otto", "one");
    assert_eq!((&again["decided"], &again["repeated"]), (&false.into(), &true.into()), "{again}");

    let serving = Serving::start(&place, &["--http", "127.0.0.1:0"]);
    assert_eq!(serving.said["token_file"], Value::Null, "none is made");
    let approve = |token: &str, session: &str, wait: &Value| -> Value {
        let (id, digest) = (&wait["wait"]["wait"], &wait["wait"]["approve_digest"]);
        let given = json!({ "session_id": session, "wait_id": id, "decision": "approve", "digest": digest });
        let (status, body) = serving.call(token, "answer_wait", &given);
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["structuredContent"].clone()
    };
    let (anna, bert) = ("the-token-that-anna-has", "the-token-that-bert-has");
    assert_eq!(approve(anna, "one", &wait)["decided"], true);
    let wait = waiting("two");
    assert_eq!(approve(anna, "two", &wait)["decided"], false);
    assert_eq!(approve(anna, "two", &wait)["decided"], false, "the same credential again");
    assert_eq!(approve(bert, "two", &wait)["decided"], true);
    serving.stop();

    place.run(&["resume", "one"]);
    let log = place.ok(&["log", "one"]);
    assert!(log.contains("by maria (claimed)") && log.contains("by anna") && !log.contains("anna (claimed)"), "{log}");
    let decisions = place.ok(&["log", "one", "--json"]);
    assert!(decisions.contains("token:anna") && decisions.contains("uid:"), "{decisions}");
}

#[test]
fn tokens_have_names_of_their_own() {
    let place = Place::new();
    place.write("secret", "a-token-that-nobody-guesses");
    for (settings, expected) in [
        ("[server.tokens]\na = \"@file:secret\"\nb = \"@file:secret\"\n", "are the same"),
        ("[server]\ntoken = \"@file:secret\"\n[server.tokens]\ntoken = \"@file:secret\"\n", "one name"),
    ] {
        place.configure(settings);
        let refused = place.fails(&["mcp", "--http", "127.0.0.1:0"], 2);
        assert!(refused["error"]["message"].as_str().unwrap().contains(expected), "{refused}");
    }
}
