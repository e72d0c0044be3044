//! Runs as people watch them: started or resumed, followed to their end, paused by signals.

mod calls;
mod definition;
mod options;
mod report;
mod signals;
mod view;

pub use calls::Calls;
pub use definition::{DEFINITION, Remembered, built, load};
pub use options::{BuildArguments, RunArguments, assigned};
pub use report::tell;
pub use signals::Signals;

use std::time::Duration;

use rekindle::{Result, RunHandle, RunReport};

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
pub async fn follow(app: &App, mut handle: RunHandle, left: Calls, events: bool) -> Result<Watched> {
    let mut signals = Signals::listen()?;
    let mut view = View::new(app.ui.clone(), left, events);
    let mut tick = tokio::time::interval(TICK);
    let mut interrupted = false;
    loop {
        tokio::select! {
            event = handle.next_event() => match event? {
                Some(event) => view.take(event),
                None => break,
            },
            name = signals.next() => {
                view.stopping(name, interrupted);
                handle.stop(&format!("stopped by {name}"));
                interrupted = true;
            }
            _ = tick.tick() => view.draw(),
        }
    }
    drop(view);
    // The last writes may still be under way, and a signal must not cut them off.
    Ok(Watched { report: handle.report().await?, interrupted })
}
