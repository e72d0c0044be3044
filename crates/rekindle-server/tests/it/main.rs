//! The server as clients meet it: real connections, raw requests.
#![allow(clippy::unwrap_used)]

mod client;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use client::{Answer, initialize, post, send};
use rekindle_server::rmcp::ServerHandler;
use rekindle_server::rmcp::model::{CallToolRequestParams, CallToolResponse, ErrorData};
use rekindle_server::rmcp::service::{RequestContext, RoleServer};
use rekindle_server::{Access, CancellationToken, Limits, Server, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const ANY_PORT: &str = "127.0.0.1:0";
const TOKEN: &str = "a-token-that-nobody-guesses";

/// Answers nothing but the protocol; its one tool never answers.
struct Silent;

impl ServerHandler for Silent {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        std::future::pending().await
    }
}

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn start(access: Access, limits: Limits) -> Running {
    let server = Server::bind(ANY_PORT.parse().unwrap(), access, limits).await.unwrap().mcp(|| Silent);
    let (address, stop) = (server.address(), CancellationToken::new());
    Running { address, stop: stop.clone(), task: tokio::spawn(server.run_until(stop)) }
}

impl Running {
    async fn ask(&self, request: String) -> Answer {
        send(self.address, request.as_bytes()).await
    }
}

/// What never ends fails the test instead of keeping it.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it ends")
}

#[tokio::test]
async fn a_client_of_this_machine_is_served() {
    let server = start(Access::local(), Limits::default()).await;
    let answer = server.ask(initialize("Host: localhost")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.text.contains("protocolVersion"), "{answer:?}");
    assert_eq!(server.ask(post("/elsewhere", "Host: localhost", "{}")).await.status, 404);
}

#[tokio::test]
async fn strange_hosts_and_origins_are_turned_away_before_anything_is_read() {
    let server = start(Access::local(), Limits::default()).await;
    assert_eq!(server.ask(initialize("Host: evil.example")).await.status, 403);
    assert_eq!(server.ask(initialize("Host: localhost\r\nOrigin: http://evil.example")).await.status, 403);
    assert_eq!(server.ask(initialize("Host: localhost\r\nOrigin: http://localhost:6274")).await.status, 200);
    let endless = "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000000\r\n\r\n".to_owned();
    assert_eq!(server.ask(endless).await.status, 403);
}

#[tokio::test]
async fn the_token_is_asked_for_and_never_said() {
    let access = Access::local().with_token(Token::new(TOKEN).unwrap());
    let server = start(access, Limits::default()).await;
    let without = server.ask(initialize("Host: localhost")).await;
    assert_eq!(without.status, 401);
    assert!(without.text.to_lowercase().contains("www-authenticate: bearer"), "{without:?}");
    assert!(!without.text.contains(TOKEN));
    let wrong = format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}x");
    assert_eq!(server.ask(initialize(&wrong)).await.status, 401);
    let right = format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}");
    assert_eq!(server.ask(initialize(&right)).await.status, 200);
}

#[tokio::test]
async fn other_machines_are_refused_without_a_token() {
    let refused = Server::bind("0.0.0.0:0".parse().unwrap(), Access::local(), Limits::default()).await.unwrap_err();
    assert!(refused.next_step().contains("token"), "{refused}");
}

#[tokio::test]
async fn no_more_is_read_than_was_agreed_on() {
    let server = start(Access::local(), Limits::default().with_body(1000)).await;
    let large = "x".repeat(1001);
    assert_eq!(server.ask(post("/mcp", "Host: localhost", &large)).await.status, 413);
    let announced = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\n\r\n".to_owned();
    assert_eq!(server.ask(announced).await.status, 413);
    let chunks = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let chunked = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    assert_eq!(server.ask(chunked).await.status, 413);
    assert_eq!(server.ask(initialize("Host: localhost")).await.status, 200, "it goes on");
}

#[tokio::test]
async fn slow_requests_are_given_up() {
    let server = start(Access::local(), Limits::default().with_reading(Duration::from_millis(50))).await;
    let half = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf".to_owned();
    assert_eq!(soon(server.ask(half)).await.status, 408);
    let mut head = TcpStream::connect(server.address).await.unwrap();
    head.write_all(b"POST /mcp HTTP/1.1\r\nHo").await.unwrap();
    let mut rest = Vec::new();
    let _ = soon(head.read_to_end(&mut rest)).await;
    assert!(!String::from_utf8_lossy(&rest).contains(" 200 "));
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_given_up() {
    let server = start(Access::local(), Limits::default().with_answering(Duration::from_millis(50))).await;
    assert_eq!(soon(server.ask(client::call("never"))).await.status, 504);
}

#[tokio::test]
async fn one_session_too_many_is_turned_away() {
    let server = start(Access::local(), Limits::default().with_sessions(1)).await;
    assert_eq!(server.ask(initialize("Host: localhost")).await.status, 200);
    assert_eq!(server.ask(initialize("Host: localhost")).await.status, 503);
    let discover = server.ask(client::discover()).await;
    assert_eq!(discover.status, 200, "who needs no session is served: {discover:?}");
}

#[tokio::test]
async fn no_header_gets_past_the_number_of_sessions() {
    let server = start(Access::local(), Limits::default().with_sessions(1)).await;
    assert_eq!(server.ask(initialize("Host: localhost")).await.status, 200);
    let newer = "Host: localhost\r\nMCP-Protocol-Version: 2026-07-28";
    assert_eq!(server.ask(client::initialize_as("2026-07-28", newer)).await.status, 503);
    assert_eq!(server.ask(initialize("Host: localhost\r\nMcp-Session-Id: \u{e9}")).await.status, 503);
}

#[tokio::test]
async fn one_connection_too_many_waits_its_turn() {
    let server = start(Access::local(), Limits::default().with_connections(1)).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let request = initialize("Host: localhost");
    let second = send(server.address, request.as_bytes());
    tokio::pin!(second);
    let early = tokio::time::timeout(Duration::from_millis(100), second.as_mut()).await;
    assert!(early.is_err(), "the first is still there: {early:?}");
    drop(first);
    assert_eq!(soon(second).await.status, 200);
}

#[tokio::test]
async fn it_stops_although_somebody_waits() {
    let server = start(Access::local(), Limits::default().with_draining(Duration::from_millis(100))).await;
    let mut waiting = TcpStream::connect(server.address).await.unwrap();
    waiting.write_all(client::call("never").as_bytes()).await.unwrap();
    let idle = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(server.ask(initialize("Host: localhost")).await.status, 200);
    server.stop.cancel();
    soon(server.task).await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
    drop((waiting, idle));
}
