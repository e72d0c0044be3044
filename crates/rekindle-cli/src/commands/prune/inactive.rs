//! `rekindle prune inactive`: whole sessions in which nothing happened for a long time.

use std::time::Duration;

use clap::Args;
use rekindle::Status;
use rekindle::operations::{self, Deleted};

use super::tell_dry_run;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::table::{Cell, Table};
use crate::ui::{duration, style, time};

/// Which sessions.
#[derive(Debug, Args)]
#[group(skip)]
#[command(
    after_help = "Example:\n  rekindle prune inactive --older-than 90d --status succeeded --apply\n\nSessions that run, wait, are unfinished or have a pinned checkpoint stay."
)]
pub struct Arguments {
    /// Those in which nothing happened for this time, e.g. 90d
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    older_than: Duration,
    /// Only those of this status; may be said more than once
    #[arg(long, value_name = "STATUS")]
    status: Vec<Status>,
    /// Does it; without this only says what would go
    #[arg(long)]
    apply: bool,
}

impl Arguments {
    /// Deletes them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let namespace = engine.namespace().clone();
        let dry_run = !self.apply;
        let deleted =
            operations::delete_inactive_of(&engine, &namespace, self.older_than, &self.status, dry_run).await?;
        if app.ui.is_json() {
            app.ui.json(&deleted)?;
            return Ok(Exit::Ok);
        }
        tell(app, &deleted)?;
        Ok(Exit::Ok)
    }
}

fn tell(app: &App, deleted: &Deleted) -> std::io::Result<()> {
    let plan = &deleted.plan;
    if plan.delete.is_empty() && plan.protected.is_empty() {
        app.ui.remark(format!("no session is that old; the limit is {}", time::short(plan.inactive_since)));
        return Ok(());
    }
    let goes = if deleted.dry_run { "would go" } else { "went" };
    let mut table = Table::new(&["SESSION", "", "WHY"]);
    for session in &plan.delete {
        table.row([Cell::styled(session.id.as_str(), style::NAME), Cell::styled(goes, style::WARN), Cell::new("")]);
    }
    for (session, why) in &plan.protected {
        let stays = Cell::styled("stays", style::GOOD);
        table.row([Cell::styled(session.id.as_str(), style::NAME), stays, Cell::new(why.to_string())]);
    }
    table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
    match deleted.dry_run {
        false => app.ui.remark(format!("{} freed", time::bytes(deleted.freed.bytes))),
        true if !plan.delete.is_empty() => tell_dry_run(app),
        true => {}
    }
    Ok(())
}
