//! Runs as people watch them: started or resumed, followed to their end, paused by signals.

mod calls;
mod chosen;
mod definition;
mod options;
mod report;
mod signals;
mod view;

pub use calls::Calls;
pub use chosen::{Before, Chosen, named, named_model, recorded};
pub use definition::{DEFINITION, Remembered, built, load, mask};
pub use options::{BuildArguments, RunArguments, assigned, check_input};
pub use report::tell;
pub use signals::Signals;

use std::time::Duration;

use rekindle::{Result, RunHandle, RunReport, Stopper};
use tokio::time::Interval;

use crate::app::App;
use view::View;

/// How often what is under way is drawn again.
const TICK: Duration = Duration::from_millis(120);

/// What came of a run that was watched.
pub struct Watched {
    pub report: RunReport,
    /// Whether a signal stopped it.
    pub interrupted: bool,
}

/// Follows a run to its end; `left` are the calls it found under way. The first signal pauses it, a
/// second one stops calls under way.
pub async fn follow(app: &App, handle: RunHandle, left: Calls, events: bool) -> Result<Watched> {
    let grace = handle.grace();
    let signals = Signals::listen(&app.ui, move || grace)?;
    let view = View::new(app.ui.clone(), left, events);
    let (tick, stopper) = (tokio::time::interval(TICK), handle.stopper());
    let mut following = Following { signals, view, tick, stopper, interrupted: false };
    let report = following.watch(handle).await?;
    Ok(Watched { report, interrupted: following.interrupted })
}

/// A run that is watched while signals are obeyed.
struct Following {
    signals: Signals,
    view: View,
    tick: Interval,
    stopper: Stopper,
    interrupted: bool,
}

impl Following {
    async fn watch(&mut self, mut handle: RunHandle) -> Result<RunReport> {
        while let Some(event) = self.during(true, handle.next_event()).await? {
            self.view.take(event);
        }
        self.view.clear();
        // The last writes may still be under way, and a signal must not cut them off.
        self.during(false, handle.report()).await
    }

    /// Waits for `work` without ever dropping it, however often something is drawn meanwhile.
    async fn during<T>(&mut self, draws: bool, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                name = self.signals.next() => {
                    self.view.stopping(name, self.interrupted);
                    self.stopper.stop(&format!("stopped by {name}"));
                    self.interrupted = true;
                }
                _ = self.tick.tick(), if draws => self.view.draw(),
            }
        }
    }
}
