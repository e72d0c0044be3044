//! MCP servers at a URL.

use rekindle::Secret;
use rekindle_tools::{McpServer, ToolPolicy};
use serde_json::{Value, json};

use crate::kit::{call_shared, doubt, reads};
use crate::server::{Seen, Server, answer, json as json_answer};

const TOKEN: &str = "hunter4-hunter4";

/// A server with a tool that tells the token it was sent, one that loses the connection, one that has
/// no time, and one that is for others.
fn respond(seen: &Seen) -> Vec<u8> {
    let empty = |status: &str| answer(status, "", "");
    if seen.method != "POST" {
        return empty("405 Method Not Allowed");
    }
    if seen.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return answer("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "");
    }
    let message: Value = serde_json::from_str(&seen.body).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "web", "version": "1"}
        }),
        "tools/list" => {
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
            let tools = ["echo", "lose", "busy", "closed"].map(tool);
            json!({"tools": tools})
        }
        "tools/call" if message["params"]["name"] == "lose" => return Vec::new(),
        "tools/call" if message["params"]["name"] == "busy" => return empty("429 Too Many Requests"),
        "tools/call" if message["params"]["name"] == "closed" => {
            return answer("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", "");
        }
        "tools/call" => {
            json!({"content": [{"type": "text", "text": format!("you are {TOKEN}, {}", seen.header("x-who").unwrap())}]})
        }
        _ => return empty("202 Accepted"),
    };
    json_answer(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn calls(server: &Server, name: &str) -> usize {
    let is_call = |seen: &Seen| seen.body.contains("tools/call") && seen.body.contains(&format!("\"{name}\""));
    server.seen().iter().filter(|seen| is_call(seen)).count()
}

#[tokio::test]
async fn a_server_at_a_url_is_reached_with_its_token() {
    let web = Server::start(|seen, _| respond(seen)).await;
    let url = format!("{}/mcp", web.url);
    let quick = ToolPolicy { retries: Some(reads().retries), ..ToolPolicy::writes() };
    let server = McpServer::http("web", &url).bearer(Secret::new(TOKEN)).header("X-Who", "maria").default_policy(quick);
    let server = server.connect().await.unwrap();
    let tools = server.tools().await.unwrap();
    let [busy, closed, echo, lose] = tools.try_into().unwrap();
    let outcome = call_shared(echo, json!({})).await;
    assert_eq!(outcome, Ok(json!("you are [secret bearer], maria")), "what it was given stays a secret");

    let asked = doubt(lose, json!({})).await;
    assert!(asked.contains("the request failed"), "{asked}");
    assert_eq!(calls(&web, "lose"), 1, "a write is not repeated");
    // Of what was turned away it is known that it did nothing.
    for (tool, tries) in [(busy, 3), (closed, 1)] {
        let name = tool.spec().name.clone();
        let failed = call_shared(tool, json!({})).await.unwrap_err();
        assert!(!failed.contains("not known"), "{failed}");
        assert_eq!(calls(&web, &name), tries, "{name}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn what_only_reads_is_tried_again() {
    let web = Server::start(|seen, _| respond(seen)).await;
    let quick = ToolPolicy { retries: Some(reads().retries), ..ToolPolicy::reads() };
    let server = McpServer::http("web", &web.url).bearer(Secret::new(TOKEN)).default_policy(quick);
    let server = server.connect().await.unwrap();
    let tools = server.tools().await.unwrap();
    call_shared(tools[3].clone(), json!({})).await.unwrap_err();
    assert_eq!(calls(&web, "lose"), 3);
}

#[tokio::test]
async fn what_is_wrong_with_a_url_is_told() {
    let web = Server::start(|seen, _| respond(seen)).await;
    let failed = McpServer::http("web", &web.url).bearer(Secret::new("wrong-wrong")).connect().await.unwrap_err();
    assert_eq!(failed.message(), format!("MCP server `web` ({}): it wants to be authorized", web.url));
    let failed = McpServer::http("web", "ftp://x").environment([("A", "b")]).connect().await.unwrap_err();
    assert!(failed.message().contains("`ftp://x` is no http:// or https:// URL"), "{failed}");
    assert!(failed.message().contains("a URL takes neither variables nor a directory"), "{failed}");
    let failed =
        McpServer::http("web", &web.url).secret_header("X-A", Secret::new("a\nb\nc")).connect().await.unwrap_err();
    assert_eq!(failed.message(), "MCP server `web`: `X-A` or its value is none for a header");
}
