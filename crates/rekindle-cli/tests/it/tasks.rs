//! Runs as tasks over HTTP: a server is killed between the call that started one and the question what
//! became of it, and again while it works.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Child;

use serde_json::{Value, json};

use crate::processes::{lines, start, until};
use crate::support::Place;
use crate::workers::booked;

/// An agent that books three things, with somebody who books nothing twice under one key.
const AGENT: &str = r#"
name: clerk
model:
  provider: scripted
  name: s
  script:
    turns:
      - calls: [{name: book, arguments: {what: one}}]
      - calls: [{name: book, arguments: {what: two}}]
      - calls: [{name: book, arguments: {what: three}}]
      - text: all are booked
tools:
  - name: book
    description: Books it.
    parameters: {what: string}
    shell: |
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> keys.txt
      sleep 0.2
      flock ledger.lock sh -c 'grep -qs "^$REKINDLE_IDEMPOTENCY_KEY " ledger.txt || echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt'
      echo booked
    output: text
    writes: true
    in_doubt: idempotent
"#;

/// A server, and where it listens.
struct Serving {
    child: Child,
    address: String,
    token: String,
}

impl Serving {
    fn start(place: &Place) -> Self {
        let mut child = start(place, &["mcp", "--http", "127.0.0.1:0", "--agent", "clerk.yaml", "--json"]);
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let serving: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let address = serving["url"].as_str().unwrap().strip_prefix("http://").unwrap();
        let token = std::fs::read_to_string(serving["token_file"].as_str().unwrap()).unwrap().trim().to_owned();
        Self { child, address: address.strip_suffix("/mcp").unwrap().to_owned(), token }
    }

    /// The answer to a request of 2026-07-28 from a client that knows tasks.
    fn ask(&self, method: &str, name: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities":
                { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {}\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: {method}\r\nMcp-Name: {name}\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let json = answer.split_once("\r\n\r\n").unwrap().1;
        let answer: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {answer}"));
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    fn task(&self, id: &str) -> Value {
        self.ask("tasks/get", id, json!({ "taskId": id }))
    }

    /// Dies without a word.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_task_is_found_and_finished_whenever_its_server_dies() {
    let place = Place::new();
    place.write("clerk.yaml", AGENT);
    place.write("rekindle.toml", "lease = \"2s\"\n");
    let serving = Serving::start(&place);
    let arguments = json!({ "agent": "clerk", "input": "book everything", "session_id": "trip" });
    let started = serving.ask("tools/call", "run_agent", json!({ "name": "run_agent", "arguments": arguments }));
    serving.kill();
    assert_eq!(started["resultType"], "task", "{started}");
    let id = started["taskId"].as_str().unwrap().to_owned();

    // And again in the middle of each call.
    for calls in 1..=3 {
        let serving = Serving::start(&place);
        assert_eq!(serving.task(&id)["status"], "working");
        until("another call is under way", || keys(&place).len() >= calls);
        serving.kill();
    }
    let serving = Serving::start(&place);
    until("the task is completed", || serving.task(&id)["status"] == "completed");
    let task = serving.task(&id);
    assert_eq!(task["result"]["structuredContent"]["answer"], "all are booked", "{task}");
    assert_eq!(booked(&place), ["one", "two", "three"]);
    assert_eq!(keys(&place).len(), 3, "each call has one key, however often it is made");
    serving.kill();
}

fn keys(place: &Place) -> BTreeSet<String> {
    lines(&place.path("keys.txt")).into_iter().collect()
}
