//! Just enough HTTP/1.1 for a server that tests talk to.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A request, read whole.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path and the query as they were sent.
    pub(crate) target: String,
    /// Decoded, without the query.
    pub(crate) path: String,
    /// Decoded.
    pub(crate) query: Vec<(String, String)>,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// An answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(Cow<'static, str>, String)>,
    pub(crate) body: Vec<u8>,
    /// For `HEAD`: the length of what is not sent.
    pub(crate) length: Option<usize>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The next request of a connection; nothing at its end.
    pub(crate) fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or("/").to_owned());
        let headers = read_headers(stream)?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
        let path = decoded(path);
        let mut request = Self { method, target, path, query, headers, body: Vec::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        stream.read_exact(&mut request.body)?;
        Ok(Some(request))
    }

    /// Sends the request as it was read.
    pub(crate) fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        stream.flush()
    }
}

impl Answer {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn xml(status: u16, body: String) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/xml".to_owned())],
            body: body.into(),
            length: None,
        }
    }

    /// The answer to `HEAD`: a body behind it would be taken for the next answer.
    pub(crate) fn without_body(self) -> Self {
        Self { length: Some(self.body.len()), body: Vec::new(), ..self }
    }

    /// Reads the answer to a request with this method, and returns it with whether the connection stays open.
    pub(crate) fn read(stream: &mut BufReader<TcpStream>, method: &str) -> io::Result<(Self, bool)> {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let status = line.split_whitespace().nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut headers = read_headers(stream)?;
        let header = |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        let length = header("content-length").and_then(|length| length.parse().ok());
        let chunked = header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        let closes = header("connection").map(|word| word.eq_ignore_ascii_case("close"));
        let mut stays = !closes.unwrap_or(line.starts_with("HTTP/1.0"));
        let mut body = Vec::new();
        match length {
            _ if method == "HEAD" || status == 204 || status == 304 => {}
            _ if chunked => read_chunks(stream, &mut body)?,
            Some(length) => {
                body.resize(length, 0);
                stream.read_exact(&mut body)?;
            }
            None => {
                stays = false;
                stream.read_to_end(&mut body)?;
            }
        }
        headers.retain(|(name, _)| !["content-length", "transfer-encoding", "connection"].contains(&name.as_str()));
        let headers = headers.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let length = length.filter(|_| method == "HEAD");
        Ok((Self { status, headers, body, length }, stays))
    }

    pub(crate) fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} -\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", self.length.unwrap_or(self.body.len())));
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        stream.flush()
    }
}

/// Header lines up to the empty one.
fn read_headers(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(headers) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_chunks(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16);
        let length = length.map_err(|_| io::ErrorKind::InvalidData)?;
        let start = body.len();
        body.resize(start + length, 0);
        stream.read_exact(&mut body[start..])?;
        // The line break behind a chunk, or the empty line behind the last one.
        stream.read_line(&mut String::new())?;
        if length == 0 {
            return Ok(());
        }
    }
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
