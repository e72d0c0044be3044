//! What `fork` and `edit` can change, as people say it.

mod editor;

use std::path::PathBuf;

use clap::Args;
use rekindle::operations::{self, Change};
use rekindle::{Engine, Error, Json, Message, Result, State};
use serde::Deserialize as _;
use serde_json::Value;

use crate::app::App;
use crate::failure::Failure;
use crate::reference::Moment;

/// The largest file of changes.
const MAX_FILE: u64 = 64 << 20;

/// What to change.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Changes")]
pub struct Changes {
    /// Sets a key of the memory; VALUE is JSON, or else text
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Removes a key of the memory
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// --set and --unset mean registers by their whole names
    #[arg(long)]
    register: bool,
    /// Appends a message of the user
    #[arg(long, value_name = "TEXT")]
    message: Vec<String>,
    /// Leaves a step of a plan out
    #[arg(long, value_name = "STEP")]
    skip_step: Vec<String>,
    /// Does what a file says: a JSON Patch as `diff` gives it, or a list of changes; - reads standard input
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// Opens $VISUAL or $EDITOR on the memory
    #[arg(long)]
    edit: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

impl Changes {
    /// The changes, in order: of the file, of the editor, then of the other flags.
    pub async fn read(&self, app: &App, engine: &Engine, moment: &Moment) -> Result<Vec<Change>, Failure> {
        let mut changes = Vec::new();
        if self.patch.is_some() || self.edit {
            let seen = operations::inspect(engine, &moment.session, &moment.at).await?;
            if let Some(path) = &self.patch {
                changes.extend(from_file(&seen.state, path)?);
            }
            if self.edit {
                changes.extend(editor::edit_memory(app, &seen.state)?);
            }
        }
        changes.extend(self.unset.iter().map(|key| self.unset(key)));
        for assignment in &self.set {
            changes.push(self.set(assignment)?);
        }
        changes.extend(self.skip_step.iter().map(|step| Change::SkipStep { step: step.clone() }));
        if !self.message.is_empty() {
            let messages = self.message.iter().map(|text| Message::user(text.as_str())).collect();
            changes.push(Change::AppendMessages { messages });
        }
        Ok(changes)
    }

    /// Whether an editor was asked for: whoever leaves it without a change wants none.
    pub fn by_editor(&self) -> bool {
        self.edit
    }

    fn set(&self, assignment: &str) -> Result<Change> {
        let found = assignment.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = found.ok_or_else(|| {
            Error::invalid(format!("`--set {assignment}` sets nothing"))
                .hint("write --set KEY=VALUE, e.g. --set budget=900")
        })?;
        let (key, value) = (key.to_owned(), Json::parse(value).unwrap_or_else(|_| Json::from(value)));
        Ok(if self.register { Change::SetRegister { key, value } } else { Change::SetMemory { key, value } })
    }

    fn unset(&self, key: &str) -> Change {
        let key = key.to_owned();
        if self.register { Change::UnsetRegister { key } } else { Change::UnsetMemory { key } }
    }
}

/// A JSON Patch, or a list of changes as the library writes them.
fn from_file(state: &State, path: &std::path::Path) -> Result<Vec<Change>> {
    let name = path.display();
    let text = crate::files::read_text(path, MAX_FILE)?;
    let wrong = |error: serde_json::Error| {
        Error::invalid(format!("{name} is no list of changes: {error}")).hint(
            r#"write a JSON Patch, [{"op":"replace","path":"/registers/memory~1budget","value":900}], or changes, [{"set_memory":{"key":"budget","value":900}}]"#,
        )
    };
    let value: Value = serde_json::from_str(&text).map_err(wrong)?;
    let is_patch = value.as_array().is_some_and(|items| items.iter().all(|item| item.get("op").is_some()));
    match is_patch {
        true => operations::changes_of_patch(state, &value),
        false => Vec::<Change>::deserialize(value).map_err(wrong),
    }
}
