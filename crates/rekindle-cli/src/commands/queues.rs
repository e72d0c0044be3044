//! `rekindle queues`: what is in the queues, and the jobs of one.

use clap::Args;
use rekindle::core::queue::{JobQuery, JobState, QueueInfo};
use rekindle::core::{MAX_PAGE, QueueName};
use rekindle::operations::{self, JobView, Jobs};
use rekindle::{Engine, Error, SessionId, Timestamp};
use serde_json::json;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::owner;
use crate::ui::table::{Cell, Table};
use crate::ui::{style, time};

/// Which queue.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rekindle queues                    how much is in each
  rekindle queues default            its jobs, with why they were given back
  rekindle queues --jobs --state scheduled

A job is ready, scheduled for a time, parked until something arrives, or claimed by a worker.")]
pub struct Arguments {
    /// Lists the jobs of this queue
    #[arg(value_name = "QUEUE")]
    queue: Option<String>,
    /// Lists the jobs of all queues
    #[arg(long)]
    jobs: bool,
    /// Only jobs in this state: ready, scheduled, parked, claimed
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<JobState>,
    /// How many jobs at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Goes on behind this session, as an earlier page says
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

fn state(text: &str) -> Result<JobState, String> {
    let names = JobState::ALL.map(JobState::as_str);
    let found = JobState::ALL.into_iter().find(|state| state.as_str() == text);
    found.ok_or_else(|| format!("`{text}` is no state of a job; use one of {}", names.join(", ")))
}

impl Arguments {
    /// Lists them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        match self.queue.is_some() || self.jobs || self.state.is_some() || self.after.is_some() {
            true => self.list(app, &engine).await,
            false => queues(app, &engine).await,
        }
    }

    async fn list(self, app: &App, engine: &Engine) -> Outcome {
        let page = operations::jobs(engine, &self.query(engine)?).await?;
        if app.ui.is_json() {
            app.ui.json(&page)?;
            return Ok(Exit::Ok);
        }
        if page.jobs.is_empty() {
            app.ui.remark("no such job");
            return Ok(Exit::Ok);
        }
        table(&page).lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
        if let Some(next) = &page.next {
            app.ui.remark(format!("{}more: --after {next}{}", style::DIM, style::RESET));
        }
        Ok(Exit::Ok)
    }

    fn query(self, engine: &Engine) -> Result<JobQuery, Failure> {
        if self.limit == 0 || self.limit > MAX_PAGE {
            let message = format!("a page has 1 to {MAX_PAGE} jobs");
            return Err(Error::invalid(message).hint("go on behind it with --after").into());
        }
        Ok(JobQuery {
            queue: self.queue.map(QueueName::new).transpose()?,
            state: self.state,
            after: self.after.map(SessionId::new).transpose()?,
            limit: self.limit,
            ..JobQuery::new(engine.namespace().clone())
        })
    }
}

async fn queues(app: &App, engine: &Engine) -> Outcome {
    let queues = operations::queues(engine).await?;
    if app.ui.is_json() {
        app.ui.json(&json!({ "queues": queues }))?;
        return Ok(Exit::Ok);
    }
    if queues.is_empty() {
        app.ui.remark("the queues are empty");
        return Ok(Exit::Ok);
    }
    let now = engine.journal().clock().now();
    let mut table = Table::new(&["QUEUE", "READY", "SCHEDULED", "PARKED", "CLAIMED", "OLDEST READY"]);
    for QueueInfo { queue, ready, scheduled, parked, claimed, oldest_ready } in &queues {
        let mut cells = vec![Cell::styled(queue.as_str(), style::NAME)];
        cells.extend([ready, scheduled, parked, claimed].map(|number| Cell::new(time::count(*number))));
        cells.push(Cell::new(oldest_ready.map_or("–".to_owned(), |at| time::ago(at, now))));
        table.row(cells);
    }
    table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
    Ok(Exit::Ok)
}

fn table(page: &Jobs) -> Table {
    let mut table = Table::new(&["SESSION", "AGENT", "QUEUE", "PRIORITY", "STATE", "READY", "TRIES", "NOTE"]);
    page.jobs.iter().for_each(|view| table.row(row(view, page.now)));
    table
}

fn row(view: &JobView, now: Timestamp) -> Vec<Cell> {
    let job = &view.job;
    let ready = match (view.state, job.ready_at) {
        (JobState::Claimed, _) => "–".to_owned(),
        (_, Some(at)) => time::ago(at, now),
        (_, None) => "when something arrives".to_owned(),
    };
    let by = job.claim.as_ref().filter(|_| view.state == JobState::Claimed);
    let state = match by {
        Some(claim) => format!("claimed by {}", owner::named(claim.worker.as_str())),
        None => view.state.as_str().to_owned(),
    };
    vec![
        Cell::styled(job.session.id.as_str(), style::NAME),
        Cell::new(job.agent.as_deref().unwrap_or("–")),
        Cell::new(job.queue.as_str()),
        Cell::new(job.priority.to_string()),
        Cell::new(state),
        Cell::new(ready),
        Cell::new(job.attempts.to_string()),
        Cell::new(&job.note),
    ]
}
