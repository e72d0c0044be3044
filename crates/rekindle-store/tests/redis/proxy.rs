//! Something between a store and its server that can go wrong on purpose.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes bytes on between a port of its own and a server.
pub struct Proxy(Arc<Inner>);

struct Inner {
    port: u16,
    target: AtomicU16,
    swallows: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// In front of the server on that port.
    pub fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let inner = Arc::new(Inner {
            port: listener.local_addr().unwrap().port(),
            target: AtomicU16::new(target),
            swallows: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let shared = inner.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                shared.connect(client.unwrap());
            }
        });
        Self(inner)
    }

    /// The URL of the store behind it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.0.port)
    }

    /// From now on, what the server answers does not arrive; or it does again.
    pub fn swallow(&self, swallows: bool) {
        self.0.swallows.store(swallows, Ordering::SeqCst);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in self.0.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// New connections lead to another server; the old ones end.
    pub fn lead_to(&self, target: u16) {
        self.0.target.store(target, Ordering::SeqCst);
        self.cut();
    }
}

impl Inner {
    fn connect(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.target.load(Ordering::SeqCst))) else { return };
        let mut streams = self.streams.lock().unwrap();
        streams.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        let (to_server, from_server) = (server.try_clone().unwrap(), server);
        let (to_client, from_client) = (client.try_clone().unwrap(), client);
        let (asking, answering) = (self.clone(), self.clone());
        thread::spawn(move || asking.pass(from_client, to_server, false));
        thread::spawn(move || answering.pass(from_server, to_client, true));
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, answers: bool) {
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if answers && self.swallows.load(Ordering::SeqCst) {
                continue;
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}
