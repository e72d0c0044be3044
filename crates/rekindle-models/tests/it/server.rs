//! A small server that answers from a list of raw replies, one after the other, and remembers what
//! it was asked.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method and path with its query.
    pub line: String,
    headers: String,
    pub body: Value,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What goes over the wire.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// How many bytes of the body are one chunk.
    slice: usize,
    /// After so many bytes of the body the connection is closed without its end.
    cut: Option<usize>,
    /// Nothing more is said, but the connection stays.
    hangs: bool,
    /// The next request comes over the same connection.
    keeps: bool,
}

impl Reply {
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, body: body.into(), slice: 64, cut: None, hangs: false, keeps: false }
    }

    pub fn sse(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8", body)
    }

    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn sliced(mut self, bytes: usize) -> Self {
        self.slice = bytes;
        self
    }

    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }

    pub fn hanging_after(mut self, bytes: usize) -> Self {
        self.hangs = true;
        self.cut_after(bytes)
    }

    pub fn keeping_the_connection(mut self) -> Self {
        self.keeps = true;
        self
    }

    async fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let kept = if self.keeps { "keep-alive" } else { "close" };
        let mut head = format!("HTTP/1.1 {} Said\r\ntransfer-encoding: chunked\r\nconnection: {kept}\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).await?;
        let body = &self.body[..self.cut.unwrap_or(self.body.len())];
        for slice in body.chunks(self.slice) {
            let chunk = [format!("{:x}\r\n", slice.len()).as_bytes(), slice, b"\r\n"].concat();
            stream.write_all(&chunk).await?;
            stream.flush().await?;
        }
        if self.keeps {
            // The end comes when the other side has seen all the rest.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
        match (self.hangs, self.cut) {
            // Until the other side goes away.
            (true, _) => stream.read(&mut [0]).await.map(drop),
            // The beginning of a chunk that never comes.
            (false, Some(_)) => stream.write_all(b"ff\r\n").await,
            (false, None) => stream.write_all(b"0\r\n\r\n").await,
        }
    }
}

/// The server; gone when this is dropped.
#[derive(Debug)]
pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (replies, noted): (Vec<_>, _) = (replies.into_iter().collect(), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut kept: Option<TcpStream> = None;
            for reply in replies {
                let mut stream = match kept.take() {
                    Some(stream) => stream,
                    None => listener.accept().await.unwrap().0,
                };
                stream.set_nodelay(true).unwrap();
                // Something other than a request in plain text may come: a handshake.
                if let Some(request) = read(&mut stream).await {
                    noted.lock().unwrap().push(request);
                    // The other side may have gone away.
                    let _ = reply.send(&mut stream).await;
                    kept = reply.keeps.then_some(stream);
                }
            }
        });
        Self { url, seen, task }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The one request there was.
    pub fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        // The first byte of a handshake.
        if bytes[0] == 22 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let (line, headers) = text.split_once("\r\n").unwrap();
    let line = line.trim_end_matches(" HTTP/1.1").to_owned();
    let mut seen = Seen { line, headers: headers.to_owned(), body: Value::Null };
    let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head + 4 + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    if length > 0 {
        seen.body = serde_json::from_slice(&bytes[head + 4..]).unwrap();
    }
    Some(seen)
}
