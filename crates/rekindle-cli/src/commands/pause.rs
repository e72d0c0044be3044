//! `rekindle pause`: has a run stop, to be resumed.

use std::time::Duration;

use clap::Args;
use rekindle::operations::{self, ControlOptions, Controlled};
use rekindle::{Result, RunId, SessionKey, Status};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::owner;
use crate::ui::{duration, printable, style};
use crate::words::next;

/// What to pause.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle pause trip-42\n  rekindle pause trip-42 --wait              waits until it is certain that it paused\n  rekindle pause trip-42 --now --reason 'wrong account'"
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// Stops the calls under way too, instead of letting them end
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    stop: Stop,
}

/// What is said to stop a run.
#[derive(Debug, Args)]
pub struct Stop {
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Only if this is the run
    #[arg(long, value_name = "RUN")]
    only_run: Option<String>,
    /// Wait until the journal shows what came of it, for so long at most if a time is given
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = false, value_parser = duration::parse)]
    wait: Option<Option<Duration>>,
}

impl Stop {
    /// As operations take it.
    pub fn options(&self, app: &App) -> Result<ControlOptions> {
        let only_run = self.only_run.as_ref().map(RunId::new).transpose()?;
        let wait = self.wait.map(|time| time.unwrap_or(Duration::MAX));
        Ok(ControlOptions { only_run, wait, ..ControlOptions::new(app.author(), &self.reason) })
    }

    /// The exit status: a run that had ended is a conflict unless that is what was wanted, and a
    /// request that was waited for in vain is not confirmed.
    pub fn exit(&self, done: &Controlled) -> Exit {
        match done {
            Controlled::Ended { status, .. } if *status != Status::Cancelled => Exit::Conflict,
            Controlled::Requested { .. } if self.wait.is_some() => Exit::Unconfirmed,
            _ => Exit::Ok,
        }
    }
}

impl Arguments {
    /// Pauses it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let options = self.stop.options(app)?;
        let done = match self.now {
            true => operations::interrupt(&engine, &session, &options).await?,
            false => operations::pause(&engine, &session, &options).await?,
        };
        tell(app, &session, &done, "pause")?;
        if let Controlled::Done { .. } = done
            && !app.ui.is_json()
        {
            next::tell(app, &next::resume(app, &session));
        }
        Ok(self.stop.exit(&done))
    }
}

/// Says what came of a command.
pub fn tell(app: &App, session: &SessionKey, done: &Controlled, what: &str) -> std::io::Result<()> {
    if app.ui.is_json() {
        return app.ui.json(done);
    }
    let id = format!("{}{}{}", style::NAME, printable(session.id.as_str()), style::RESET);
    let again = || next::line(app, [what, session.id.as_str(), "--wait"]);
    match done {
        Controlled::Requested { owner, .. } if owner::has_ended(owner.as_str()) => {
            app.ui.line(format!(
                "requested, not yet confirmed: the process that ran {id} has died; a resume carries it out, and so does \
                 --wait, once the lease of that process has ended"
            ))?;
            next::tell(app, &again());
            Ok(())
        }
        Controlled::Requested { owner, .. } => {
            let owner = owner::named(owner.as_str());
            app.ui.line(format!("requested, not yet confirmed: {owner} runs {id} and has the request to {what}"))?;
            next::tell(app, &again());
            Ok(())
        }
        Controlled::Done { status, position, .. } => app.ui.line(format!("{status}: {id} at {position}")),
        Controlled::Ended { status, .. } => app.ui.line(format!("had already ended: {id} {status}")),
        Controlled::Unchanged { status } => app.ui.line(format!("{status} already: {id}")),
    }
}
