//! The server as clients meet it: real connections, raw requests.
#![allow(clippy::unwrap_used)]

mod client;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use client::{Answer, TOKEN, initialize, post, send};
use rekindle_server::rmcp::ServerHandler;
use rekindle_server::rmcp::model::{CallToolRequestParams, CallToolResponse, ErrorData};
use rekindle_server::rmcp::service::{RequestContext, RoleServer};
use rekindle_server::{Access, CancellationToken, Limits, Server, Token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Headers of a client that may ask.
const KNOWN: &str = "Host: localhost\r\nAuthorization: Bearer a-token-that-nobody-guesses\r\n";
const ANY_PORT: &str = "127.0.0.1:0";

/// One token, named `ci`.
fn access() -> Access {
    Access::new().with_token("ci", Token::new(TOKEN).unwrap())
}

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
    let server = Server::bind(ANY_PORT.parse().unwrap(), access, limits).await.unwrap().mcp(|_| Silent);
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
    let server = start(access(), Limits::default()).await;
    let answer = server.ask(initialize("Host: localhost")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.text.contains("protocolVersion"), "{answer:?}");
    assert_eq!(server.ask(post("/elsewhere", "Host: localhost", "{}")).await.status, 404);
}

#[tokio::test]
async fn strange_hosts_and_origins_are_turned_away_before_anything_is_read() {
    let server = start(access(), Limits::default()).await;
    assert_eq!(server.ask(initialize("Host: evil.example")).await.status, 403);
    assert_eq!(server.ask(initialize("Host: localhost\r\nOrigin: http://evil.example")).await.status, 403);
    let own = format!("Host: localhost\r\nOrigin: http://localhost:{}", server.address.port());
    assert_eq!(server.ask(initialize(&own)).await.status, 403, "the port of Host is left out, that of the page is not");
    let own = format!("Host: localhost:{0}\r\nOrigin: http://localhost:{0}", server.address.port());
    assert_eq!(server.ask(initialize(&own)).await.status, 200);
    let endless = "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000000\r\n\r\n".to_owned();
    assert_eq!(server.ask(endless).await.status, 403);
}

#[tokio::test]
async fn the_token_is_asked_for_and_never_said() {
    let server = start(access(), Limits::default()).await;
    let without = server.ask(initialize("Host: localhost\r\nX-Authorization: none")).await;
    assert_eq!(without.status, 401);
    assert!(without.text.to_lowercase().contains("www-authenticate: bearer"), "{without:?}");
    assert!(!without.text.contains(TOKEN));
    let wrong = format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}x");
    assert_eq!(server.ask(initialize(&wrong)).await.status, 401);
    let right = format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}");
    assert_eq!(server.ask(initialize(&right)).await.status, 200);
}

#[tokio::test]
async fn nothing_is_listened_on_without_a_token() {
    for address in ["0.0.0.0:0", ANY_PORT, "[::1]:0"] {
        let refused = Server::bind(address.parse().unwrap(), Access::new(), Limits::default()).await.unwrap_err();
        assert!(refused.next_step().contains("token"), "{refused}");
    }
}

#[tokio::test]
async fn no_more_is_read_than_was_agreed_on() {
    let server = start(access(), Limits::default().with_body(1000)).await;
    let large = "x".repeat(1001);
    assert_eq!(server.ask(post("/mcp", "Host: localhost", &large)).await.status, 413);
    let announced = format!("POST /mcp HTTP/1.1\r\n{KNOWN}Content-Length: 50000000\r\n\r\n");
    assert_eq!(server.ask(announced).await.status, 413);
    let chunks = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let chunked = format!("POST /mcp HTTP/1.1\r\n{KNOWN}Transfer-Encoding: chunked\r\n\r\n{chunks}");
    assert_eq!(server.ask(chunked).await.status, 413);
    assert_eq!(server.ask(initialize("Host: localhost")).await.status, 200, "it goes on");
}

