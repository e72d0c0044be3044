//! An MCP server for tests: this very test program, started again as a child. It speaks on file
//! descriptor 3, since the test harness has its own use for the standard output.

use std::fs::File;
use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// Makes the program a server. Its value is what kind of one.
const MODE: &str = "REKINDLE_TEST_MCP";
/// Where it writes what it did.
const LEDGER: &str = "REKINDLE_TEST_LEDGER";

/// How to start the server.
pub fn command() -> Vec<String> {
    let program = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
    let words =
        ["sh", "-c", r#"exec "$0" "$@" 3>&1 >/dev/null"#, &program, "mcp_server::serve", "--exact", "--nocapture"];
    words.map(str::to_owned).to_vec()
}

/// The variables that make it a server of that kind.
pub fn variables(mode: &str, ledger: &std::path::Path) -> Vec<(String, String)> {
    let ledger = ledger.to_str().unwrap();
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), (MODE, mode), (LEDGER, ledger)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

/// The server, if it was started as one.
#[test]
fn serve() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let mut server = Server { mode, out: File::options().write(true).open("/dev/fd/3").unwrap() };
    server.run();
    // Nothing of the harness is wanted any more.
    std::process::exit(0);
}

struct Server {
    mode: String,
    out: File,
}

impl Server {
    fn run(&mut self) {
        match self.mode.as_str() {
            "exit" => die("fatal: no configuration, token hunter3-hunter3"),
            "silent" => eprintln_line("waiting for Godot"),
            _ => {}
        }
        // Whoever reads the ledger sees how long it lives.
        let held = (self.mode == "held").then(|| File::options().append(true).open(ledger()).unwrap());
        for line in std::io::stdin().lock().lines() {
            let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if self.mode != "silent" {
                self.take(&message);
            }
        }
        if self.mode == "stubborn" {
            let _held = File::options().append(true).open(ledger()).unwrap();
            loop {
                std::thread::park();
            }
        }
        if held.is_some() {
            loop {
                std::thread::park();
            }
        }
        note("end of input");
    }

    fn take(&mut self, message: &Value) {
        let params = &message["params"];
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "test", "version": "1"}
            }),
            "tools/list" => self.list(params["cursor"].as_str()),
            "tools/call" => match self.call(params) {
                Some(result) => result,
                None => return,
            },
            "notifications/cancelled" => return note("cancelled"),
            _ => return,
        };
        match result.get("error") {
            Some(error) => self.say(json!({"jsonrpc": "2.0", "id": message["id"], "error": error})),
            None => self.say(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})),
        }
    }

    fn say(&mut self, message: Value) {
        writeln!(self.out, "{message}").unwrap();
    }

    fn list(&self, cursor: Option<&str>) -> Value {
        let tool = |name: &str| json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}});
        let schema = |schema: Value| json!([{"name": "odd", "inputSchema": schema}, tool("echo")]);
        match (self.mode.as_str(), cursor) {
            ("pages", None) => json!({"tools": [tool("b/1")], "nextCursor": "two"}),
            ("pages", Some("two")) => json!({"tools": [], "nextCursor": "three"}),
            ("pages", Some(_)) => json!({"tools": [tool("a")]}),
            ("circle", _) => json!({"tools": [], "nextCursor": "again"}),
            ("many", _) => json!({"tools": (0..1_001).map(|n| tool(&format!("t{n}"))).collect::<Vec<_>>()}),
            ("collide", _) => json!({"tools": [tool("a.b"), tool("a/b")]}),
            ("odd-type", _) => json!({"tools": schema(json!({"type": "array"}))}),
            ("odd-schema", _) => {
                json!({"tools": schema(json!({"type": "object", "properties": {"a": {"type": "nonsense"}}}))})
            }
            ("changed", _) if std::fs::read_to_string(ledger()).is_ok() => {
                json!({"tools": [tool("echo"), tool("more")]})
            }
            _ => json!({"tools": [
                tool("echo"), tool("key"), tool("progress"), tool("fails"), tool("structured"), tool("die"), tool("hang"),
                tool("garbage"), tool("refuses"),
                {"name": "reads", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}
            ]}),
        }
    }

    fn call(&mut self, params: &Value) -> Option<Value> {
        let (name, arguments) = (params["name"].as_str().unwrap(), &params["arguments"]);
        note(name);
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        Some(match name {
            "key" => text(params["_meta"]["rekindle/idempotencyKey"].as_str().unwrap()),
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for progress in [1, 2] {
                    let params = json!({"progressToken": token, "progress": progress, "total": 2, "message": "on it"});
                    self.say(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
                }
                text("done")
            }
            "fails" => json!({"content": [{"type": "text", "text": "no such city"}], "isError": true}),
            "structured" => json!({"content": [], "structuredContent": {"n": [1, 2]}}),
            "die" if count("die") == 1 || arguments["always"] == json!(true) => die("fatal: out of luck"),
            "die" => text("alive again"),
            "hang" => return None,
            "garbage" => {
                writeln!(self.out, "Listening on port 1234 …\n{{\"jsonrpc\": 7}}\n[]\n\u{1b}[31mred").unwrap();
                text("after the garbage")
            }
            "refuses" => json!({"error": {"code": -32602, "message": "no such thing"}}),
            _ => text(arguments["text"].as_str().unwrap_or_default()),
        })
    }
}

fn ledger() -> String {
    std::env::var(LEDGER).unwrap()
}

/// Writes down what was done, for good.
fn note(line: &str) {
    let mut file = File::options().create(true).append(true).open(ledger()).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn count(line: &str) -> usize {
    std::fs::read_to_string(ledger()).unwrap().lines().filter(|known| *known == line).count()
}

fn eprintln_line(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

fn die(words: &str) -> ! {
    eprintln_line(words);
    std::process::exit(7);
}
