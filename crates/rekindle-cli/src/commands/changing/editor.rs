//! The memory of a session in the editor people use.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::Command;

use rekindle::operations::Change;
use rekindle::{Error, Json, Result, State};
use serde_json::{Map, Value};

use crate::app::App;

/// What the registers of the memory begin with.
const MEMORY: &str = "memory/";

/// The changes somebody makes to the memory.
pub fn edit_memory(app: &App, state: &State) -> Result<Vec<Change>> {
    if !app.ui.can_ask() {
        return Err(Error::invalid("an editor needs a terminal").hint("write --set KEY=VALUE, or --patch FILE"));
    }
    let mut before = Map::new();
    for (key, value) in state.registers_under(MEMORY) {
        let key = key.as_str().strip_prefix(MEMORY).unwrap_or(key.as_str());
        before.insert(key.to_owned(), value.to_value()?);
    }
    let after = edited(app, &before)?;
    Ok(differences(&before, &after))
}

fn edited(app: &App, before: &Map<String, Value>) -> Result<Map<String, Value>> {
    let failed = |error: std::io::Error| Error::invalid("the memory cannot be given to an editor").because(error);
    // Only its owner can read the file, and it goes with this function.
    let mut file = tempfile::Builder::new().prefix("memory-").suffix(".json").tempfile().map_err(failed)?;
    let text = serde_json::to_string_pretty(before).unwrap_or_default();
    writeln!(file, "{text}").and_then(|()| file.flush()).map_err(failed)?;
    loop {
        open(file.path())?;
        // Some editors put another file in the place of the one they were given.
        let mut text = String::new();
        let mut now = std::fs::File::open(file.path()).map_err(failed)?;
        now.rewind().and_then(|()| now.read_to_string(&mut text)).map_err(failed)?;
        match serde_json::from_str(&text) {
            Ok(after) => return Ok(after),
            Err(error) => {
                app.ui.note(format!("the memory must be a JSON object: {error}"));
                if !app.ui.confirm("edit it again?") {
                    return Err(Error::invalid("the memory was left as no JSON object").because(error));
                }
            }
        }
    }
}

fn open(path: &Path) -> Result<()> {
    let chosen =
        ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()));
    let chosen = chosen.unwrap_or_else(|| "vi".to_owned());
    let mut words = chosen.split_whitespace();
    let program = words.next().unwrap_or("vi");
    // Ctrl-C is the editor's while it is open.
    #[cfg(unix)]
    let _held = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    let status = Command::new(program).args(words).arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::invalid(format!("the editor `{program}` ended with {status}; nothing was changed"))),
        Err(error) => Err(Error::invalid(format!("the editor `{program}` cannot be started"))
            .because(error)
            .hint("set $EDITOR to the editor you use")),
    }
}

fn differences(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Change> {
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone = gone.map(|key| Change::UnsetMemory { key: key.clone() });
    let new = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    gone.chain(new.map(|(key, value)| Change::SetMemory { key: key.clone(), value: Json::from(value.clone()) }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, after: &str, expected: &str) {
        let read = |text: &str| serde_json::from_str(text).unwrap();
        let found = serde_json::to_string(&differences(&read(before), &read(after))).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_differences_are_changes() {
        check(r#"{"a":1,"b":[1]}"#, r#"{"b":[1],"a":1}"#, "[]");
        check(
            r#"{"a":1,"b":2}"#,
            r#"{"b":3}"#,
            r#"[{"unset_memory":{"key":"a"}},{"set_memory":{"key":"b","value":3}}]"#,
        );
        check("{}", r#"{"x":{"y":null}}"#, r#"[{"set_memory":{"key":"x","value":{"y":null}}}]"#);
    }
}
