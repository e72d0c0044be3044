//! `rekindle waits`: everything that waits for somebody, over all sessions.

use clap::Args;
use rekindle::Timestamp;
use rekindle::core::record::WaitKind;
use rekindle::operations::{self, OpenWait};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::table::{Cell, Table};
use crate::ui::{printable, style, time};
use crate::words::{damage, ids, name_of, next};

/// Nothing but what can be said everywhere.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle waits\n  rekindle waits --json")]
pub struct Arguments {}

impl Arguments {
    /// Lists them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let open = operations::waits(&engine, engine.namespace()).await?;
        if app.ui.is_json() {
            app.ui.json(&open)?;
            return Ok(Exit::Ok);
        }
        let now = engine.journal().clock().now();
        if open.waits.is_empty() {
            app.ui.remark("nothing waits");
        } else {
            table(&open.waits, now, app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
        }
        for wait in &open.waits {
            tell_next(app, wait)?;
        }
        for (session, why) in &open.unreadable {
            let id = printable(session.id.as_str());
            app.ui.remark(format!("{}unreadable:{} {id}: {}", style::WARN, style::RESET, printable(why)));
        }
        Ok(Exit::Ok)
    }
}

fn table(waits: &[OpenWait], now: Timestamp, columns: usize) -> Vec<String> {
    // Where there is no room, whoever needs the whole id finds it in the line that answers.
    let roomy = columns >= 100;
    // Only where a branch waits that is not the current one of its session.
    let branches = waits.iter().any(|open| !open.current);
    let mut header = match roomy {
        true => vec!["WAIT", "SESSION", "KIND", "ASKED", "EXPIRES", "PROMPT"],
        false => vec!["SESSION", "KIND", "ASKED", "PROMPT"],
    };
    if branches {
        header.insert(if roomy { 2 } else { 1 }, "BRANCH");
    }
    let mut table = Table::new(&header);
    for open in waits {
        let opened = &open.wait.opened;
        let asked = ids::made_at(opened.wait.as_str()).map_or("–".to_owned(), |at| time::ago(at, now));
        let expires = match opened.expires_at {
            Some(_) if open.wait.expired => "expired".to_owned(),
            Some(at) => time::short(at),
            None => "–".to_owned(),
        };
        let answered = if open.answered { "(answered) " } else { "" };
        let mut cells = vec![
            Cell::styled(open.session.id.as_str(), style::NAME),
            Cell::new(name_of(&opened.kind)),
            Cell::new(asked),
        ];
        if branches {
            let name = if open.current { "–" } else { open.branch.as_str() };
            cells.insert(1, Cell::styled(name, style::NAME));
        }
        if roomy {
            cells.insert(0, Cell::styled(opened.wait.as_str(), style::NAME));
            cells.push(Cell::new(expires));
        }
        cells.push(Cell::new(format!("{answered}{}", opened.prompt)));
        table.row(cells);
    }
    table.lines(columns)
}

/// The lines that answer it, or go on if it is answered.
fn tell_next(app: &App, open: &OpenWait) -> std::io::Result<()> {
    let id = printable(open.session.id.as_str());
    let other = Some(&open.branch).filter(|_| !open.current);
    let lines = match (open.answered || open.wait.expired, open.wait.opened.kind) {
        (true, _) | (_, WaitKind::Timer) => vec![next::resume_on(app, &open.session, other)],
        (false, _) => next::answers_on(app, &open.session, other, &open.wait),
    };
    damage::note(app, &open.session, &open.lost);
    let on = other.map(|branch| format!(" on branch {}", printable(branch.as_str()))).unwrap_or_default();
    app.ui.line(format!("\n{}{id}{}{on}", style::NAME, style::RESET))?;
    lines.iter().try_for_each(|line| app.ui.line(format!("  {}", printable(line))))
}
