//! Changes to a state by hand: checked against it before anything is written.

use rekindle_core::record::{LogAppend, LogSplice, RegisterSet, RegisterUnset};
use rekindle_core::{Error, Json, LogName, Record, RegisterKey, Result, RunId, State};
use serde::{Deserialize, Serialize};

use super::plain;
use crate::driver::{BUDGET, DEFINITION, Fingerprint, Ledger, MEMORY, NEXT_RUN, SECRET};
use crate::engine::Engine;
use crate::message::{Message, conversation};
use crate::secret::SecretRef;
use crate::secret::disarm_record;

/// A change to the state of a session. Changes are made one after the other; an index counts
/// what the changes before it have left.
///
/// ```
/// use rekindle::operations::Change;
/// let change: Change = serde_json::from_str(r#"{"set_memory":{"key":"colour","value":"blue"}}"#)?;
/// assert!(matches!(change, Change::SetMemory { .. }));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Sets a register. Those the engine reads must still make sense to it.
    SetRegister {
        /// Which.
        key: String,
        /// Its new value.
        value: Json,
    },
    /// Removes a register.
    UnsetRegister {
        /// Which.
        key: String,
    },
    /// Sets a key of the session's memory.
    SetMemory {
        /// Which.
        key: String,
        /// Its new value.
        value: Json,
    },
    /// Removes a key of the session's memory.
    UnsetMemory {
        /// Which.
        key: String,
    },
    /// Leaves a step of a plan out: what depends on it goes on without its result.
    SkipStep {
        /// Which.
        step: String,
    },
    /// Replaces a message of the conversation.
    ReplaceMessage {
        /// Its index, from 0.
        index: usize,
        /// What comes in its place.
        message: Message,
    },
    /// Inserts messages.
    InsertMessages {
        /// Before the message of this index; behind the last one if it is the number of messages.
        index: usize,
        /// The messages.
        messages: Vec<Message>,
    },
    /// Removes messages.
    RemoveMessages {
        /// From this index on.
        index: usize,
        /// How many.
        count: usize,
    },
    /// Appends messages.
    AppendMessages {
        /// The messages.
        messages: Vec<Message>,
    },
    /// Replaces an item of any log.
    SetLogItem {
        /// The log.
        log: String,
        /// The item's index, from 0.
        index: usize,
        /// What comes in its place.
        item: Json,
    },
    /// Replaces a stretch of any log.
    SpliceLog {
        /// The log.
        log: String,
        /// From this index on.
        index: usize,
        /// How many go.
        remove: usize,
        /// What comes in their place.
        items: Vec<Json>,
    },
}

/// The records of `changes`, each checked against the state the ones before it leave.
pub(super) fn records(engine: &Engine, state: &State, changes: &[Change]) -> Result<Vec<Record>> {
    let mut state = state.clone();
    let mut records = Vec::new();
    for (number, change) in changes.iter().enumerate() {
        let mut record = change.record(engine, &state).map_err(|error| numbered(error, number, changes.len()))?;
        plain::refuse_record(engine, &record).map_err(|error| numbered(error, number, changes.len()))?;
        disarm_record(&state, &mut record);
        state.apply(&record)?;
        records.push(record);
    }
    Ok(records)
}

fn numbered(error: Error, number: usize, of: usize) -> Error {
    if of < 2 {
        return error;
    }
    let message = format!("change {} of {of}: {}", number + 1, error.message());
    let hint = error.next_step().to_owned();
    Error::new(error.kind().clone(), message).because(error).hint(hint)
}

impl Change {
    fn record(&self, engine: &Engine, state: &State) -> Result<Record> {
        match self {
            Self::SetRegister { key, value } => set(engine, key.clone(), value),
            Self::UnsetRegister { key } => unset(key.clone(), state),
            Self::SetMemory { key, value } => set(engine, format!("{MEMORY}{key}"), value),
            Self::UnsetMemory { key } => unset(format!("{MEMORY}{key}"), state),
            Self::SkipStep { step } => engine.descriptors().of(state).skip_step(state, step),
            Self::ReplaceMessage { index, message } => {
                splice(engine, state, conversation(), *index, 1, stored(engine, std::slice::from_ref(message))?)
            }
            Self::InsertMessages { index, messages } => {
                splice(engine, state, conversation(), *index, 0, stored(engine, messages)?)
            }
            Self::RemoveMessages { index, count } => splice(engine, state, conversation(), *index, *count, Vec::new()),
            Self::AppendMessages { messages } => Ok(LogAppend::new(conversation(), stored(engine, messages)?).into()),
            Self::SetLogItem { log, index, item } => {
                splice(engine, state, LogName::new(log)?, *index, 1, vec![item.clone()])
            }
            Self::SpliceLog { log, index, remove, items } => {
                splice(engine, state, LogName::new(log)?, *index, *remove, items.clone())
            }
        }
    }
}

fn stored(engine: &Engine, messages: &[Message]) -> Result<Vec<Json>> {
    let (ids, now) = (engine.journal().ids(), engine.journal().clock().now());
    messages.iter().map(|message| message.clone().with_id(ids, now).to_json()).collect()
}

fn set(engine: &Engine, key: String, value: &Json) -> Result<Record> {
    check_register(engine, &key, value).map_err(|error| {
        Error::invalid(format!("the engine could not read that value in the register `{key}`"))
            .because(error)
            .hint("inspect the session and keep the shape the register has")
    })?;
    Ok(RegisterSet::new(RegisterKey::new(key)?, value.clone()).into())
}

fn unset(key: String, state: &State) -> Result<Record> {
    if state.register(&key).is_none() {
        return Err(Error::not_found(format!("the register `{key}` is not set"))
            .hint("inspect the session to see which registers it has"));
    }
    Ok(RegisterUnset::new(RegisterKey::new(key)?).into())
}

/// An error if the engine could not read `value` in a register of its own.
fn check_register(engine: &Engine, key: &str, value: &Json) -> Result<()> {
    match key {
        BUDGET => value.decode::<Ledger>().map(drop),
        DEFINITION => value.decode::<Fingerprint>().map(drop),
        NEXT_RUN => value.decode::<RunId>().map(drop),
        _ if key.starts_with(SECRET) => value.decode::<String>()?.parse::<SecretRef>().map(drop),
        _ => engine.descriptors().check_register(key, value),
    }
}

fn splice(
    engine: &Engine,
    state: &State,
    log: LogName,
    index: usize,
    remove: usize,
    items: Vec<Json>,
) -> Result<Record> {
    let length = state.log(&log).len();
    if index.checked_add(remove).is_none_or(|end| end > length) {
        let message = match remove {
            0 => format!("log `{log}` has {length} items, so nothing can be inserted at {index}"),
            _ => format!("log `{log}` has {length} items, so {remove} cannot be replaced or removed at {index}"),
        };
        return Err(Error::invalid(message).hint("indices count from 0; inspect the session to see what it has"));
    }
    items.iter().try_for_each(|item| check_item(engine, &log, item))?;
    Ok(LogSplice::new(log, index as u64, remove as u64, items).into())
}

/// An error if the engine could not read `item` in a log of its own.
fn check_item(engine: &Engine, log: &LogName, item: &Json) -> Result<()> {
    engine.descriptors().check_item(log, item).map_err(|error| match *log == conversation() {
        true => Error::invalid("an item is not a message").because(error).hint("give it a `role` and `parts`"),
        false => Error::invalid(format!("the engine could not read that item in the log `{log}`"))
            .because(error)
            .hint("inspect the session and keep the shape the items of the log have"),
    })
}
