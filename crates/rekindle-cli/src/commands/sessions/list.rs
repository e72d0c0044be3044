//! `rekindle sessions list`.

use std::time::Duration;

use clap::Args;
use rekindle::core::{Cursor, MAX_PAGE, SessionPage};
use rekindle::{Engine, Error, SessionInfo, SessionQuery, Status, Timestamp, operations};
use serde_json::json;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::owner;
use crate::ui::table::{Cell, Table};
use crate::ui::{duration, style, time};
use crate::words::damage;

/// Which sessions.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle sessions list --status failed --since 1d\n  rekindle sessions list --tag nightly --json"
)]
#[group(skip)]
pub struct Arguments {
    /// Only those of this status; may be said more than once
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Vec<Status>,
    /// Only those of this agent, plan or graph
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only those with this tag; may be said more than once
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only those with this label
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// Only those with this in id, title or agent
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only those this session started
    #[arg(long, value_name = "SESSION")]
    parent: Option<String>,
    /// Also those that other sessions started
    #[arg(long)]
    children: bool,
    /// Only those that changed within this time, e.g. 2h
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    since: Option<Duration>,
    /// How many at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
    /// All of them, however many there are
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Goes on behind an earlier page
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Oldest first
    #[arg(long)]
    oldest_first: bool,
    /// Also says how many there are
    #[arg(long)]
    count: bool,
}

impl Arguments {
    /// Lists them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let mut query = SessionQuery::new(engine.namespace().clone()).with_limit(self.limit);
        query.statuses = self.status;
        query.agent = self.agent;
        query.tags = self.tag;
        query.text = self.text;
        query.oldest_first = self.oldest_first;
        query.total = self.count;
        query.top_level = !self.children && self.parent.is_none();
        for label in &self.label {
            let (name, value) = label
                .split_once('=')
                .ok_or_else(|| Error::invalid(format!("`{label}` is no label")).hint("write --label NAME=VALUE"))?;
            query.labels.insert(name.to_owned(), value.to_owned());
        }
        if let Some(parent) = &self.parent {
            query.parent = Some(app.session(&engine, parent).await?);
        }
        let now = engine.journal().clock().now();
        query.updated_from = self.since.map(|since| now.minus(since));
        query.after = self.after.map(Cursor::try_from).transpose()?;
        let page = match self.all {
            true => everything(&engine, query).await?,
            false => operations::list(&engine, &query).await?,
        };
        if app.ui.is_json() {
            let sessions: Vec<_> = page.sessions.iter().map(as_json).collect();
            app.ui.json(&json!({"sessions": sessions, "next": page.next, "total": page.total}))?;
            return Ok(Exit::Ok);
        }
        tell(app, &page.sessions, now)?;
        for info in &page.sessions {
            damage::listed(app, &info.header.key, &info.damage);
        }
        if let Some(total) = page.total {
            app.ui.remark(format!("{} in all", time::count(total)));
        }
        if let Some(next) = page.next {
            app.ui.remark(format!("{}more: --after {}{}", style::DIM, String::from(next), style::RESET));
        }
        Ok(Exit::Ok)
    }
}

/// Every page as one.
async fn everything(engine: &Engine, mut query: SessionQuery) -> rekindle::Result<SessionPage> {
    query.limit = MAX_PAGE;
    let mut all = operations::list(engine, &query).await?;
    while let Some(cursor) = all.next.take() {
        query.total = false;
        query = query.with_after(cursor);
        let page = operations::list(engine, &query).await?;
        all.sessions.extend(page.sessions);
        all.next = page.next;
    }
    Ok(all)
}

fn tell(app: &App, sessions: &[SessionInfo], now: Timestamp) -> std::io::Result<()> {
    if sessions.is_empty() {
        app.ui.remark("no sessions");
        return Ok(());
    }
    let mut table = Table::new(&["SESSION", "STATUS", "AGENT", "CHANGED", "TITLE"]);
    for info in sessions {
        let status = owner::status(info).to_string();
        table.row([
            Cell::styled(info.header.key.id.as_str(), style::NAME),
            Cell::styled(format!("{} {status}", style::sign_of_status(&status)), style::of_status(&status)),
            Cell::new(info.header.agent.as_deref().unwrap_or("–")),
            Cell::new(time::ago(info.updated_at(), now)),
            Cell::new(info.header.title.as_deref().unwrap_or("")),
        ]);
    }
    // At once: there may be thousands.
    app.ui.line(table.lines(app.ui.table_width()).join("\n"))
}

/// A session for programs.
pub fn as_json(info: &SessionInfo) -> serde_json::Value {
    let mut told = json!({
        "session": info.header.key.id,
        "namespace": info.header.key.namespace,
        "status": owner::status(info),
        "agent": info.header.agent,
        "title": info.header.title,
        "tags": info.header.tags,
        "labels": info.header.labels,
        "parent": info.header.parent.as_ref().map(|parent| parent.id.to_string()),
        "created_at": info.created_at,
        "updated_at": info.updated_at(),
        "branch": info.current,
    });
    if !info.damage.is_empty() {
        told["damage"] = json!(info.damage);
    }
    told
}

fn status(text: &str) -> Result<Status, String> {
    let parsed = serde_json::from_value(serde_json::Value::from(text));
    parsed.map_err(|_| {
        "statuses are idle, running, waiting, paused, interrupted, succeeded, failed and cancelled".to_owned()
    })
}
