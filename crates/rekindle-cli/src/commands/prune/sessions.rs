//! `rekindle prune SESSION`: checkpoints that no rule keeps, and the history nothing needs any more.

use clap::Args;
use rekindle::core::retention::{Planned, Policy, Reason};
use rekindle::operations::{self, Pruned};
use rekindle::{Engine, Error, SessionKey};
use serde::Serialize;
use serde_json::{Map, json};

use super::policy::Keep;
use super::tell_dry_run;
use crate::app::{Access, App};
use crate::commands::each::{Each, unless_deleted};
use crate::exit::Exit;
use crate::failure::{self, Outcome};
use crate::ui::live::Live;
use crate::ui::stream::Stream;
use crate::ui::table::{Cell, Table};
use crate::ui::{printable, style, time};

/// Whose checkpoints, and which of them stay.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// All sessions of the namespace
    #[arg(long, conflicts_with = "session")]
    all: bool,
    #[command(flatten)]
    keep: Keep,
    /// Does it; without this only says what would go
    #[arg(long)]
    apply: bool,
}

/// What came of all sessions.
#[derive(Debug, Default)]
struct Sum {
    touched: u64,
    removed: u64,
    kept: u64,
    bytes: u64,
    failed: Option<Exit>,
}

#[derive(Serialize)]
struct Item<'a> {
    session: &'a SessionKey,
    #[serde(flatten)]
    pruned: &'a Pruned,
}

impl Arguments {
    /// Prunes them.
    pub async fn run(self, app: &App) -> Outcome {
        if self.session.is_none() && !self.all {
            let hint = "name one (`rekindle prune @ --keep-last 10`), or say --all";
            return Err(Error::invalid("nothing says which session to prune").hint(hint).into());
        }
        let policy = self.keep.policy(app)?;
        let engine = app.engine(Access::Existing)?;
        match &self.session {
            Some(text) => {
                let session = app.session(&engine, text).await?;
                self.one(app, &engine, &session, &policy).await
            }
            None => self.every(app, &engine, &policy).await,
        }
    }

    async fn one(&self, app: &App, engine: &Engine, session: &SessionKey, policy: &Policy) -> Outcome {
        let pruned = operations::prune(engine, session, policy, !self.apply).await?;
        if app.ui.is_json() {
            app.ui.json(&Item { session, pruned: &pruned })?;
            return Ok(Exit::Ok);
        }
        tell(app, session, &pruned)?;
        Ok(Exit::Ok)
    }

    async fn every(&self, app: &App, engine: &Engine, policy: &Policy) -> Outcome {
        let mut stream = if app.ui.is_json() { Some(Stream::begin("sessions")?) } else { None };
        let (mut live, mut sum) = (Live::new(app.ui.clone()), Sum::default());
        let mut each = Each::all(engine).await?;
        while let Some(session) = each.next(engine).await? {
            each.show(&mut live, "pruning", &session);
            match operations::prune(engine, &session, policy, !self.apply).await {
                Ok(pruned) => {
                    let done = !pruned.plan.is_empty();
                    sum.add(&pruned);
                    live.clear();
                    match &mut stream {
                        Some(stream) if done => stream.item(&Item { session: &session, pruned: &pruned })?,
                        None if done => app.ui.line(summary(&session, &pruned))?,
                        _ => {}
                    }
                }
                Err(error) => {
                    let Some(error) = unless_deleted(engine, &session, error).await? else { continue };
                    live.clear();
                    sum.failed.get_or_insert(Exit::of_error(error.kind()));
                    failure::of_one(&app.ui, &mut stream, &session, error)?;
                }
            }
        }
        live.clear();
        self.finish(app, stream, &sum)?;
        Ok(sum.failed.unwrap_or(Exit::Ok))
    }

    fn finish(&self, app: &App, stream: Option<Stream>, sum: &Sum) -> std::io::Result<()> {
        if let Some(stream) = stream {
            let fields = json!({
                "dry_run": !self.apply, "touched": sum.touched, "removed": sum.removed, "kept": sum.kept, "bytes": sum.bytes,
            });
            return stream.end(fields.as_object().unwrap_or(&Map::new()));
        }
        let (would, bytes) = match self.apply {
            true => ("went", format!("{} freed", time::bytes(sum.bytes))),
            false => ("would go", format!("up to {} to free", time::bytes(sum.bytes))),
        };
        app.ui.line(format!(
            "{} {}: {} {would}, {}, {bytes}",
            time::counted(sum.touched, "session"),
            if self.apply { "pruned" } else { "to prune" },
            time::counted(sum.removed, "checkpoint"),
            stay(sum.kept),
        ))?;
        if !self.apply && sum.touched > 0 {
            tell_dry_run(app);
        }
        Ok(())
    }
}

impl Sum {
    fn add(&mut self, pruned: &Pruned) {
        self.touched += u64::from(!pruned.plan.is_empty());
        self.removed += pruned.plan.remove.len() as u64;
        self.kept += pruned.plan.keep.len() as u64;
        self.bytes += if pruned.dry_run { pruned.history_bytes } else { pruned.freed.bytes };
    }
}

fn stay(number: u64) -> String {
    format!("{} {}", time::count(number), if number == 1 { "stays" } else { "stay" })
}

/// One line for a session.
fn summary(session: &SessionKey, pruned: &Pruned) -> String {
    let removed = time::counted(pruned.plan.remove.len() as u64, "checkpoint");
    let stay = stay(pruned.plan.keep.len() as u64);
    let (would, bytes) = match pruned.dry_run {
        true => ("would go", format!("up to {} to free", time::bytes(pruned.history_bytes))),
        false => ("went", format!("{} freed", time::bytes(pruned.freed.bytes))),
    };
    format!("{}{}{}: {removed} {would}, {stay}, {bytes}", style::NAME, printable(session.id.as_str()), style::RESET)
}

/// Everything about one session.
fn tell(app: &App, session: &SessionKey, pruned: &Pruned) -> std::io::Result<()> {
    app.ui.line(summary(session, pruned))?;
    let mut table = Table::new(&["CHECKPOINT", "AT", "", "WHY"]);
    let goes = if pruned.dry_run { "would go" } else { "went" };
    let mut all: Vec<&Planned> = pruned.plan.remove.iter().chain(&pruned.plan.keep).collect();
    all.sort_by(|a, b| a.position.cmp(&b.position));
    for planned in &all {
        let why: Vec<_> = planned.reasons.iter().map(Reason::to_string).collect();
        let fate = if why.is_empty() { Cell::styled(goes, style::WARN) } else { Cell::styled("stays", style::GOOD) };
        let (id, at) =
            (Cell::styled(planned.checkpoint.as_str(), style::NAME), Cell::new(planned.position.to_string()));
        table.row([id, at, fate, Cell::new(why.join(", "))]);
    }
    if !all.is_empty() {
        table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
    }
    for trim in &pruned.plan.trims {
        let would = if pruned.dry_run { "would be" } else { "was" };
        app.ui.line(format!(
            "history of {} up to record {} {would} compacted",
            printable(trim.branch.as_str()),
            trim.through
        ))?;
    }
    for (branch, why) in &pruned.plan.untouched {
        app.ui.line(format!("history of {} stays whole: {why}", printable(branch.as_str())))?;
    }
    match pruned.plan.is_empty() {
        true => app.ui.remark("there is nothing to prune"),
        false if pruned.dry_run => tell_dry_run(app),
        false => {}
    }
    Ok(())
}
