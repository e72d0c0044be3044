//! What stands beside the graph: a line for each checkpoint, start and end of a run, wait and edit.

use std::collections::HashMap;

use rekindle::core::record::CheckpointSource;
use rekindle::core::{CheckpointInfo, Record};
use rekindle::operations::{BranchLog, Milestones, StoredRecord};
use rekindle::{BranchId, Timestamp};

use super::graph;
use crate::ui::spans::Spans;
use crate::ui::{style, time};
use crate::words::{author_of, ids, name_of};

/// Something with a row of its own.
#[derive(Clone, Debug)]
pub enum What {
    /// A checkpoint, and the short form of its id.
    Checkpoint(Box<CheckpointInfo>, String),
    /// A record of note.
    Milestone(Box<Record>),
    /// The end of a branch where nothing else is.
    Head,
    /// What was before was compacted.
    Base,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The record.
    pub seq: u64,
    /// When it was written.
    pub at: Timestamp,
    /// What it is.
    pub what: What,
}

/// A branch with its rows, newest first.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The branch.
    pub branch: BranchId,
    /// Its end, as it is named in brackets.
    label: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The rows of each branch.
pub fn of(branches: &[(BranchLog, Milestones)]) -> Vec<Rows> {
    let all = branches.iter().flat_map(|(log, _)| &log.checkpoints).map(|found| found.checkpoint.id.as_str());
    let mut short = ids::short(all).into_iter();
    branches.iter().map(|(log, milestones)| of_branch(log, milestones, &mut short)).collect()
}

fn of_branch(log: &BranchLog, milestones: &Milestones, short: &mut impl Iterator<Item = String>) -> Rows {
    let mut rows: Vec<Row> = Vec::new();
    for found in &log.checkpoints {
        let what = What::Checkpoint(Box::new(found.clone()), short.next().unwrap_or_default());
        rows.push(Row { seq: found.position.seq.0, at: found.created_at, what });
    }
    for stored in milestones.records.iter().filter(|stored| is_told(stored, log)) {
        let what = What::Milestone(Box::new(stored.record.clone()));
        rows.push(Row { seq: stored.position.seq.0, at: stored.at, what });
    }
    if let Some(base) = log.base {
        rows.push(Row { seq: base.seq.0, at: log.created_at, what: What::Base });
    }
    if rows.is_empty() {
        rows.push(Row { seq: log.head.seq.0, at: log.updated_at, what: What::Head });
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.seq));
    Rows { branch: log.branch.clone(), label: label(log), rows }
}

/// The end of a branch: its name, whether a resume goes on with it, whether somebody runs it.
fn label(log: &BranchLog) -> String {
    let current = if log.current { ", current" } else { "" };
    let running = if log.running { ", running" } else { "" };
    format!("[{}{current}{running}]", log.branch)
}

/// Whether a record has a line. That a run began to wait is said by the wait, an edit by the
/// checkpoint that was written with it.
fn is_told(stored: &StoredRecord, log: &BranchLog) -> bool {
    let marks_edit = |found: &CheckpointInfo| {
        let by_hand = matches!(found.checkpoint.source, CheckpointSource::Update | CheckpointSource::Fork);
        by_hand && found.created_at == stored.at && found.position.seq > stored.position.seq
    };
    match &stored.record {
        Record::RunState(_) | Record::WaitReminded(_) | Record::Checkpoint(_) => false,
        Record::Edit(_) => !log.checkpoints.iter().any(marks_edit),
        _ => true,
    }
}

/// The branches as the graph is drawn of them.
pub fn graph(branches: &[(BranchLog, Milestones)], rows: &[Rows]) -> Vec<graph::Branch> {
    let places: HashMap<&BranchId, usize> = rows.iter().enumerate().map(|(at, rows)| (&rows.branch, at)).collect();
    let index = |name: &BranchId| places.get(name).copied();
    let of = |((log, _), rows): (&(BranchLog, Milestones), &Rows)| graph::Branch {
        parent: log.parent.as_ref().and_then(|parent| Some((index(&parent.branch)?, parent.seq.0))),
        rows: rows.rows.iter().map(|row| graph::Row { seq: row.seq, at: row.at.0, sign: sign(&row.what) }).collect(),
    };
    branches.iter().zip(rows).map(of).collect()
}

