//! How things of a session are said: records, messages, values, and the lines to run next. What
//! comes from a store is cut where it would be too much, and never does anything to a terminal.

pub mod conversation;
pub mod damage;
pub mod ids;
pub mod next;
pub mod record;
pub mod value;

use std::time::Duration;

use rekindle::core::record::WaitDecision;
use rekindle::{Spent, Timestamp};
use serde::Serialize;

use crate::ui::time;

/// The name by which a kind or a status is stored, e.g. `user_checkpoint`.
pub fn name_of<T: Serialize>(kind: &T) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// Names who decided; `maria (claimed)` if nothing proves the name.
pub fn author_of(decision: &WaitDecision) -> String {
    let claimed = if decision.claimed { " (claimed)" } else { "" };
    format!("{}{claimed}", decision.author)
}

/// `1 item`, `2 items`.
pub fn number(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", time::count(count as u64))
}

/// `2026-11-15 11:00:00 (3m ago)`.
pub fn when(at: Timestamp, now: Timestamp) -> String {
    let other = if at > now { format!("in {}", time::span(at.since(now))) } else { time::ago(at, now) };
    format!("{} ({other})", time::short(at))
}

/// What was used, as far as anything was.
pub fn spent(spent: &Spent) -> String {
    let mut parts = Vec::new();
    if spent.input_tokens > 0 || spent.output_tokens > 0 {
        parts.push(format!("{} tokens in, {} out", time::count(spent.input_tokens), time::count(spent.output_tokens)));
    }
    if spent.cost_micros > 0 {
        parts.push(time::cost(spent.cost_micros));
    }
    for (count, what) in [(spent.iterations, "iteration"), (spent.tool_calls, "tool call")] {
        if count > 0 {
            parts.push(number(usize::try_from(count).unwrap_or(usize::MAX), what));
        }
    }
    if spent.active_micros > 0 {
        parts.push(time::span(Duration::from_micros(spent.active_micros)));
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}