#[tokio::test]
async fn slow_requests_are_given_up() {
    let server = start(access(), Limits::default().with_reading(Duration::from_millis(50))).await;
    let half = format!("POST /mcp HTTP/1.1\r\n{KNOWN}Content-Length: 10\r\n\r\nhalf");
    assert_eq!(soon(server.ask(half)).await.status, 408);
    let mut head = TcpStream::connect(server.address).await.unwrap();
    head.write_all(b"POST /mcp HTTP/1.1\r\nHo").await.unwrap();
    let mut rest = Vec::new();
    let _ = soon(head.read_to_end(&mut rest)).await;
    assert!(!String::from_utf8_lossy(&rest).contains(" 200 "));
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_given_up() {
    let server = start(access(), Limits::default().with_answering(Duration::from_millis(50))).await;
    assert_eq!(soon(server.ask(client::call("never"))).await.status, 504);
}

/// The session an answer began.
fn session(answer: &Answer) -> String {
    let head = answer.text.to_lowercase();
    head.split("mcp-session-id: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned()
}

/// A request within a session.
fn ping(session: &str, token: &str) -> String {
    let headers = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\nMcp-Session-Id: {session}");
    post("/mcp", &headers, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#)
}

#[tokio::test]
async fn for_one_session_too_many_the_oldest_idle_one_is_forgotten() {
    let server = start(access(), Limits::default().with_sessions(2)).await;
    let mut began = Vec::new();
    for _ in 0..4 {
        let answer = soon(server.ask(initialize("Host: localhost"))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        began.push(session(&answer));
    }
    let expected = [404, 404, 200, 200];
    for (session, expected) in began.iter().zip(expected) {
        assert_eq!(soon(server.ask(ping(session, TOKEN))).await.status, expected);
    }
    let discover = server.ask(client::discover()).await;
    assert_eq!(discover.status, 200, "who needs no session is served: {discover:?}");
}

#[tokio::test]
async fn a_flood_of_sessions_is_bounded_and_keeps_nobody_out() {
    let server = start(access(), Limits::default().with_sessions(8)).await;
    for _ in 0..10 {
        let requests: Vec<String> = (0..30).map(|_| initialize("Host: localhost")).collect();
        let flood = requests.iter().map(|request| send(server.address, request.as_bytes()));
        let statuses: Vec<u16> = soon(all(flood)).await.iter().map(|answer| answer.status).collect();
        assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    }
    let late = soon(server.ask(initialize("Host: localhost"))).await;
    assert_eq!(late.status, 200, "at once, not after a minute: {late:?}");
    assert_eq!(soon(server.ask(ping(&session(&late), TOKEN))).await.status, 200);
}

/// All of them at once.
async fn all<T: Send + 'static>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, done) in &mut waiting {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *done = Some(value),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    waiting.into_iter().filter_map(|(_, done)| done).collect()
}

#[tokio::test]
async fn without_a_token_no_session_is_begun() {
    let server = start(access(), Limits::default().with_sessions(1)).await;
    let own = session(&server.ask(initialize("Host: localhost")).await);
    for _ in 0..20 {
        assert_eq!(server.ask(initialize("Host: localhost\r\nX-Authorization: none")).await.status, 401);
    }
    assert_eq!(server.ask(ping(&own, TOKEN)).await.status, 200);
}

#[tokio::test]
async fn no_header_gets_past_the_number_of_sessions() {
    let server = start(access(), Limits::default().with_sessions(1)).await;
    let first = session(&server.ask(initialize("Host: localhost")).await);
    let newer = "Host: localhost\r\nMCP-Protocol-Version: 2026-07-28";
    server.ask(client::initialize_as("2026-07-28", newer)).await;
    assert_eq!(server.ask(initialize("Host: localhost\r\nMcp-Session-Id: \u{e9}")).await.status, 200);
    assert_eq!(server.ask(ping(&first, TOKEN)).await.status, 404, "there is one at a time");
}

#[tokio::test]
async fn a_session_is_of_the_credential_that_began_it() {
    let other = "another-token-nobody-guesses";
    let server = start(access().with_token("otto", Token::new(other).unwrap()), Limits::default()).await;
    let own = session(&server.ask(initialize("Host: localhost")).await);
    assert_eq!(server.ask(ping(&own, other)).await.status, 404);
    assert_eq!(server.ask(ping(&own, TOKEN)).await.status, 200);
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let server = start(access(), Limits::default().with_connections(20)).await;
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    assert_eq!(soon(server.ask(initialize("Host: localhost"))).await.status, 200);
    let mut closed = 0;
    for stream in &mut silent[..20] {
        closed += usize::from(soon(stream.read(&mut [0])).await.is_ok_and(|bytes| bytes == 0));
    }
    assert_eq!(closed, 20, "the oldest gave way");
}

#[tokio::test]
async fn a_connection_that_shows_no_token_is_closed() {
    let server = start(access(), Limits::default().with_greeting(Duration::from_millis(50))).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(soon(silent.read(&mut [0])).await.unwrap(), 0);
    let mut known = TcpStream::connect(server.address).await.unwrap();
    known.write_all(format!("GET /elsewhere HTTP/1.1\r\n{KNOWN}\r\n").as_bytes()).await.unwrap();
    assert!(soon(known.read(&mut [0])).await.unwrap() > 0);
}

#[tokio::test]
async fn a_connection_with_a_token_gives_way_to_none() {
    let server = start(access(), Limits::default().with_connections(1)).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(initialize("Host: localhost").replace("Connection: close\r\n", "").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"0\r\n\r\n") {
        let mut piece = [0; 512];
        let read = soon(first.read(&mut piece)).await.unwrap();
        answer.extend_from_slice(&piece[..read]);
    }
    let request = initialize("Host: localhost");
    let second = send(server.address, request.as_bytes());
    tokio::pin!(second);
    let early = tokio::time::timeout(Duration::from_millis(100), second.as_mut()).await;
    assert!(early.is_err(), "the first is still there: {early:?}");
    drop(first);
    assert_eq!(soon(second).await.status, 200);
}

#[cfg(unix)]
mod socket {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use rekindle_server::Identity;
    use tokio::net::UnixStream;

    use super::*;

    async fn ask(path: &std::path::Path, request: String) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        // A server that does not want this user closes at once.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut text = Vec::new();
        let _ = soon(stream.read_to_end(&mut text)).await;
        String::from_utf8_lossy(&text).into_owned()
    }

    #[tokio::test]
    async fn a_socket_serves_its_owner_alone_and_needs_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let (path, uid) = (folder.path().join("private/mcp.sock"), folder.path().metadata().unwrap().uid());
        let bind = async |uid: u32| {
            let access = Access::new().with_peer(uid, Identity::claimed("maria", format!("uid:{uid}")));
            Server::bind_socket(&path, access, Limits::default()).await
        };
        let server = bind(uid).await.unwrap().mcp(|_| Silent);
        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(bind(uid).await.unwrap_err().next_step().contains("another server"));
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run_until(stop.clone()));
        let request = || initialize("Host: localhost\r\nX-Authorization: none");
        assert!(ask(&path, request()).await.contains(" 200 "), "the owner");
        stop.cancel();
        soon(running).await.unwrap();
        assert!(!path.exists());
        // A server for another user: this process may not ask.
        let server = bind(uid + 1).await.unwrap().mcp(|_| Silent);
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run_until(stop.clone()));
        assert_eq!(ask(&path, request()).await, "");
        stop.cancel();
        soon(running).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_no_socket_is_never_removed_and_a_dead_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let access = || Access::new().with_peer(0, "root".into());
        let file = folder.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        Server::bind_socket(&file, access(), Limits::default()).await.unwrap_err();
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        let dead = folder.path().join("dead");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        assert!(dead.exists());
        Server::bind_socket(&dead, access(), Limits::default()).await.unwrap();
        Server::bind_socket(&folder.path().join("new"), Access::new(), Limits::default()).await.unwrap_err();
    }
}

#[tokio::test]
async fn it_stops_although_somebody_waits() {
    let server = start(access(), Limits::default().with_draining(Duration::from_millis(100))).await;
    let mut waiting = TcpStream::connect(server.address).await.unwrap();
    waiting.write_all(client::call("never").as_bytes()).await.unwrap();
    let idle = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(server.ask(initialize("Host: localhost")).await.status, 200);
    server.stop.cancel();
    soon(server.task).await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
    drop((waiting, idle));
}
