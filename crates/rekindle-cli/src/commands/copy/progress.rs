//! How far a copy is: drawn on a terminal, said now and then where there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rekindle::SessionKey;

use crate::app::App;
use crate::ui::live::Live;
use crate::ui::{Ui, printable, time};

/// How often it is looked at.
pub const INTERVAL: Duration = Duration::from_millis(200);
/// How often it is said where nobody watches.
const SAID: Duration = Duration::from_secs(10);

/// Bytes that have arrived.
#[derive(Clone, Debug, Default)]
pub struct Bytes(Arc<AtomicU64>);

impl Bytes {
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// How far it is.
#[derive(Debug)]
pub struct Progress {
    ui: Ui,
    live: Live,
    total: u64,
    done: u64,
    latest: String,
    bytes: Bytes,
    begun: Instant,
    said: Instant,
}

impl Progress {
    pub fn new(app: &App, total: u64) -> Self {
        let (ui, now) = (app.ui.clone(), Instant::now());
        let live = Live::new(ui.clone());
        Self { ui, live, total, done: 0, latest: String::new(), bytes: Bytes::default(), begun: now, said: now }
    }

    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    pub fn ended(&mut self, session: &SessionKey) {
        self.done += 1;
        self.latest = printable(session.id.as_str());
        self.show();
    }

    /// Draws how far it is, or says it if it was not said for a while.
    pub fn show(&mut self) {
        let (total, bytes) = (self.total.max(self.done), self.bytes.0.load(Ordering::Relaxed));
        let elapsed = self.begun.elapsed().as_secs_f64().max(0.001);
        let rate = time::bytes((bytes as f64 / elapsed) as u64);
        let line = format!("{} of {total} sessions, {}, {rate}/s", self.done, time::bytes(bytes));
        if self.ui.is_watched() {
            self.live.show(&[format!("copied {line} {}", self.latest)]);
        } else if self.said.elapsed() >= SAID {
            self.said = Instant::now();
            self.ui.remark(format!("copied {line}"));
        }
    }

    pub fn clear(&mut self) {
        self.live.clear();
    }
}
