//! `rekindle workers`: the workers that live.

use clap::Args;
use rekindle::core::queue::WorkerInfo;
use rekindle::{Timestamp, operations};
use serde_json::json;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::owner;
use crate::ui::table::{Cell, Table};
use crate::ui::{style, time};
use crate::words::next;

/// Nothing but what can be said everywhere.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle workers\n  rekindle workers --json")]
pub struct Arguments {}

impl Arguments {
    /// Lists them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let workers = operations::workers(&engine).await?;
        if app.ui.is_json() {
            app.ui.json(&json!({ "workers": workers }))?;
            return Ok(Exit::Ok);
        }
        if workers.is_empty() {
            app.ui.remark("no worker lives");
            next::tell(app, &next::line(app, ["worker"]));
            return Ok(Exit::Ok);
        }
        // By the clock they were seen by: this machine's may be another.
        let now = workers.iter().map(|worker| worker.seen_at).max().unwrap_or_default();
        let mut table = Table::new(&["WORKER", "BUSY", "STATE", "STARTED", "VERSION", "QUEUES", "AGENTS"]);
        workers.iter().for_each(|worker| table.row(row(worker, now)));
        table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
        Ok(Exit::Ok)
    }
}

fn row(worker: &WorkerInfo, now: Timestamp) -> Vec<Cell> {
    let queues: Vec<&str> = worker.queues.iter().map(|queue| queue.as_str()).collect();
    let any = |names: String| if names.is_empty() { "any".to_owned() } else { names };
    let agents = worker.agents.as_ref().map_or_else(String::new, |agents| agents.join(", "));
    vec![
        Cell::styled(owner::named(worker.worker.as_str()), style::NAME),
        Cell::new(format!("{}/{}", worker.running, worker.slots)),
        state(worker),
        Cell::new(time::ago(worker.started_at, now)),
        Cell::new(&worker.version),
        Cell::new(any(queues.join(", "))),
        Cell::new(any(agents)),
    ]
}

/// What it does. That a process of this machine has died is seen before its time runs out.
fn state(worker: &WorkerInfo) -> Cell {
    match (owner::has_ended(worker.worker.as_str()), worker.draining) {
        (true, _) => Cell::styled("died", style::WARN),
        (false, true) => Cell::new("draining"),
        (false, false) => Cell::new("working"),
    }
}
