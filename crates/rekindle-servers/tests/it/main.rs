//! The proxy in front of the S3 of this crate: what each fault does to a request, and what a client sees.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rekindle_servers::{Proxy, ProxyFault, S3};

/// Long enough for an answer of this process, short enough to wait for one that never comes.
const PATIENCE: Duration = Duration::from_millis(300);

/// Sends one request on a connection of its own, and returns everything that came back before the connection
/// ended or the client lost its patience.
fn ask(proxy: &Proxy, method: &str, path: &str, body: &str) -> String {
    let url = proxy.url("b");
    let port = url.split("127.0.0.1:").nth(1).unwrap().split('&').next().unwrap();
    let Ok(mut stream) = TcpStream::connect(format!("127.0.0.1:{port}")) else { return "refused".to_owned() };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let request = format!("{method} /b/{path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            answer.extend_from_slice(b"|end");
            break;
        }
        answer.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(answer).unwrap()
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[test]
fn each_fault_is_before_or_after_the_request_is_carried_out() {
    let s3 = S3::start();
    let proxy = Proxy::start(s3.port());
    for (fault, carried_out, seen) in [
        (ProxyFault::None, true, "200"),
        (ProxyFault::Slow(Duration::from_millis(1)), true, "200"),
        (ProxyFault::SlowDown, false, "503"),
        (ProxyFault::Cut, false, "|end"),
        (ProxyFault::Silent, false, ""),
        (ProxyFault::ReplyLost, true, "500"),
        (ProxyFault::CutBehind, true, "|end"),
        (ProxyFault::SilentBehind, true, ""),
    ] {
        let key = format!("{fault:?}");
        proxy.set_faults(move |_| fault);
        let answer = ask(&proxy, "PUT", &key, "content");
        assert_eq!(status(&answer), seen, "{fault:?}: {answer}");
        assert_eq!(s3.keys("b").contains(&key), carried_out, "{fault:?}");
    }
}

#[test]
fn a_truncated_answer_announces_more_than_it_has() {
    let s3 = S3::start();
    let proxy = Proxy::start(s3.port());
    ask(&proxy, "PUT", "x", "0123456789");
    proxy.set_faults(|_| ProxyFault::Truncated(4));
    let answer = ask(&proxy, "GET", "x", "");
    assert!(answer.contains("content-length: 10\r\n") && answer.ends_with("\r\n\r\n0123|end"), "{answer}");
    proxy.set_faults(|_| ProxyFault::Truncated(10));
    assert!(ask(&proxy, "GET", "x", "").ends_with("\r\n\r\n0123456789"));
    proxy.heal();
    assert!(ask(&proxy, "GET", "x", "").ends_with("\r\n\r\n0123456789"));
    let head = ask(&proxy, "HEAD", "x", "");
    assert!(head.contains("content-length: 10\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn latency_throttling_refusal_and_counts() {
    let s3 = S3::start();
    let proxy = Proxy::start(s3.port());
    proxy.set_latency(Duration::from_millis(30));
    let began = Instant::now();
    ask(&proxy, "PUT", "slow", "");
    assert!(began.elapsed() >= Duration::from_millis(30));
    proxy.set_latency(Duration::ZERO);
    proxy.throttle(Duration::from_secs(3600));
    assert_eq!(status(&ask(&proxy, "GET", "slow", "")), "503");
    proxy.throttle(Duration::ZERO);
    assert_eq!(status(&ask(&proxy, "GET", "slow", "")), "200");
    proxy.refuse();
    assert_eq!(ask(&proxy, "GET", "slow", ""), "refused");
    proxy.accept();
    assert_eq!(status(&ask(&proxy, "GET", "?list-type=2&prefix=sl", "")), "200");
    let requests: Vec<_> =
        proxy.take_requests().into_iter().map(|request| request.method + " " + &request.key).collect();
    assert_eq!(requests, ["PUT slow", "GET slow", "GET slow", "LIST sl"]);
    assert_eq!((proxy.count(), proxy.take_requests()), (4, Vec::new()));
    assert!(proxy.wait_for(4, PATIENCE));
    assert!(!proxy.wait_for(5, Duration::from_millis(1)));
}
