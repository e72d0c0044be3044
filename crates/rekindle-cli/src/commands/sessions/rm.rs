//! `rekindle sessions rm`: removes sessions with everything in them.

use clap::Args;
use rekindle::operations::{self, Cleared};
use rekindle::{Engine, Error, SessionKey};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::ui::table::{Cell, Table};
use crate::ui::{printable, style, time};
use crate::words::{next, number};

/// Which sessions.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle sessions rm trip-42\n  rekindle sessions rm trip-42 trip-43 --yes\n  rekindle sessions rm @ --dry-run"
)]
pub struct Arguments {
    /// The sessions
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Does not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Only says what would go
    #[arg(long)]
    dry_run: bool,
}

impl Arguments {
    /// Removes them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let mut sessions: Vec<SessionKey> = Vec::new();
        for text in &self.sessions {
            let session = app.session(&engine, text).await?;
            if !sessions.contains(&session) {
                sessions.push(session);
            }
        }
        // Everything that can be refused is refused before anything goes.
        let mut plans = Vec::new();
        for session in &sessions {
            plans.push(operations::clear_session(&engine, session, true).await?);
        }
        if self.dry_run && app.ui.is_json() {
            app.ui.json(&plans)?;
            return Ok(Exit::Ok);
        }
        if !self.yes || self.dry_run {
            show(app, &plans)?;
        }
        if self.dry_run {
            app.ui.remark("nothing was removed");
            return Ok(Exit::Ok);
        }
        if !self.yes && !self.agreed(app, &sessions)? {
            app.ui.remark("nothing was removed");
            return Ok(Exit::Failed);
        }
        remove(app, &engine, &sessions).await
    }

    fn agreed(&self, app: &App, sessions: &[SessionKey]) -> Result<bool, Error> {
        if app.ui.can_ask() {
            return Ok(app.ui.confirm(&format!("Remove {} for good?", number(sessions.len(), "session"))));
        }
        let words = ["sessions", "rm"].into_iter().chain(sessions.iter().map(|session| session.id.as_str()));
        let line = next::line(app, words.chain(["--yes"]));
        Err(Error::invalid("removing sessions needs a yes, and there is nobody to ask").hint(format!("`{line}`")))
    }
}

fn show(app: &App, plans: &[Cleared]) -> std::io::Result<()> {
    if app.ui.is_json() {
        return Ok(());
    }
    let mut table = Table::new(&["SESSION", "BRANCHES", "LENGTH"]).elastic(0);
    for plan in plans {
        let branches = plan.branches.iter().filter(|(branch, _)| !branch.is_inbox()).count();
        let length = plan.branches.iter().map(|(_, records)| records).max().copied().unwrap_or(0);
        let id = Cell::styled(plan.session.id.as_str(), style::NAME);
        table.row([id, Cell::new(branches.to_string()), Cell::new(time::count(length))]);
    }
    table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))
}

async fn remove(app: &App, engine: &Engine, sessions: &[SessionKey]) -> Outcome {
    let mut done = Vec::new();
    for session in sessions {
        let cleared =
            operations::clear_session(engine, session, false).await.map_err(|error| match done.is_empty() {
                true => Failure::from(error),
                false => Failure::from(
                    error.hint(format!("{} removed before; try the others again", number(done.len(), "session"))),
                ),
            })?;
        if !app.ui.is_json() {
            let id = printable(session.id.as_str());
            app.ui.line(format!(
                "removed {}{id}{}, {}",
                style::NAME,
                style::RESET,
                time::bytes(cleared.freed.bytes)
            ))?;
        }
        done.push(cleared);
    }
    if app.ui.is_json() {
        app.ui.json(&done)?;
    }
    Ok(Exit::Ok)
}
