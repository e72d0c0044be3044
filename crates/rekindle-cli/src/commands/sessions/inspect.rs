//! `rekindle sessions inspect`: what a session knew at a moment.

use clap::Args;
use rekindle::core::LogName;
use rekindle::operations::{self, Inspected};
use rekindle::{Error, Json, State, Timestamp};
use serde_json::{Map, Value};

use super::show::page;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::ui::page::Page;
use crate::ui::spans::Spans;
use crate::ui::style;
use crate::ui::table::{Cell, Table};
use crate::words::{conversation, damage, next, number, value};

/// Which moment, and what of it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle sessions inspect @\n  rekindle sessions inspect trip-42@step:2 memory/city\n  rekindle sessions inspect @~1 --messages"
)]
pub struct Arguments {
    /// The moment: SESSION, or SESSION@WHERE
    #[arg(value_name = "MOMENT")]
    moment: String,
    /// Only this: a register or a log, and what is inside it, e.g. memory/city or messages/0
    #[arg(value_name = "POINTER")]
    pointer: Option<String>,
    /// The conversation, as people read it
    #[arg(long)]
    messages: bool,
    /// Cuts nothing
    #[arg(long)]
    full: bool,
}

impl Arguments {
    /// Shows it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let moment = app.moment(&engine, &self.moment).await?;
        let seen = operations::inspect(&engine, &moment.session, &moment.at).await?;
        damage::note(app, &seen.session, &seen.damage);
        if self.messages {
            self.tell_messages(app, &seen)?;
        } else if let Some(pointer) = &self.pointer {
            let found = find(&seen.state, pointer)?;
            let found = found.ok_or_else(|| nothing_there(app, &self.moment, pointer, &seen))?;
            if app.ui.is_json() { app.ui.json(&found)? } else { self.tell_value(app, value::lines(&found, self.full))? }
        } else if app.ui.is_json() {
            app.ui.json(&seen)?;
        } else {
            let now = engine.journal().clock().now();
            lines(&seen, now, app.ui.table_width(), self.full).iter().try_for_each(|line| app.ui.line(line))?;
        }
        Ok(Exit::Ok)
    }

    fn tell_messages(&self, app: &App, seen: &Inspected) -> Result<(), Failure> {
        let log = LogName::new(self.pointer.as_deref().unwrap_or("messages"))?;
        let items = seen.state.log(&log);
        if app.ui.is_json() {
            return Ok(app.ui.json(&items)?);
        }
        if items.is_empty() {
            app.ui.remark(format!("the log `{log}` is empty"));
        }
        self.tell_value(app, conversation::lines(items, app.ui.width(), self.full))
    }

    fn tell_value(&self, app: &App, (lines, cut): (Vec<String>, bool)) -> Result<(), Failure> {
        lines.iter().try_for_each(|line| app.ui.line(line))?;
        if cut {
            app.ui.remark(format!("{}cut: --full or --json show all of it{}", style::DIM, style::RESET));
        }
        Ok(())
    }
}

/// What is known at the moment, values cut short.
fn lines(seen: &Inspected, now: Timestamp, columns: usize, full: bool) -> Vec<String> {
    let status = seen.status.to_string();
    let end = if seen.is_head { ", its end" } else { "" };
    let header = Spans::new()
        .styled(seen.session.id.as_str(), style::NAME)
        .plain(format!(" at {}{end}", seen.position))
        .styled(format!("  {} {status}", style::sign_of_status(&status)), style::of_status(&status));
    let mut about = Page::new();
    if let Some(checkpoint) = &seen.checkpoint {
        about.row("checkpoint", page::of_checkpoint(checkpoint, now));
    }
    if let Some(run) = &seen.run {
        about.row("run", page::of_run(run));
    }
    if !seen.waits.is_empty() || !seen.effects.is_empty() {
        about.row("open", format!("{}, {}", number(seen.waits.len(), "wait"), number(seen.effects.len(), "call")));
    }
    for lost in &seen.lost {
        about.styled("lost", lost.to_string(), style::WARN);
    }
    let mut lines = vec![header.line(columns)];
    lines.extend(about.lines(columns));
    let logs: Vec<_> = seen.state.logs().map(|(name, items)| (name.to_string(), items.len().to_string())).collect();
    lines.extend(table(&["LOG", "ITEMS"], logs, columns));
    let room = if full { usize::MAX / 8 } else { columns.min(120) };
    let registers = seen.state.registers().map(|(key, value)| (key.to_string(), value::short(value, room)));
    lines.extend(table(&["REGISTER", "VALUE"], registers.collect(), if full { usize::MAX } else { columns }));
    lines
}

