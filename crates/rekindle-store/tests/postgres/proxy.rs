//! A TCP proxy before a server that can lose replies, go silent, and lead elsewhere.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What becomes of what passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It passes.
    Pass,
    /// What the server answers is lost, and the connection with it.
    LoseReplies,
    /// Nothing passes, and nobody is told.
    Silence,
}

struct State {
    port: u16,
    server: AtomicU16,
    mode: Mutex<Mode>,
    answers: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

/// Stands before a server.
pub struct Proxy(Arc<State>);

impl Proxy {
    /// A proxy before the server at `port`.
    pub fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let state = Arc::new(State {
            port: listener.local_addr().unwrap().port(),
            server: AtomicU16::new(port),
            mode: Mutex::new(Mode::Pass),
            answers: AtomicU64::new(0),
            open: Mutex::new(Vec::new()),
        });
        let accepting = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.connect(client);
            }
        });
        Self(state)
    }

    /// The URL of the server's database through the proxy. Unencrypted, so that answers can be counted.
    pub fn url(&self, query: &str) -> String {
        format!("postgres://rekindle:secret@127.0.0.1:{}/rekindle?sslmode=disable&{query}", self.0.port)
    }

    /// Changes what becomes of what passes through.
    pub fn set(&self, mode: Mode) {
        *self.0.mode.lock().unwrap() = mode;
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        for stream in self.0.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Leads to another server from now on.
    pub fn lead_to(&self, port: u16) {
        self.0.server.store(port, Ordering::SeqCst);
        self.cut();
    }

    /// How often the server has answered and waited for more: once for each trip.
    pub fn trips(&self) -> u64 {
        self.0.answers.load(Ordering::SeqCst)
    }
}

impl State {
    fn connect(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server.load(Ordering::SeqCst))) else { return };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let copy = |stream: &TcpStream| stream.try_clone().unwrap();
        self.open.lock().unwrap().extend([copy(&client), copy(&server)]);
        let (state, from, to) = (self.clone(), copy(&client), copy(&server));
        thread::spawn(move || state.pass(from, to, None));
        let state = self.clone();
        thread::spawn(move || state.pass(server, client, Some(Answers::default())));
    }

    /// Passes on what arrives; `answers` counts if it is the server that speaks.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, mut answers: Option<Answers>) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            while *self.mode.lock().unwrap() == Mode::Silence {
                thread::sleep(Duration::from_millis(20));
            }
            let bytes = &buffer[..count];
            if let Some(answers) = &mut answers {
                if *self.mode.lock().unwrap() == Mode::LoseReplies {
                    break;
                }
                self.answers.fetch_add(answers.count(bytes), Ordering::SeqCst);
            }
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// Finds the messages "ready for query" in what a server says.
#[derive(Default)]
struct Answers {
    header: Vec<u8>,
    rest: usize,
}

impl Answers {
    fn count(&mut self, bytes: &[u8]) -> u64 {
        let mut ready = 0;
        for byte in bytes {
            if self.rest > 0 {
                self.rest -= 1;
                continue;
            }
            self.header.push(*byte);
            if self.header.len() == 5 {
                let length = u32::from_be_bytes(self.header[1..5].try_into().unwrap()) as usize;
                ready += u64::from(self.header[0] == b'Z');
                self.rest = length - 4;
                self.header.clear();
            }
        }
        ready
    }
}
