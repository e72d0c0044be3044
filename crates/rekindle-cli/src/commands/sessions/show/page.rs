//! The page itself: what is known of a session, without what it waits for.

use rekindle::Timestamp;
use rekindle::core::CheckpointInfo;
use rekindle::operations::{RunView, Shown};

use crate::owner;
use crate::ui::page::Page;
use crate::ui::spans::Spans;
use crate::ui::style;
use crate::words::{self, name_of, number};

/// The header and the page.
pub fn lines(shown: &Shown, now: Timestamp, columns: usize) -> Vec<String> {
    let mut page = Page::new();
    about(&mut page, shown, now);
    running(&mut page, shown, now);
    trouble(&mut page, shown);
    let mut lines = vec![header(shown).line(columns)];
    lines.extend(page.lines(columns));
    lines
}

fn header(shown: &Shown) -> Spans {
    let status = shown.status.to_string();
    let mut spans = Spans::new()
        .styled(shown.header.key.id.as_str(), style::NAME)
        .styled(format!("  {} {status}", style::sign_of_status(&status)), style::of_status(&status));
    if let Some(agent) = &shown.header.agent {
        spans = spans.plain(format!("  {agent}"));
    }
    if let Some(title) = &shown.header.title {
        spans = spans.styled(format!("  {title}"), style::BOLD);
    }
    spans
}

fn about(page: &mut Page, shown: &Shown, now: Timestamp) {
    page.row("created", words::when(shown.created_at, now));
    page.row("changed", words::when(shown.updated_at, now));
    if shown.header.key.namespace.as_str() != "default" {
        page.row("namespace", shown.header.key.namespace.as_str());
    }
    if let Some(parent) = &shown.parent {
        page.row("parent", parent.id.as_str());
    }
    if !shown.header.tags.is_empty() {
        page.row("tags", shown.header.tags.join(", "));
    }
    for (name, value) in &shown.header.labels {
        page.row("labels", format!("{name}={value}"));
    }
    for (name, value) in &shown.header.metadata {
        page.row("metadata", format!("{name} = {}", words::value::short(value, 200)));
    }
}

fn running(page: &mut Page, shown: &Shown, now: Timestamp) {
    page.row("branch", branches(shown));
    if let Some(owner) = &shown.owner {
        let name = owner::named(owner.owner.as_str());
        let text = match owner::has_ended(owner.owner.as_str()) {
            true => format!("{name}, which has died; a resume takes {} over", owner.branch),
            false => format!("{name} on {} until {}", owner.branch, words::when(owner.until, now)),
        };
        page.row("owner", text);
    }
    if let Some(run) = &shown.run {
        let failed = run.code.is_some();
        page.styled("run", of_run(run), if failed { style::BAD } else { anstyle::Style::new() });
        if !run.weakened.is_empty() {
            page.styled("run", format!("weakened: {}", run.weakened.join(", ")), style::WARN);
        }
    }
    if shown.spent.session != rekindle::Spent::default() {
        page.row("spent", format!("{} by the turn", words::spent(&shown.spent.turn)));
        page.row("spent", format!("{} by the session", words::spent(&shown.spent.session)));
    }
    if !shown.logs.is_empty() {
        let logs: Vec<_> = shown.logs.iter().take(12).map(|(name, items)| format!("{name} {items}")).collect();
        page.row("logs", logs.join(", "));
    }
    if let Some(checkpoint) = &shown.checkpoint {
        page.row("checkpoint", of_checkpoint(checkpoint, now));
    }
    if shown.unread > 0 {
        page.styled("inbox", format!("{} unread", shown.unread), style::WARN);
    }
    let yes = if shown.resumable.resumable { "yes" } else { "no" };
    page.row("resumable", format!("{yes}: {}", shown.resumable.why));
}

fn branches(shown: &Shown) -> String {
    let head = shown.branches.iter().find(|branch| branch.branch == shown.current).map(|branch| branch.head.seq);
    let others: Vec<_> = shown
        .branches
        .iter()
        .filter(|branch| !branch.branch.is_inbox() && branch.branch != shown.current)
        .map(|branch| branch.branch.as_str())
        .collect();
    let at = head.map(|seq| format!(", {} long", number(usize::try_from(seq.0).unwrap_or(usize::MAX), "record")));
    let beside = match others.as_slice() {
        [] => String::new(),
        few if few.len() <= 6 => format!("; beside it {}", few.join(", ")),
        many => format!("; beside it {} others", many.len()),
    };
    format!("{}{}{beside}", shown.current, at.unwrap_or_default())
}

/// A run in one sentence.
pub fn of_run(run: &RunView) -> String {
    let mut text = format!("{} ({})", run.run, run.executor);
    if let Some(before) = &run.continues {
        text.push_str(&format!(", goes on from {before}"));
    }
    match &run.outcome {
        Some(outcome) => text.push_str(&format!(", ended: {}", name_of(outcome))),
        None => text.push_str(", not ended"),
    }
    if let Some(code) = &run.code {
        text.push_str(&format!(" [{code}]"));
    }
    if !run.reason.is_empty() {
        text.push_str(&format!(": {}", run.reason));
    }
    text
}

/// A checkpoint in one sentence.
pub fn of_checkpoint(found: &CheckpointInfo, now: Timestamp) -> String {
    let mark = &found.checkpoint;
    let mut text = format!("{} {} after step {}", mark.id, name_of(&mark.kind), mark.step);
    if !mark.clean {
        text.push_str(", not clean");
    }
    text.push_str(&format!(", {}", crate::ui::time::ago(found.created_at, now)));
    if !mark.description.is_empty() {
        text.push_str(&format!(": {}", mark.description));
    }
    text
}

fn trouble(page: &mut Page, shown: &Shown) {
    for (kind, count) in &shown.unknown {
        page.styled("unknown", format!("{count} of kind `{kind}`, which this version does not know"), style::WARN);
    }
    if let Some(why) = &shown.unreadable {
        page.styled("unreadable", why, style::BAD);
    }
    for lost in shown.lost.iter().take(20) {
        page.styled("lost", lost.to_string(), style::WARN);
    }
    for damage in shown.damage.iter().take(20) {
        let text = format!("{} at {} to {}: {}", name_of(&damage.kind), damage.position(), damage.last, damage.detail);
        page.styled("damage", text, style::BAD);
    }
}
