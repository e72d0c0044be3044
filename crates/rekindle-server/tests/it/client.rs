//! Requests as bytes.

use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Head and body.
    pub text: String,
}

/// Sends a request and reads until the server closes or the answer is complete.
pub async fn send(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, text }
}

/// The headers of every request, unless it says something else.
pub const TOKEN: &str = "a-token-that-nobody-guesses";

/// A request with a body.
pub fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let token = match headers.contains("Authorization") {
        true => String::new(),
        false => format!("\r\nAuthorization: Bearer {TOKEN}"),
    };
    format!(
        "POST {path} HTTP/1.1\r\n{headers}{token}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// The first request of a client that speaks 2025-11-25.
pub fn initialize(headers: &str) -> String {
    initialize_as("2025-11-25", headers)
}

/// The same, whatever it claims to speak.
pub fn initialize_as(version: &str, headers: &str) -> String {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    post("/mcp", headers, &body.to_string())
}

/// A request of 2026-07-28.
fn stateless(method: &str, name: Option<&str>, mut params: serde_json::Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let name = name.map(|name| format!("\r\nMcp-Name: {name}")).unwrap_or_default();
    let headers = format!("Host: localhost\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}{name}");
    post("/mcp", &headers, &body.to_string())
}

/// What can this server do?
pub fn discover() -> String {
    stateless("server/discover", None, json!({}))
}

/// A call of a tool.
pub fn call(name: &str) -> String {
    stateless("tools/call", Some(name), json!({"name": name, "arguments": {}}))
}
