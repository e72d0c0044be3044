//! A proxy in front of any S3 endpoint of this machine: adds latency, fails requests before and
//! after they are carried out, cuts answers short, throttles, refuses connections, and counts.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufReader, Read as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::http::{Answer, Request};
use crate::s3::{S3Request, bucket_url, error, seen};

/// What the proxy does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// Passes it on.
    None,
    /// Passes it on after this long, besides the latency of all requests.
    Slow(Duration),
    /// Does not pass it on: 503 SlowDown.
    SlowDown,
    /// Does not pass it on, and cuts the connection.
    Cut,
    /// Does not pass it on, and never answers: the client runs into its timeout.
    Silent,
    /// Passes it on, and answers 500.
    ReplyLost,
    /// Passes it on, and cuts the connection.
    CutBehind,
    /// Passes it on, and never answers: the client runs into its timeout.
    SilentBehind,
    /// Passes it on, announces the whole answer, and cuts the connection after this many bytes of its body. An
    /// answer that has no more than that arrives whole.
    Truncated(usize),
}

type Plan = Box<dyn FnMut(&S3Request) -> ProxyFault + Send>;

#[derive(Default)]
struct Inner {
    upstream: u16,
    latency: Duration,
    throttled_until: Option<Instant>,
    plan: Option<Plan>,
    requests: Vec<S3Request>,
    count: usize,
    /// The numbers of requests the endpoint has answered, counted from one.
    answered: BTreeSet<usize>,
    connections: Vec<TcpStream>,
    refuses: bool,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    /// Notified for each request.
    arrived: Condvar,
}

/// A proxy in front of an S3 endpoint. It lives until the process ends.
#[derive(Clone)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy in front of the endpoint at `upstream`, a port of this machine.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        proxy.lock().upstream = upstream;
        proxy.serve_on(listener);
        proxy
    }

    /// The URL of a bucket with everything a client needs.
    pub fn url(&self, bucket: &str) -> String {
        bucket_url(bucket, self.port)
    }

    /// Adds this time to every request from now on: half on the way there, half on the way back.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Asks `plan` about every request from now on.
    pub fn set_faults(&self, plan: impl FnMut(&S3Request) -> ProxyFault + Send + 'static) {
        self.lock().plan = Some(Box::new(plan));
    }

    /// Answers every request of this time span with 503 SlowDown, before the plan is asked.
    pub fn throttle(&self, span: Duration) {
        self.lock().throttled_until = Some(Instant::now() + span);
    }

    /// Cuts all connections, and refuses new ones until [`accept`](Self::accept).
    pub fn refuse(&self) {
        let mut inner = self.lock();
        inner.refuses = true;
        for connection in inner.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(inner);
        // Wakes the thread that accepts, which then gives up its port.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            std::thread::yield_now();
        }
    }

    /// Accepts connections again.
    ///
    /// # Panics
    ///
    /// If another process has taken the port meanwhile.
    pub fn accept(&self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        self.lock().refuses = false;
        self.serve_on(listener);
    }

    /// Ends faults and throttling. Latency stays.
    pub fn heal(&self) {
        let mut inner = self.lock();
        (inner.plan, inner.throttled_until) = (None, None);
    }

    /// Returns the requests since this was last asked.
    pub fn take_requests(&self) -> Vec<S3Request> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Returns how many requests there were in all.
    pub fn count(&self) -> usize {
        self.lock().count
    }

    /// Waits until there were `count` requests in all. Returns false if that takes longer than `limit`.
    pub fn wait_for(&self, count: usize, limit: Duration) -> bool {
        let waited = self.shared.arrived.wait_timeout_while(self.lock(), limit, |inner| inner.count < count);
        !waited.unwrap().1.timed_out()
    }

    /// Returns whether the endpoint has answered the request with that number, counted from one.
    pub fn passed_on(&self, number: usize) -> bool {
        self.lock().answered.contains(&number)
    }

    fn serve_on(&self, listener: TcpListener) {
        let shared = self.shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut inner = shared.inner.lock().unwrap();
                if inner.refuses {
                    break;
                }
                inner.connections.extend(stream.try_clone());
                drop(inner);
                let shared = shared.clone();
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap()
    }
}

impl Shared {
    /// Counts a request; its number, what is done with it, and the latency.
    fn admit(&self, request: &S3Request) -> (usize, ProxyFault, Duration) {
        let mut inner = self.inner.lock().unwrap();
        inner.requests.push(request.clone());
        inner.count += 1;
        self.arrived.notify_all();
        let fault = match inner.throttled_until {
            Some(until) if Instant::now() < until => ProxyFault::SlowDown,
            _ => inner.plan.as_mut().map_or(ProxyFault::None, |plan| plan(request)),
        };
        (inner.count, fault, inner.latency)
    }
}

/// Serves one connection of a client.
fn serve(client: &TcpStream, shared: &Shared) {
    let _ = client.set_nodelay(true);
    let _ = exchange(client, shared);
    let _ = client.shutdown(Shutdown::Both);
    let own = client.peer_addr().ok();
    shared.inner.lock().unwrap().connections.retain(|held| held.peer_addr().is_ok_and(|peer| Some(peer) != own));
}

/// Carries requests and answers until one side or a fault ends it.
fn exchange(client: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut writer = client.try_clone()?;
    let mut reader = BufReader::new(client.try_clone()?);
    let upstream = shared.inner.lock().unwrap().upstream;
    let mut upstream = Upstream { port: upstream, connection: None };
    while let Some(request) = Request::read(&mut reader)? {
        let (number, fault, latency) = shared.admit(&seen(&request));
        std::thread::sleep(latency / 2);
        match fault {
            ProxyFault::Slow(time) => std::thread::sleep(time),
            ProxyFault::SlowDown => {
                std::thread::sleep(latency / 2);
                answered(&request, error(503, "SlowDown")).write(&mut writer)?;
                continue;
            }
            ProxyFault::Cut => return Ok(()),
            ProxyFault::Silent => return until_closed(&mut reader),
            _ => {}
        }
        let answer = upstream.pass_on(&request)?;
        shared.inner.lock().unwrap().answered.insert(number);
        std::thread::sleep(latency / 2);
        match fault {
            ProxyFault::ReplyLost => answered(&request, error(500, "InternalError")).write(&mut writer)?,
            ProxyFault::CutBehind => return Ok(()),
            ProxyFault::SilentBehind => return until_closed(&mut reader),
            ProxyFault::Truncated(kept) if answer.body.len() > kept => {
                let length = Some(answer.body.len());
                let body = answer.body[..kept].to_vec();
                return Answer { length, body, ..answer }.write(&mut writer);
            }
            _ => answer.write(&mut writer)?,
        }
    }
    Ok(())
}

/// An answer of the proxy's own: one to `HEAD` has no body.
fn answered(request: &Request, answer: Answer) -> Answer {
    if request.method == "HEAD" { answer.without_body() } else { answer }
}

/// Says nothing until the client gives up.
fn until_closed(reader: &mut BufReader<TcpStream>) -> io::Result<()> {
    let mut ignored = [0; 1024];
    while reader.read(&mut ignored)? > 0 {}
    Ok(())
}

/// The endpoint as one connection of a client uses it.
struct Upstream {
    port: u16,
    connection: Option<BufReader<TcpStream>>,
}

impl Upstream {
    fn pass_on(&mut self, request: &Request) -> io::Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        request.write(connection.get_mut())?;
        let (answer, stays) = Answer::read(&mut connection, &request.method)?;
        self.connection = stays.then_some(connection);
        Ok(answer)
    }
}
