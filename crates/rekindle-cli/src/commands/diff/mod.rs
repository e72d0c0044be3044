//! `rekindle diff`: what changed between two moments.

mod nested;
mod tell;
mod text;

use clap::Args;
use rekindle::core::{Seq, StateDiff};
use rekindle::operations::{self, At, Diff, HistoryOptions};
use rekindle::{BranchId, Engine, Position, SessionInfo};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::reference::{self, Moment};
use crate::ui::style;
use crate::ui::table::{Cell, Table};
use crate::words::damage;

pub use tell::brief;

/// Which moments, and how they are compared.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle diff @                         since the checkpoint before\n  rekindle diff trip-42@main trip-42@retry\n  rekindle diff @~2 @ --messages"
)]
pub struct Arguments {
    /// The first moment; alone, what changed there since the checkpoint before
    #[arg(value_name = "A")]
    a: String,
    /// The second moment, of the same session or another
    #[arg(value_name = "B")]
    b: Option<String>,
    /// Prints a JSON Patch (RFC 6902) that makes the first of the second
    #[arg(long, conflicts_with_all = ["messages", "stat", "words"])]
    json_patch: bool,
    /// Only the conversation
    #[arg(long)]
    messages: bool,
    /// Only how much changed
    #[arg(long)]
    stat: bool,
    /// Shows changed texts word by word
    #[arg(long)]
    words: bool,
    /// Cuts nothing
    #[arg(long)]
    full: bool,
}

impl Arguments {
    /// Compares them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let first = app.moment(&engine, &self.a).await?;
        let mut diff = match &self.b {
            Some(text) => {
                let second = reference::moment(&engine, text, Some(&first.session)).await?;
                between(&engine, &first, &second).await?
            }
            None => since_before(&engine, &first).await?,
        };
        for side in [&diff.a, &diff.b] {
            damage::note(app, &side.session, &side.damage);
        }
        if self.json_patch {
            app.ui.json(&diff.patch)?;
            return Ok(Exit::Ok);
        }
        if app.ui.is_json() {
            app.ui.json(&diff)?;
            return Ok(Exit::Ok);
        }
        if self.messages {
            diff.diff = only_messages(diff.diff);
        }
        if diff.diff.is_empty() {
            app.ui.remark(format!("no difference between {} and {}", diff.a.position, diff.b.position));
            return Ok(Exit::Ok);
        }
        self.tell(app, &diff)?;
        Ok(Exit::Ok)
    }

    fn tell(&self, app: &App, diff: &Diff) -> Result<(), Failure> {
        let (bad, good, reset) = (style::BAD, style::GOOD, style::RESET);
        for (sign, colour, side) in [("---", bad, &diff.a), ("+++", good, &diff.b)] {
            let id = crate::ui::printable(side.session.id.as_str());
            app.ui.line(format!("{colour}{sign} {id} at {}{reset}", side.position))?;
        }
        let columns = app.ui.table_width();
        if self.stat {
            let mut table = Table::new(&["WHAT", "CHANGE"]).elastic(0);
            for (name, change) in tell::stat(&diff.diff) {
                table.row([Cell::styled(name, style::NAME), Cell::new(change)]);
            }
            return Ok(table.lines(columns).iter().try_for_each(|line| app.ui.line(line))?);
        }
        let (lines, cut) = tell::lines(&diff.diff, tell::Style { columns, words: self.words, full: self.full });
        lines.iter().try_for_each(|line| app.ui.line(line))?;
        if cut {
            app.ui.remark(format!("{}cut: --full or --json show all of it{reset}", style::DIM));
        }
        Ok(())
    }
}

async fn between(engine: &Engine, a: &Moment, b: &Moment) -> Result<Diff, Failure> {
    Ok(operations::diff(engine, (&a.session, &a.at), (&b.session, &b.at)).await?)
}

/// Against the checkpoint before the moment; if nothing changed since that, against the one before
/// it, as a run often marks where it is just before it ends.
async fn since_before(engine: &Engine, moment: &Moment) -> Result<Diff, Failure> {
    let session = &moment.session;
    let options = HistoryOptions { at: moment.at.clone(), before: None, limit: 2 };
    let page = operations::history(engine, session, &options).await?;
    let mut before = page.checkpoints.iter().filter(|found| found.position != page.position);
    let at = At::Position(page.position.clone());
    if let Some(found) = before.next() {
        let from = At::Checkpoint(found.checkpoint.id.clone());
        let diff = operations::diff(engine, (session, &from), (session, &at)).await?;
        if !diff.same {
            return Ok(diff);
        }
    }
    let from = match before.next() {
        Some(found) => At::Checkpoint(found.checkpoint.id.clone()),
        None => beginning(&engine.journal().open(session).await?, &page.position),
    };
    Ok(operations::diff(engine, (session, &from), (session, &at)).await?)
}

/// The first moment of the line that leads to `position`: before its first record, or where its
/// history was compacted.
pub fn beginning(info: &SessionInfo, position: &Position) -> At {
    let mut name = position.branch.clone();
    for _ in 0..=info.branches.len() {
        let Ok(branch) = info.branch(&name) else { break };
        if let Some(base) = branch.base {
            return At::Position(Position::new(name, base.seq));
        }
        match &branch.parent {
            Some(parent) => name = parent.branch.clone(),
            None => break,
        }
    }
    At::Position(Position::new(BranchId::main(), Seq::ZERO))
}

/// Without what is no conversation.
fn only_messages(diff: StateDiff) -> StateDiff {
    let is_conversation = |name: &str| name == "messages" || name.ends_with("/messages");
    let logs = diff.logs.into_iter().filter(|log| is_conversation(log.log.as_str())).collect();
    StateDiff { logs, registers: Vec::new() }
}
