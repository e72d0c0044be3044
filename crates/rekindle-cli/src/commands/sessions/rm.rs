//! `rekindle sessions rm`: removes sessions with everything in them.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use rekindle::core::Receipt;
use rekindle::operations::{self, Cleared};
use rekindle::{Engine, Error, ErrorKind, SessionKey};
use rekindle_store::private::Modes;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::reference;
use crate::ui::table::{Cell, Table};
use crate::ui::{printable, style, time};
use crate::words::{next, number};

/// Which sessions.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle sessions rm trip-42\n  rekindle sessions rm trip-42 trip-43 --yes\n  rekindle sessions rm trip-42 --dry-run\n  rekindle sessions rm trip-42 --receipt receipt.json\n\nAn encrypted session has a key of its own, which is destroyed with it: whatever copies of its records are\nleft cannot be read any more. The receipt says what was there and where the key had been copied.\n\nA removal that was stopped is finished by repeating it. Sessions are named by their whole ids, so that repeating it\nremoves no other one."
)]
pub struct Arguments {
    /// The sessions, by their whole ids
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Does not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Only says what would go
    #[arg(long)]
    dry_run: bool,
    /// Write a receipt to this file, a line for each session, signed if there is a key to sign with
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    receipt: Option<PathBuf>,
}

impl Arguments {
    /// Removes them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let mut sessions: Vec<SessionKey> = Vec::new();
        for text in &self.sessions {
            let session = reference::exact_session(&engine, text).await?;
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
        let receipts = self.receipt.as_deref().map(Receipts::create).transpose()?;
        remove(app, &engine, &sessions, receipts).await
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

/// The file receipts go to. It is made before anything is removed, so that no receipt is lost for the lack of
/// a place.
struct Receipts<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Receipts<'a> {
    fn create(path: &'a Path) -> Result<Self, Error> {
        let created = Modes::PRIVATE.create_new(path);
        let file = created.map_err(|error| unwritable(path).because(error).hint("nothing was removed"))?;
        Ok(Self { path, file })
    }

    fn write(&mut self, receipt: &Receipt) -> Result<(), Error> {
        let line = serde_json::to_string(receipt).map_err(|error| unwritable(self.path).because(error))?;
        let written = writeln!(self.file, "{line}").and_then(|()| self.file.sync_all());
        // The session is gone: the receipt must be seen.
        written.map_err(|error| unwritable(self.path).because(error).hint(format!("this is the receipt: {line}")))
    }
}

fn unwritable(path: &Path) -> Error {
    Error::new(ErrorKind::PersistFailed, format!("the receipt cannot be written to {}", path.display()))
}

fn tell(app: &App, cleared: &Cleared) -> std::io::Result<()> {
    let (name, reset, id) = (style::NAME, style::RESET, printable(cleared.session.id.as_str()));
    let bytes = time::bytes(cleared.freed.bytes);
    app.ui.line(match cleared.before {
        true => format!("{name}{id}{reset} was removed before; what was left over is cleared now, {bytes}"),
        false => format!("removed {name}{id}{reset}, {bytes}"),
    })?;
    for place in &cleared.elsewhere {
        app.ui.note(format!(
            "large values of it stay in {}: `rekindle gc --apply` clears them once the key `large_values` says so",
            printable(place)
        ));
    }
    if cleared.unreadable {
        app.ui.note("it could not be read: if it was encrypted, `rekindle keys prune --apply` destroys its data key");
    }
    for place in &cleared.kept {
        app.ui.note(format!(
            "large values of it stay in {}: an earlier version wrote them, and other stores may use them; delete them by \
             hand if none does",
            printable(place)
        ));
    }
    Ok(())
}

async fn remove(app: &App, engine: &Engine, sessions: &[SessionKey], mut receipts: Option<Receipts<'_>>) -> Outcome {
    let mut done = Vec::new();
    for session in sessions {
        let cleared = match &mut receipts {
            None => operations::clear_session(engine, session, false).await,
            Some(receipts) => match operations::erase_session(engine, session, &app.author()).await {
                Ok((cleared, receipt)) => receipts.write(&receipt).map(|()| cleared),
                Err(error) => Err(error),
            },
        };
        let cleared = cleared.map_err(|error| match done.is_empty() {
            true => Failure::from(error),
            false => Failure::from(
                error.hint(format!("{} removed before; try the others again", number(done.len(), "session"))),
            ),
        })?;
        if !app.ui.is_json() {
            tell(app, &cleared)?;
        }
        done.push(cleared);
    }
    if app.ui.is_json() {
        app.ui.json(&done)?;
    }
    Ok(Exit::Ok)
}
