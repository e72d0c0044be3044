//! `rekindle pause`: has a run stop, to be resumed.

use clap::Args;
use rekindle::operations::{self, ControlOptions, Controlled};
use rekindle::{Result, RunId, SessionKey};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::owner;
use crate::ui::{printable, style};
use crate::words::next;

/// What to pause.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle pause trip-42\n  rekindle pause trip-42 --now --reason 'wrong account'")]
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
}

impl Stop {
    /// As operations take it.
    pub fn options(&self, app: &App) -> Result<ControlOptions> {
        let only_run = self.only_run.as_ref().map(RunId::new).transpose()?;
        Ok(ControlOptions { only_run, ..ControlOptions::new(app.author(), &self.reason) })
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
        Ok(Exit::Ok)
    }
}

/// Says what came of a command.
pub fn tell(app: &App, session: &SessionKey, done: &Controlled, what: &str) -> std::io::Result<()> {
    if app.ui.is_json() {
        return app.ui.json(done);
    }
    let id = format!("{}{}{}", style::NAME, printable(session.id.as_str()), style::RESET);
    match done {
        Controlled::Sent { owner, .. } if owner::has_ended(owner.as_str()) => {
            app.ui.line(format!("{what} noted: the process that ran {id} has died, so a resume carries it out"))?;
            next::tell(app, &next::resume(app, session));
            Ok(())
        }
        Controlled::Sent { owner, .. } => {
            app.ui.line(format!("{what} sent: {} runs {id} and was told", owner::named(owner.as_str())))
        }
        Controlled::Done { status, position } => app.ui.line(format!("{status}: {id} at {position}")),
        Controlled::Unchanged { status } => app.ui.line(format!("{status} already: {id}")),
    }
}
