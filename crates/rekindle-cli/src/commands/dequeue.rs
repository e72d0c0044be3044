//! `rekindle dequeue`: takes the job of a session out of its queue.

use clap::Args;
use rekindle::operations;
use serde_json::json;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{printable, style};
use crate::words::next;

/// Which session.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rekindle dequeue trip-42

The session and what it was given stay. A run under way is not stopped: pause or cancel it.")]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
}

impl Arguments {
    /// Takes it out.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let removed = operations::dequeue(&engine, &session).await?;
        if app.ui.is_json() {
            app.ui.json(&json!({"session": session, "removed": removed}))?;
            return Ok(Exit::Ok);
        }
        let (name, id, reset) = (style::NAME, printable(session.id.as_str()), style::RESET);
        match removed {
            true => {
                app.ui.line(format!("dequeued: {name}{id}{reset}"))?;
                next::tell(app, &next::line(app, ["enqueue", session.id.as_str()]));
            }
            false => app.ui.line(format!("not in a queue: {name}{id}{reset}"))?,
        }
        Ok(Exit::Ok)
    }
}
