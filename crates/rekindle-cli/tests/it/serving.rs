//! `rekindle mcp`: clients over standard input and output and over HTTP, what they are refused, a server that
//! is killed, and the configuration of clients.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::processes::{end, lines, signal, start, until};
use crate::support::Place;

/// An agent that books two things, each when the file `go` is there.
const AGENT: &str = r#"
name: clerk
description: Books things.
model:
  provider: scripted
  name: s
  script:
    turns:
      - calls: [{name: book, arguments: {what: one}}]
      - calls: [{name: book, arguments: {what: two}}]
      - text: both are booked
tools:
  - name: book
    description: Books it.
    parameters: {what: string}
    shell: |
      echo "$REKINDLE_ARG_WHAT" >> started.txt
      while [ ! -e go ]; do sleep 0.02; done
      echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_WHAT" >> ledger.txt
      echo booked
    output: text
    writes: true
    in_doubt: idempotent
    timeout: 60s
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("clerk.yaml", AGENT);
    place
}

/// A server that was started by its client, as clients of 2025-11-25 do.
struct Served {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    asked: u64,
}

impl Served {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let arguments: Vec<&str> = ["mcp"].iter().chain(arguments).copied().collect();
        let mut command = place.command(&arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut served = Self { child, input, output, asked: 0 };
        let client = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let answer = served.ask("initialize", hello);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        served.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        served
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// The answer to a request. Every line that comes is a message of the protocol.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended instead of answering {method}");
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(message["jsonrpc"], "2.0");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// What a tool gives.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    fn tools(&mut self) -> BTreeSet<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Closes its input, as a client does that goes, and waits for it.
    fn leave(mut self) {
        drop(self.input);
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(rest.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{rest}");
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_client_on_standard_input_and_output_gets_nothing_but_the_protocol() {
    let place = place();
    let mut served = Served::start(&place, &["--agent", "clerk.yaml", "--json"]);
    let tools = served.tools();
    for tool in ["checkpoint_save", "inspect_checkpoint", "resume_session", "run_agent"] {
        assert!(tools.contains(tool), "{tools:?}");
    }
    let saved = served.call("checkpoint_save", json!({ "session_id": "notes", "state": { "page": 1 } }));
    assert_eq!(saved["session_id"], "notes");
    served.leave();
    assert!(place.ok(&["sessions", "list"]).contains("notes"), "it is in the usual store");
}

#[test]
fn who_may_only_look_is_offered_nothing_else() {
    let place = place();
    place.fails(&["mcp", "--read-only"], 3);
    Served::start(&place, &[]).leave();
    let mut served = Served::start(&place, &["--agent", "clerk.yaml", "--read-only"]);
    let tools = served.tools();
    assert!(tools.contains("inspect_checkpoint"), "{tools:?}");
    for tool in ["checkpoint_save", "run_agent", "delete_checkpoint", "fork_session"] {
        assert!(!tools.contains(tool), "{tool}");
    }
    served.leave();
}

#[test]
fn what_is_too_long_and_what_is_no_message_end_nothing() {
    let place = place();
    let mut served = Served::start(&place, &[]);
    writeln!(served.input, "{{\"jsonrpc\":").unwrap();
    served.input.write_all(&vec![b'x'; 65 << 20]).unwrap();
    writeln!(served.input).unwrap();
    let large = json!({ "session_id": "s", "state": { "large": "x".repeat(17 << 20) } });
    let refused = served.ask("tools/call", json!({ "name": "checkpoint_save", "arguments": large }));
    assert_eq!(refused["result"]["structuredContent"]["code"], "RK0002", "what is only too large is told so");
    let unknown = served.ask("tools/call", json!({ "name": "no_such_tool", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    served.leave();
}

#[test]
fn a_run_survives_the_server_that_started_it() {
    let place = place();
    let mut served = Served::start(&place, &["--agent", "clerk.yaml"]);
    let started = served.call("run_agent", json!({ "agent": "clerk", "input": "book both", "session_id": "trip" }));
    until("the first call is under way", || !lines(&place.path("started.txt")).is_empty());
    served.child.kill().unwrap();
    served.child.wait().unwrap();

    place.write("go", "");
    let mut again = Served::start(&place, &["--agent", "clerk.yaml"]);
    let run = json!({ "run_id": started["run_id"], "session_id": "trip" });
    until("the run is found and finished", || again.call("get_run", run.clone())["status"] == "succeeded");
    let booked: BTreeSet<String> = lines(&place.path("ledger.txt")).into_iter().collect();
    assert_eq!(booked.len(), 2, "a call that was cut off is made again with the same key, no other: {booked:?}");
    again.leave();
}

/// One request over a connection of its own.
fn over_http(url: &str, headers: &str) -> String {
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{headers}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn http_is_served_to_those_who_may_ask() {
    let place = place();
    place.write("token", "a-token-that-nobody-guesses\n");
    let mut child = start(&place, &["mcp", "--http", "127.0.0.1:0", "--token", "@file:token", "--json"]);
    let mut serving = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut serving).unwrap();
    let serving: Value = serde_json::from_str(&serving).unwrap();
    let url = serving["url"].as_str().unwrap();
    let status = |headers: &str| over_http(url, headers).split(' ').nth(1).unwrap().to_owned();
    let token = "Authorization: Bearer a-token-that-nobody-guesses";
    assert_eq!(status(&format!("Host: localhost\r\n{token}")), "200");
    assert_eq!(status("Host: localhost"), "401");
    assert_eq!(status(&format!("Host: evil.example\r\n{token}")), "403");
    assert_eq!(status(&format!("Host: localhost\r\nOrigin: http://evil.example\r\n{token}")), "403");
    signal(&child, Signal::TERM);
    let said = end(child);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(!said.err.contains("nobody-guesses"));
}

#[test]
fn a_token_on_the_command_line_is_refused_and_not_repeated() {
    let place = place();
    let shown = place.run(&["mcp", "--http", "0.0.0.0:0", "--token", "the-token-itself"]);
    assert_eq!(shown.code, 2);
    assert!(!shown.err.contains("the-token-itself"), "{}", shown.err);
}

#[test]
fn clients_are_told_how_to_start_it() {
    let place = place();
    let entry = place.ok(&["mcp", "--install", "claude-code", "--agent", "clerk.yaml"]);
    let entry: Value = serde_json::from_str(&entry).unwrap();
    let arguments = entry["mcpServers"]["rekindle"]["args"].as_array().unwrap();
    assert_eq!(arguments[0], "mcp");
    let agent = place.path("clerk.yaml").canonicalize().unwrap().display().to_string();
    assert!(arguments.contains(&json!(agent)), "paths do not depend on where it is started: {entry}");
    let entry = place.ok(&["mcp", "--install", "cursor", "--no-worker", "--concurrency", "2", "--read-only"]);
    for said in ["\"--no-worker\"", "\"--concurrency\",\n        \"2\"", "\"--read-only\""] {
        assert!(entry.contains(said), "what was said is passed on: {entry}");
    }
    for client in place.json(&["mcp", "--install"])["clients"].as_array().unwrap() {
        let name = client["client"].as_str().unwrap();
        assert!(place.ok(&["mcp", "--install", name]).contains("rekindle"), "{name}");
    }
}

#[test]
fn the_configuration_of_a_client_keeps_everything_else() {
    let place = place();
    place.write(".cursor/mcp.json", "{\"mcpServers\": {\"other\": {\"command\": \"x\"}}, \"theme\": \"dark\"}");
    place.write(".codex/config.toml", "# mine\nmodel = \"m\"\n");
    place.ok(&["mcp", "--install", "cursor", "--write"]);
    place.ok(&["mcp", "--install", "codex", "--write"]);
    place.ok(&["mcp", "--install", "gemini", "--write"]);
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let cursor: Value = serde_json::from_str(&read(".cursor/mcp.json")).unwrap();
    assert_eq!((&cursor["theme"], &cursor["mcpServers"]["other"]["command"]), (&json!("dark"), &json!("x")));
    assert!(cursor["mcpServers"]["rekindle"]["command"].as_str().unwrap().ends_with("rekindle"));
    assert!(read(".codex/config.toml").starts_with("# mine\nmodel = \"m\"\n\n[mcp_servers.rekindle]\n"));
    assert!(read(".gemini/settings.json").contains("rekindle"));
    place.write(".config/zed/settings.json", "// Zed settings\n{\n  \"theme\": \"One\", // mine\n}\n");
    place.ok(&["mcp", "--install", "zed", "--write"]);
    let zed = read(".config/zed/settings.json");
    assert!(zed.starts_with("// Zed settings\n{\n  \"context_servers\": {\n    \"rekindle\": {\n"), "{zed}");
    assert!(zed.ends_with("\n  },\n  \"theme\": \"One\", // mine\n}\n"), "{zed}");
    let again = place.ok(&["mcp", "--install", "cursor", "--write"]);
    assert!(again.starts_with("already in"), "{again}");
}

#[test]
fn a_configuration_nobody_can_read_stays_as_it_is() {
    let place = place();
    let text = "{ // words of mine\n \"context_servers\": [], }";
    place.write(".config/zed/settings.json", text);
    let refused = place.fails(&["mcp", "--install", "zed", "--write"], 2);
    assert!(refused["error"]["hint"].as_str().unwrap().contains("by hand"), "{refused}");
    assert_eq!(std::fs::read_to_string(place.path(".config/zed/settings.json")).unwrap(), text);
}
