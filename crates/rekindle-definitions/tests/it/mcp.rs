//! An MCP server over standard input and output.

use rekindle::{Engine, ResumeOptions};
use rekindle_definitions::{Definition, RunInput};

use crate::kit::{Files, build};

/// A server with two tools, in a few lines.
const SERVER: &str = r#"
import json, os, sys
TOOLS = [
    {"name": "add", "description": "Adds.", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    {"name": "drop", "description": "Drops.", "inputSchema": {"type": "object"}},
]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, result = message["method"], {}
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        text = "%s plus %s" % (message["params"]["arguments"], os.environ.get("KIND"))
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

const AGENT: &str = "
name: a
model:
  provider: scripted
  name: s
  script:
    turns:
      - expect: {tools: [math_add]}
        calls: [{name: math_add, arguments: {a: 5}}]
      - expect: {last_contains: plus maths}
        text: done
mcp:
  math:
    command: [python3, server.py]
    environment: {KIND: maths}
    prefix: math_
    exclude: [drop]
    timeout: 60s
    policies: {add: {writes: false}, '*': {in_doubt: never}}
";

#[tokio::test]
async fn the_tools_of_a_server_are_used_and_the_server_is_ended() {
    let files = Files::new(&[("agent.yaml", AGENT), ("server.py", SERVER)]);
    let built = build(Definition::load(files.path("agent.yaml")).unwrap()).await.unwrap();
    let session = Engine::memory().unwrap().create("s").await.unwrap();
    let run = built.start(&session, RunInput::text("go"), ResumeOptions::new("maria")).await.unwrap();
    let report = run.report().await.unwrap();
    assert_eq!(report.text(), "done", "{report:?}");
    built.shutdown().await;
}
