//! A client over HTTP that costs as little as possible: one connection, requests as bytes, answers by their
//! length.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::Result;

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Client {
    pub async fn connect(address: std::net::SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), body: Vec::new() })
    }

    /// Sends a request and gives the body of its answer.
    pub async fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.stream.get_mut().write_all(request).await?;
        let (mut line, mut length) = (String::new(), 0);
        self.stream.read_line(&mut line).await?;
        if !line.contains(" 200 ") {
            return Err(format!("the server answered {}", line.trim()).into());
        }
        while line.trim() != "" {
            line.clear();
            self.stream.read_line(&mut line).await?;
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await?;
        Ok(&self.body)
    }
}

/// A call of a tool as a client of 2026-07-28 makes it.
pub fn call(tool: &str, arguments: &Value) -> Vec<u8> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: {tool}\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