fn sign(what: &What) -> char {
    match what {
        What::Checkpoint(..) => '○',
        What::Head => '·',
        What::Base => '┴',
        What::Milestone(record) => match record.as_ref() {
            Record::RunStarted(_) => '▶',
            Record::RunEnded(ended) => style::sign_of_status(&name_of(&ended.outcome)).chars().next().unwrap_or('·'),
            Record::WaitOpened(_) => '?',
            Record::WaitDecision(_) | Record::WaitClosed(_) => '!',
            _ => '✎',
        },
    }
}

/// What is said of a row; its branch is named where it ends.
pub fn tell(rows: &Rows, index: usize, now: Timestamp) -> Spans {
    let row = &rows.rows[index];
    let mut spans = Spans::new();
    if let What::Checkpoint(_, short) = &row.what {
        spans = spans.styled(format!("{short} "), style::NAME);
    }
    if index == 0 {
        spans = spans.styled(format!("{} ", rows.label), style::GOOD);
    }
    // What may be cut stands last.
    let spans = spans.styled(format!("{} ", time::ago(row.at, now)), style::DIM);
    match &row.what {
        What::Checkpoint(found, _) => checkpoint(spans, found),
        What::Milestone(record) => milestone(spans, record),
        What::Head => spans.plain(format!("{}:{}, nothing of its own yet", rows.branch, row.seq)),
        What::Base => spans.plain(format!("history up to record {} was compacted", row.seq)),
    }
}

fn checkpoint(spans: Spans, found: &CheckpointInfo) -> Spans {
    let mark = &found.checkpoint;
    let mut spans = spans.plain(format!("{} step {}", name_of(&mark.kind), mark.step));
    if let Some(node) = &mark.node {
        spans = spans.plain(format!(" at {node}"));
    }
    if mark.pinned {
        spans = spans.styled(" pinned", style::WARN);
    }
    for tag in &mark.tags {
        spans = spans.styled(format!(" #{tag}"), style::WARN);
    }
    if !mark.clean {
        spans = spans.styled(" not clean", style::WARN);
    }
    if mark.description.is_empty() { spans } else { spans.plain(format!(": {}", mark.description)) }
}

fn milestone(spans: Spans, record: &Record) -> Spans {
    let told = |what: &str, rest: &str| if rest.is_empty() { what.to_owned() } else { format!("{what}: {rest}") };
    match record {
        Record::RunStarted(started) => match started.continues {
            Some(_) => spans.plain(format!("run resumed ({})", started.executor)),
            None => spans.plain(format!("run started ({})", started.executor)),
        },
        Record::RunEnded(ended) => {
            let outcome = name_of(&ended.outcome);
            let code = ended.code.as_deref().map(|code| format!(" [{code}]")).unwrap_or_default();
            spans.styled(format!("run {outcome}{code}"), style::of_status(&outcome)).plain(told("", &ended.reason))
        }
        Record::WaitOpened(opened) => spans.plain(told(&format!("asked, {}", name_of(&opened.kind)), &opened.prompt)),
        Record::WaitDecision(decision) => {
            let what = format!("{} by {}", name_of(&decision.decision), author_of(decision));
            spans.plain(told(&what, &decision.reason))
        }
        Record::WaitClosed(closed) => spans.plain(format!("wait {}", name_of(&closed.reason))),
        Record::Edit(edit) => spans.plain(told(&format!("edited by {}", edit.author), &edit.reason)),
        Record::BudgetRaised(raised) => {
            let what = format!("budget {} raised by {}", raised.budget, raised.author);
            spans.plain(told(&what, &format!("{} → {}", raised.from, raised.to)))
        }
        Record::DriftAccepted(accepted) => {
            spans.plain(told(&format!("drift accepted by {}", accepted.author), &accepted.changes.join("; ")))
        }
        other => spans.plain(told(other.kind(), &crate::words::record::summary(other))),
    }
}
