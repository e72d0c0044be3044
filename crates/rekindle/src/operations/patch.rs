//! A JSON Patch as changes, so that what a diff gives can be done somewhere else.

use rekindle_core::{Error, Json, Result, State};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::change::Change;

/// The changes that do to `state` what a JSON Patch (RFC 6902) of its document says. The document
/// is that of [`State::to_value`], which is also what [`diff`](super::diff) makes patches for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle::Result<()> {
/// use rekindle::operations::{self, At, Change};
/// use rekindle::{Engine, Json};
///
/// let engine = Engine::memory()?;
/// let session = engine.create("plan").await?;
/// let seen = operations::inspect(&engine, session.key(), &At::Latest).await?;
/// let patch = serde_json::json!([{"op": "add", "path": "/registers/memory~1budget", "value": 900}]);
/// let changes = operations::changes_of_patch(&seen.state, &patch)?;
/// assert_eq!(changes, [Change::SetRegister { key: "memory/budget".into(), value: Json::parse("900")? }]);
/// # Ok(()) }
/// ```
pub fn changes_of_patch(state: &State, patch: &Value) -> Result<Vec<Change>> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::invalid(format!("the patch does not fit the state: {error}"))
            .hint("paths are /logs/NAME/INDEX and /registers/KEY, with ~1 for a / in a name")
    };
    let patch = json_patch::Patch::deserialize(patch).map_err(|error| wrong(&error))?;
    let before = state.to_value()?;
    let mut after = before.clone();
    json_patch::patch(&mut after, &patch).map_err(|error| wrong(&error))?;
    let whole = after.as_object().filter(|fields| fields.len() == 2);
    let logs = whole.and_then(|fields| fields.get("logs")).and_then(Value::as_object);
    let registers = whole.and_then(|fields| fields.get("registers")).and_then(Value::as_object);
    let (Some(logs), Some(registers)) = (logs, registers) else {
        return Err(wrong(&"it leaves something that is no state"));
    };
    let mut changes = Vec::new();
    change_logs(table(&before, "logs"), logs, &mut changes)
        .map_err(|name| wrong(&format!("log `{name}` is no list")))?;
    change_registers(table(&before, "registers"), registers, &mut changes);
    Ok(changes)
}

fn table<'a>(document: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    document.get(name).and_then(Value::as_object)
}

fn change_registers(before: Option<&Map<String, Value>>, after: &Map<String, Value>, changes: &mut Vec<Change>) {
    let old = |key: &str| before.and_then(|before| before.get(key));
    for key in before.into_iter().flat_map(Map::keys).filter(|key| !after.contains_key(*key)) {
        changes.push(Change::UnsetRegister { key: key.clone() });
    }
    for (key, value) in after.iter().filter(|(key, value)| old(key) != Some(*value)) {
        changes.push(Change::SetRegister { key: key.clone(), value: Json::from(value.clone()) });
    }
}

/// The name of a log that is no list any more, if there is one. A log that is gone is emptied.
fn change_logs(
    before: Option<&Map<String, Value>>,
    after: &Map<String, Value>,
    changes: &mut Vec<Change>,
) -> Result<(), String> {
    let none = Value::Array(Vec::new());
    let gone = before.into_iter().flat_map(Map::keys).filter(|name| !after.contains_key(*name));
    for (name, new) in gone.map(|name| (name, &none)).chain(after) {
        let new = new.as_array().ok_or_else(|| name.clone())?;
        let old = before.and_then(|before| before.get(name)).and_then(Value::as_array);
        changes.extend(splice(name, old.map_or(&[][..], Vec::as_slice), new));
    }
    Ok(())
}

/// What differs between the beginning and the end that both have.
fn splice(log: &str, old: &[Value], new: &[Value]) -> Option<Change> {
    let index = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[index..], &new[index..]);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (remove, items) = (old.len() - same, &new[..new.len() - same]);
    let items: Vec<Json> = items.iter().cloned().map(Json::from).collect();
    (remove > 0 || !items.is_empty()).then(|| Change::SpliceLog { log: log.to_owned(), index, remove, items })
}

#[cfg(test)]
mod tests {
    use rekindle_core::record::{LogAppend, RegisterSet};
    use rekindle_core::{LogName, RegisterKey};
    use serde_json::json;

    use super::*;

    fn state() -> State {
        let mut state = State::default();
        let items = ["a", "b", "c"].map(Json::from).to_vec();
        state.apply(&LogAppend::new(LogName::new("notes").unwrap(), items).into()).unwrap();
        let value = Json::parse(r#"{"done":1,"left":2}"#).unwrap();
        state.apply(&RegisterSet::new(RegisterKey::new("memory/work").unwrap(), value).into()).unwrap();
        state
    }

    #[test]
    fn only_what_differs_is_changed() {
        let patch = json!([
            {"op": "replace", "path": "/logs/notes/1", "value": "B"},
            {"op": "replace", "path": "/registers/memory~1work/left", "value": 0},
        ]);
        let value = Json::parse(r#"{"done":1,"left":0}"#).unwrap();
        let splice = Change::SpliceLog { log: "notes".into(), index: 1, remove: 1, items: vec![Json::from("B")] };
        let expected = [splice, Change::SetRegister { key: "memory/work".into(), value }];
        assert_eq!(changes_of_patch(&state(), &patch).unwrap(), expected);
        let gone =
            json!([{"op": "remove", "path": "/registers/memory~1work"}, {"op": "remove", "path": "/logs/notes"}]);
        let expected = [
            Change::SpliceLog { log: "notes".into(), index: 0, remove: 3, items: Vec::new() },
            Change::UnsetRegister { key: "memory/work".into() },
        ];
        assert_eq!(changes_of_patch(&state(), &gone).unwrap(), expected);
        assert_eq!(changes_of_patch(&state(), &json!([])).unwrap(), []);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for patch in [
            json!({}),
            json!([{"op": "test", "path": "/registers/x", "value": 1}]),
            json!([{"op": "remove", "path": "/logs/notes/9"}]),
            json!([{"op": "add", "path": "/waits", "value": 1}]),
            json!([{"op": "replace", "path": "", "value": 1}]),
            json!([{"op": "replace", "path": "/logs/notes", "value": 1}]),
        ] {
            let error = changes_of_patch(&state(), &patch).unwrap_err();
            assert_eq!(error.code(), "RK0001", "{patch}");
        }
    }
}
