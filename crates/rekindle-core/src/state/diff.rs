//! The difference of two states: for people, and as JSON Patch (RFC 6902).

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::State;
use crate::error::Result;
use crate::id::{LogName, RegisterKey};
use crate::json::Json;

/// What must change in one state to get another.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StateDiff {
    /// Logs that differ.
    pub logs: Vec<LogDiff>,
    /// Registers that differ.
    pub registers: Vec<RegisterDiff>,
}

/// The difference of one log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogDiff {
    /// The log.
    pub log: LogName,
    /// Whether it is only in the second state.
    pub created: bool,
    /// How many items both begin with.
    pub common: usize,
    /// What the first has behind those.
    pub removed: Vec<Json>,
    /// What the second has behind those.
    pub added: Vec<Json>,
}

/// The difference of one register.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegisterDiff {
    /// The register.
    pub key: RegisterKey,
    /// What happened to it.
    pub change: RegisterChange,
}

/// What happened to a register.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterChange {
    /// Only the second has it.
    Added(Json),
    /// Only the first has it.
    Removed(Json),
    /// Both have it, with other values.
    Changed {
        /// The first's value.
        from: Json,
        /// The second's value.
        to: Json,
    },
}

impl StateDiff {
    /// From `before` to `after`. Shared items are recognised without comparing their text.
    pub fn between(before: &State, after: &State) -> Self {
        let mut diff = Self::default();
        let mut names: Vec<&LogName> = before.logs.keys().chain(after.logs.keys()).collect();
        names.sort();
        names.dedup();
        for log in names {
            let (old, new) = (before.log(log), after.log(log));
            let common = old.iter().zip(new).take_while(|(a, b)| a == b).count();
            let created = !before.logs.contains_key(log);
            if created || common < old.len() || common < new.len() {
                let (removed, added) = (old[common..].to_vec(), new[common..].to_vec());
                diff.logs.push(LogDiff { log: log.clone(), created, common, removed, added });
            }
        }
        for (key, from) in &before.registers {
            let change = match after.registers.get(key) {
                None => RegisterChange::Removed(from.clone()),
                Some(to) if to == from => continue,
                Some(to) => RegisterChange::Changed { from: from.clone(), to: to.clone() },
            };
            diff.registers.push(RegisterDiff { key: key.clone(), change });
        }
        for (key, value) in after.registers.iter().filter(|(key, _)| !before.registers.contains_key(*key)) {
            diff.registers.push(RegisterDiff { key: key.clone(), change: RegisterChange::Added(value.clone()) });
        }
        diff.registers.sort_by(|a, b| a.key.cmp(&b.key));
        diff
    }

    /// Whether both states are the same.
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.registers.is_empty()
    }

    /// The difference as a JSON Patch of the document of [`State::to_value`].
    pub fn to_json_patch(&self) -> Result<Value> {
        let mut operations = Vec::new();
        for diff in &self.logs {
            let path = format!("/logs/{}", escape(diff.log.as_str()));
            if diff.created {
                operations.push(json!({ "op": "add", "path": path, "value": [] }));
            }
            for index in (diff.common..diff.common + diff.removed.len()).rev() {
                operations.push(json!({ "op": "remove", "path": format!("{path}/{index}") }));
            }
            for item in &diff.added {
                operations.push(json!({ "op": "add", "path": format!("{path}/-"), "value": item.to_value()? }));
            }
        }
        for diff in &self.registers {
            let path = format!("/registers/{}", escape(diff.key.as_str()));
            match &diff.change {
                RegisterChange::Added(value) => {
                    operations.push(json!({ "op": "add", "path": path, "value": value.to_value()? }));
                }
                RegisterChange::Removed(_) => operations.push(json!({ "op": "remove", "path": path })),
                RegisterChange::Changed { from, to } => {
                    for (inner, mut operation) in inner_patch(from, to)? {
                        operation["path"] = format!("{path}{inner}").into();
                        operations.push(operation);
                    }
                }
            }
        }
        Ok(Value::Array(operations))
    }
}

/// The operations that turn one value into another, with their paths inside the value.
fn inner_patch(from: &Json, to: &Json) -> Result<Vec<(String, Value)>> {
    let patch = json_patch::diff(&from.to_value()?, &to.to_value()?);
    let operations = patch.0.iter().filter_map(|operation| {
        let operation = serde_json::to_value(operation).ok()?;
        Some((operation["path"].as_str()?.to_owned(), operation))
    });
    Ok(operations.collect())
}

/// A name as one token of a JSON pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl fmt::Display for StateDiff {
    /// One block for each log and register that differs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diff in &self.logs {
            let (removed, added) = (diff.removed.len(), diff.added.len());
            writeln!(f, "log {}: {} kept, {removed} removed, {added} added", diff.log, diff.common)?;
            diff.removed.iter().try_for_each(|item| writeln!(f, "  - {item}"))?;
            diff.added.iter().try_for_each(|item| writeln!(f, "  + {item}"))?;
        }
        for diff in &self.registers {
            match &diff.change {
                RegisterChange::Added(value) => writeln!(f, "register {}: added\n  + {value}", diff.key)?,
                RegisterChange::Removed(value) => writeln!(f, "register {}: removed\n  - {value}", diff.key)?,
                RegisterChange::Changed { from, to } => {
                    writeln!(f, "register {}: changed", diff.key)?;
                    show_change(f, from, to)?;
                }
            }
        }
        Ok(())
    }
}

/// The places inside a value that differ; the whole value if that says less.
fn show_change(f: &mut fmt::Formatter<'_>, from: &Json, to: &Json) -> fmt::Result {
    let values = from.to_value().ok().zip(to.to_value().ok());
    let places = inner_patch(from, to).unwrap_or_default();
    match values {
        Some((old, new)) if !places.is_empty() && places.iter().all(|(path, _)| !path.is_empty()) => {
            for (path, _) in &places {
                match (old.pointer(path), new.pointer(path)) {
                    (Some(old), Some(new)) => writeln!(f, "  ~ {path}: {old} → {new}")?,
                    (None, Some(new)) => writeln!(f, "  + {path}: {new}")?,
                    (Some(old), None) => writeln!(f, "  - {path}: {old}")?,
                    (None, None) => writeln!(f, "  ~ {path}")?,
                }
            }
            Ok(())
        }
        _ => writeln!(f, "  - {from}\n  + {to}"),
    }
}