fn table(header: &[&'static str], rows: Vec<(String, String)>, columns: usize) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(header);
    for (name, value) in rows {
        table.row([Cell::styled(name, style::NAME), Cell::new(value)]);
    }
    std::iter::once(String::new()).chain(table.lines(columns)).collect()
}

/// What `pointer` names: a log or a register and what is inside, all registers below a name, or a
/// JSON Pointer into the whole state.
fn find(state: &State, pointer: &str) -> Result<Option<Value>, Error> {
    if pointer.starts_with("/logs/") || pointer.starts_with("/registers/") {
        return Ok(state.to_value()?.pointer(pointer).cloned());
    }
    let pointer = pointer.trim_matches('/');
    // The longest name wins, as a name may have a `/` in it.
    let ends = pointer.match_indices('/').map(|(at, _)| at).chain([pointer.len()]);
    for end in ends.collect::<Vec<_>>().into_iter().rev() {
        let (name, inside) = pointer.split_at(end);
        if let Some(register) = state.register(name) {
            return Ok(register.to_value()?.pointer(inside).cloned());
        }
        if let Some((_, items)) = state.logs().find(|(log, _)| log.as_str() == name) {
            return inside_log(items, inside);
        }
    }
    let prefix = format!("{pointer}/");
    let below = state.registers_under(&prefix);
    let below: Map<String, Value> = below
        .map(|(key, value)| Ok((key.as_str()[prefix.len()..].to_owned(), value.to_value()?)))
        .collect::<Result<_, Error>>()?;
    Ok((!below.is_empty()).then_some(Value::Object(below)))
}

fn inside_log(items: &[Json], inside: &str) -> Result<Option<Value>, Error> {
    let Some(inside) = inside.strip_prefix('/') else {
        return items.iter().map(Json::to_value).collect::<Result<_, _>>().map(Value::Array).map(Some);
    };
    let (index, rest) = inside.split_at(inside.find('/').unwrap_or(inside.len()));
    let item = index.parse::<usize>().ok().and_then(|index| items.get(index));
    Ok(item.map(Json::to_value).transpose()?.and_then(|value| value.pointer(rest).cloned()))
}

fn nothing_there(app: &App, moment: &str, pointer: &str, seen: &Inspected) -> Error {
    Error::not_found(format!("there is no `{pointer}` at {}", seen.position))
        .on(&seen.session)
        .hint(format!("`{}` lists what there is", next::line(app, ["sessions", "inspect", moment])))
}

#[cfg(test)]
mod tests {
    use rekindle::core::record::{LogAppend, RegisterSet};
    use rekindle::core::{Record, RegisterKey};
    use serde_json::json;

    use super::*;

    fn state() -> State {
        let set =
            |key: &str, value: Value| Record::from(RegisterSet::new(RegisterKey::new(key).unwrap(), value.into()));
        let items = vec![json!({"role": "user"}).into(), json!([1, 2]).into()];
        let records = [
            set("memory/city", json!({"name": "Oslo", "a/b": 1})),
            set("memory/score", json!(3)),
            LogAppend::new(LogName::new("messages").unwrap(), items).into(),
        ];
        let mut state = State::default();
        records.iter().for_each(|record| state.apply(record).unwrap());
        state
    }

    #[test]
    fn pointers_find_registers_logs_and_what_is_inside() {
        let check = |pointer: &str, expected: Option<Value>| assert_eq!(find(&state(), pointer).unwrap(), expected);
        check("memory/score", Some(json!(3)));
        check("/memory/score", Some(json!(3)));
        check("memory/city/name", Some(json!("Oslo")));
        check("memory/city/a~1b", Some(json!(1)));
        check("memory/city/none", None);
        check("memory", Some(json!({"city": {"name": "Oslo", "a/b": 1}, "score": 3})));
        check("messages/0/role", Some(json!("user")));
        check("messages/1", Some(json!([1, 2])));
        check("messages/7", None);
        check("messages", Some(json!([{"role": "user"}, [1, 2]])));
        check("/registers/memory~1score", Some(json!(3)));
        check("/logs/messages/1/0", Some(json!(1)));
        check("nothing", None);
        check("", None);
    }
}
