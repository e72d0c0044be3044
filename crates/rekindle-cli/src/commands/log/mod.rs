//! `rekindle log`: the history of a session, with its branches side by side.

mod graph;
mod records;
mod rows;

use clap::Args;
use rekindle::core::{CheckpointInfo, Damage};
use rekindle::operations::{self, At, BranchLog, HistoryOptions, Milestones, StoredRecord};
use rekindle::{BranchId, Engine, SessionKey, Timestamp};
use serde::Serialize;

use self::graph::Place;
use self::rows::{Rows, What};
use super::diff;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::ui::spans::Spans;
use crate::ui::{style, width};
use crate::words::{damage, next};

/// How many rows a text may have.
const MOST: usize = 1_000;

/// Which session, and how much of it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle log @\n  rekindle log trip-42 -n 5 -p\n  rekindle log trip-42 --records --branch inbox"
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// How many lines at most, the newest
    #[arg(long, short = 'n', value_name = "N", default_value_t = 30)]
    limit: usize,
    /// Shows below each checkpoint what changed since the one before
    #[arg(long, short = 'p', conflicts_with = "records")]
    patch: bool,
    /// Lists the raw records of a branch instead, oldest first
    #[arg(long)]
    records: bool,
    /// The branch whose records are listed, instead of the current one; may be inbox
    #[arg(long, value_name = "BRANCH", requires = "records")]
    branch: Option<String>,
    /// The record to begin with, instead of the last few
    #[arg(long, value_name = "SEQ", requires = "records")]
    from: Option<u64>,
}

/// A branch for programs.
#[derive(Debug, Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    log: &'a BranchLog,
    milestones: &'a [StoredRecord],
}

impl Arguments {
    /// Draws it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let limit = self.limit.clamp(1, MOST);
        if self.records {
            let branch = self.branch.map(BranchId::new).transpose()?;
            return records::list(app, &engine, &session, branch, self.from, limit).await;
        }
        let log = operations::log(&engine, &session, limit).await?;
        let mut branches = Vec::new();
        for branch in log.branches {
            let milestones = operations::milestones_known(&engine, &session, &branch.branch, limit).await?;
            branches.push((branch, milestones));
        }
        if app.ui.is_json() {
            let told: Vec<_> = branches.iter().map(|(log, found)| Told { log, milestones: &found.records }).collect();
            let mut all = serde_json::json!({"session": log.session, "current": log.current, "branches": told});
            if !log.damage.is_empty() {
                all["damage"] = serde_json::json!(log.damage);
            }
            app.ui.json(&all)?;
            return Ok(Exit::Ok);
        }
        tell(app, &engine, &session, &branches, limit, self.patch).await?;
        let mut all: Vec<Damage> = log.damage;
        for damage in branches.iter().flat_map(|(_, found)| &found.damage) {
            if !all.contains(damage) {
                all.push(damage.clone());
            }
        }
        damage::note(app, &session, &all);
        Ok(Exit::Ok)
    }
}

async fn tell(
    app: &App,
    engine: &Engine,
    session: &SessionKey,
    branches: &[(BranchLog, Milestones)],
    limit: usize,
    patch: bool,
) -> Result<(), Failure> {
    let columns = app.ui.table_width();
    let rows = rows::of(branches);
    let now = engine.journal().clock().now();
    for line in drawn(branches, &rows, limit, columns) {
        app.ui.line(beside(&line, &rows, now, columns))?;
        let Place::Row { branch, row } = line.place else { continue };
        let What::Checkpoint(found, _) = &rows[branch].rows[row].what else { continue };
        if patch {
            let room = columns.saturating_sub(width(&line.below) + 2);
            for changed in changes(engine, session, found, room).await? {
                app.ui.line(format!("{}{}{}  {changed}", style::DIM, line.below, style::RESET))?;
            }
        }
    }
    footnotes(app, session, branches);
    Ok(())
}

/// How to go on with another branch.
fn footnotes(app: &App, session: &SessionKey, branches: &[(BranchLog, Milestones)]) {
    for (log, _) in branches {
        if log.current && branches.len() > 1 {
            let line = next::line(app, ["resume", session.id.as_str(), "--branch", "BRANCH"]);
            app.ui.remark(format!(
                "{}a resume goes on with {}; `{line}` with another{}",
                style::DIM,
                log.branch,
                style::RESET
            ));
        }
    }
}

/// The graph; its lanes stand closer where there is little room.
fn drawn(branches: &[(BranchLog, Milestones)], rows: &[Rows], limit: usize, columns: usize) -> Vec<graph::Line> {
    let branches = rows::graph(branches, rows);
    let lines = graph::draw(&branches, limit, 1);
    match lines.iter().any(|line| width(&line.lanes) > columns / 3) {
        true => graph::draw(&branches, limit, 0),
        false => lines,
    }
}

/// A line of the graph with what stands beside it.
fn beside(line: &graph::Line, rows: &[Rows], now: Timestamp, columns: usize) -> String {
    let (dim, reset) = (style::DIM, style::RESET);
    let lanes = format!("{dim}{}{reset}", line.lanes);
    match line.place {
        Place::Join => lanes,
        Place::More => format!("{lanes} {dim}more: -n{reset}"),
        Place::Row { branch, row } => {
            let room = columns.saturating_sub(width(&line.lanes) + 1).max(12);
            format!("{} {}", line.lanes, rows::tell(&rows[branch], row, now).line(room))
        }
    }
}

/// What changed since the checkpoint before, in a few lines.
async fn changes(
    engine: &Engine,
    session: &SessionKey,
    found: &CheckpointInfo,
    columns: usize,
) -> Result<Vec<String>, Failure> {
    let at = At::Checkpoint(found.checkpoint.id.clone());
    let options = HistoryOptions { at: at.clone(), before: None, limit: 2 };
    let page = operations::history(engine, session, &options).await?;
    let before = match page.checkpoints.get(1) {
        Some(before) => At::Checkpoint(before.checkpoint.id.clone()),
        None => diff::beginning(&engine.journal().open(session).await?, &page.position),
    };
    match operations::diff(engine, (session, &before), (session, &at)).await {
        Ok(diff) => Ok(diff::brief(&diff.diff, columns)),
        // What is damaged must not hide the rest.
        Err(error) if Exit::of_error(error.kind()) == Exit::Integrity => {
            Ok(vec![Spans::new().styled(format!("cannot be read: {}", error.message()), style::BAD).line(columns)])
        }
        Err(error) => Err(error.into()),
    }
}
