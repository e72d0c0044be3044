//! `rekindle cancel`: ends a run for good.

use clap::Args;
use rekindle::operations;

use super::pause::{self, Stop};
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::printable;

/// What to cancel.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle cancel trip-42\n  rekindle cancel trip-42 --wait --yes       waits until it is certain\n  rekindle cancel trip-42 --wait 30s --yes   exit status 9 if it is not certain by then\n  rekindle cancel trip-42 --reason 'not needed any more' --yes\n\nSays what the journal shows: cancelled; had already ended, and how; or requested, not yet confirmed: the run\nunder way has the request, and may still come to its end first."
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// Does not ask
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    stop: Stop,
}

impl Arguments {
    /// Cancels it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let options = self.stop.options(app)?;
        // The history stays, so only a person who may have mistyped is asked.
        let question = format!("End the run of {} for good? It cannot be resumed.", printable(session.id.as_str()));
        if !self.yes && app.ui.can_ask() && !app.ui.confirm(&question) {
            app.ui.remark("nothing was cancelled");
            return Ok(Exit::Failed);
        }
        let done = operations::cancel(&engine, &session, &options).await?;
        pause::tell(app, &session, &done, "cancel")?;
        Ok(self.stop.exit(&done))
    }
}
