//! The signals that ask a program to stop, and the time within which it does.
//!
//! A program that listens for signals no longer ends by them, so it has to end by itself, also if the store never
//! answers. Signals are therefore received on a thread of their own, which ends the program when its time is over: what
//! was recorded stands, and the rest is as after a crash.

use std::sync::mpsc;
use std::time::Duration;

use rekindle::{Error, ErrorKind, Result};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::exit::Exit;
use crate::ui::{Ui, style};

/// The time to record the end, besides the time that calls under way have to end.
const TO_RECORD: Duration = Duration::from_secs(10);
/// The time to end after a second signal.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Ctrl-C, SIGTERM and a terminal that was closed, as they arrive.
pub struct Signals {
    names: UnboundedReceiver<&'static str>,
}

impl Signals {
    /// Listens: from now on signals no longer end the program at once. It ends `grace()` and ten seconds after the first
    /// one at the latest, three seconds after a second one, and at once after one that comes when this is gone.
    pub fn listen(ui: &Ui, grace: impl Fn() -> Duration + Send + 'static) -> Result<Self> {
        let failed = |error| Error::new(ErrorKind::Unsupported, "signals cannot be listened to").because(error);
        let (sender, names) = unbounded_channel();
        let (told, ready) = mpsc::channel();
        let watch = Watch { ui: ui.clone(), grace: Box::new(grace), names: sender };
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || watch.run(&told)).map_err(failed)?;
        match ready.recv() {
            Ok(ready) => ready.map_err(failed).map(|()| Self { names }),
            Err(_) => Err(Error::new(ErrorKind::Unsupported, "signals cannot be listened to")),
        }
    }

    /// The name of the next one. May be dropped at any time.
    pub async fn next(&mut self) -> &'static str {
        match self.names.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }
}

/// Receives signals, and ends the program in time.
struct Watch {
    ui: Ui,
    grace: Box<dyn Fn() -> Duration + Send>,
    names: UnboundedSender<&'static str>,
}

/// The signals themselves.
struct Sources {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Sources {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "a closed terminal",
        }
    }
}

impl Watch {
    /// A runtime of its own: the threads of the other one may all be busy.
    fn run(self, told: &mpsc::Sender<std::io::Result<()>>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(told.send(Err(error))),
        };
        let sources = runtime.block_on(async { Sources::new() });
        match sources {
            Ok(sources) => {
                let _ = told.send(Ok(()));
                self.watch(&runtime, sources);
            }
            Err(error) => drop(told.send(Err(error))),
        }
    }

    fn watch(self, runtime: &Runtime, mut sources: Sources) {
        runtime.block_on(async {
            let first = sources.next().await;
            self.pass_on(first);
            let mut end = Instant::now() + (self.grace)() + TO_RECORD;
            loop {
                tokio::select! {
                    name = sources.next() => {
                        self.pass_on(name);
                        end = end.min(Instant::now() + AT_ONCE);
                    }
                    () = tokio::time::sleep_until(end) => self.end(first),
                }
            }
        });
    }

    fn pass_on(&self, name: &'static str) {
        // What listened has come to its end: there is nothing left to pause.
        if self.names.send(name).is_err() {
            std::process::exit(Exit::Interrupted.code().into());
        }
    }

    fn end(&self, name: &str) {
        let text = format!("{name}: the end could not be recorded in time; what was recorded before stands");
        self.ui.remark(format!("{}{text}{}", style::WARN, style::RESET));
        std::process::exit(Exit::Interrupted.code().into());
    }
}
