//! The preview of a definition: what can be known of it before its servers are started, so that a change is noticed first.

use std::sync::Arc;

use rekindle::core::Hash;
use rekindle::executor::Fingerprint;
use rekindle::{Error, ErrorKind, Result as Outcome, Secret, SecretRef, SecretSource, State};

use super::DefinitionBuilder;
use crate::definition::Definition;
use crate::document::child;

/// The registers in which sessions say what they were run with.
const DEFINITION: &str = "definition";
const STARTED: &str = "started";

/// The keys of a server that say what is started or asked.
const STARTS: [&str; 8] =
    ["command", "url", "environment", "secret_environment", "directory", "headers", "secret_headers", "bearer"];

/// A definition as it would run, without its MCP servers and without any secret.
#[derive(Clone, Debug)]
pub struct Preview {
    /// Nothing if it cannot be told without the tools of its servers.
    print: Option<Fingerprint>,
    started: Fingerprint,
}

impl DefinitionBuilder {
    /// Finds out what can be known without starting anything and without looking up any secret.
    pub async fn preview(mut self) -> Preview {
        self.secrets = Arc::new(Placeholders);
        let started = started(&self.definition);
        let built = self.build_in(true).await.ok();
        Preview { print: built.map(|(built, _)| built.executor().fingerprint()), started }
    }
}

impl Preview {
    /// Fails if it is not what an unfinished run of a session was started with, as far as that can be told.
    pub fn check(&self, state: &State) -> Outcome<()> {
        let recorded = |register: &str| -> Outcome<Option<Fingerprint>> {
            state.register(register).map(rekindle::Json::decode).transpose()
        };
        let (was, had_started) = (recorded(DEFINITION)?, recorded(STARTED)?);
        let Some(was) = was else { return Ok(()) };
        let mut changes = self.print.as_ref().map_or_else(Vec::new, |now| was.changes(now));
        let all = changes.len();
        if !self.started.is_empty() {
            // These may be tools of a server.
            changes.retain(|change| !is_removed_tool(change));
        }
        match &had_started {
            Some(had) => changes.extend(had.changes(&self.started)),
            // A session without any tool of a server had none. Older versions recorded no servers.
            None if self.print.is_some() && changes.len() == all => {
                changes.extend(Fingerprint::new().changes(&self.started));
            }
            None => {}
        }
        match changes.is_empty() {
            true => Ok(()),
            false => {
                let message = format!("the definition changed since the run began: {}", changes.join("; "));
                Err(Error::new(ErrorKind::Drift, message))
            }
        }
    }
}

fn is_removed_tool(change: &str) -> bool {
    change.ends_with(" was removed") && (change.starts_with("tool ") || change.contains(": tool "))
}

/// The MCP servers of a definition and of all it refers to, each with a hash of what is started.
pub(super) fn started(definition: &Definition) -> Fingerprint {
    let mut print = Fingerprint::new();
    for part in definition.all() {
        let inner = part.inner();
        for name in inner.surroundings.mcp.keys() {
            let entry = inner.document.at(&child(&child(&inner.pointer, "mcp"), name));
            let starts: Vec<_> = STARTS.iter().map(|key| entry.and_then(|entry| entry.get(*key))).collect();
            let text = serde_json::to_string(&starts).unwrap_or_default();
            let of = if part.address() == definition.address() { String::new() } else { format!("{}: ", part.name()) };
            print = print.with(format!("{of}MCP server {name}"), Hash::of(text.as_bytes()).short());
        }
    }
    print
}

/// Gives every secret a value that means nothing.
#[derive(Debug)]
struct Placeholders;

impl SecretSource for Placeholders {
    fn resolve(&self, _: &SecretRef) -> Outcome<Secret> {
        Ok(Secret::new("placeholder"))
    }
}

#[cfg(test)]
mod tests {
    use rekindle::Json;
    use rekindle::core::record::RegisterSet;
    use rekindle::core::{Record, RegisterKey};

    use super::*;

    #[test]
    fn changes_are_found_without_the_tools_of_servers() {
        let print = |parts: &[&str]| parts.iter().fold(Fingerprint::new(), |print, part| print.with(*part, "1"));
        let check = |was: &[&str], had: Option<&[&str]>, now: &[&str], starts: &[&str], expected: Option<&str>| {
            let mut state = State::default();
            let mut set = |key: &str, print: Fingerprint| {
                let set = RegisterSet::new(RegisterKey::new(key).unwrap(), Json::of(&print).unwrap());
                state.apply(&Record::from(set)).unwrap();
            };
            set(DEFINITION, print(was));
            if let Some(had) = had {
                set(STARTED, print(had));
            }
            let preview = Preview { print: Some(print(now)), started: print(starts) };
            let found = preview.check(&state).err().map(|error| error.message().to_owned());
            assert_eq!(found.as_deref().and_then(|text| text.split_once(": ")).map(|(_, change)| change), expected);
        };
        check(&["model"], None, &["model"], &[], None);
        check(&["model", "tool a"], None, &["model"], &[], Some("tool a was removed"));
        // The tools of a server are not known yet, also in a session of an earlier version.
        check(&["model", "tool a"], Some(&["s"]), &["model"], &["s"], None);
        check(&["model", "tool a"], None, &["model"], &["s"], None);
        check(&["model"], None, &["model"], &["s"], Some("s was added"));
        check(&["model"], Some(&["s"]), &["model"], &["t"], Some("s was removed; t was added"));
        check(&["model", "tool a"], Some(&["s"]), &["model", "tool b"], &["s"], Some("tool b was added"));
        assert!(Preview { print: None, started: print(&["s"]) }.check(&State::default()).is_ok());
    }
}
