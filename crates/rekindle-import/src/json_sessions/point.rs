//! One snapshot or checkpoint as a point of a session: the conversation and where the loop stands.

use std::collections::BTreeMap;

use rekindle::Json;
use rekindle::core::record::{CheckpointSource, CheckpointType, RunOutcome};
use rekindle::executor::stored::agent::{self, Phase, Scope};
use rekindle::message::Message;
use rekindle::operations::pending::PendingWrite;
use serde_json::Value;

use super::survey::{Item, Kind};
use crate::chat::{self, Standing};
use crate::read::{self, Object, Read, array, count, field, sub, text, truth};
use crate::write::{Mark, Point, chain, kept};
use crate::{Import, time};

/// The newest version of an execution state that is read.
const VERSION: u64 = 2;
/// The most pending writes of one checkpoint that are read.
const WRITES: usize = 10_000;

/// What the next point is compared with.
#[derive(Default)]
pub(super) struct Before {
    step: u64,
    turn: u64,
    messages: Vec<Message>,
    over: bool,
}

/// One file being read.
pub(super) struct Reading<'a, 'b> {
    pub(super) import: &'a mut Import<'b>,
    pub(super) item: &'a Item,
}

/// A file of pending writes: where it is and what stands in it.
type Writes = Option<(String, Read<Value>)>;

impl Reading<'_, '_> {
    pub(super) fn point(&mut self, object: &Object, writes: Writes, before: &mut Before) -> Read<Point> {
        let state = execution_state(object, self.item.kind)?;
        let holder = state.as_ref().unwrap_or(object);
        let said = array(holder, "current_messages")?.or(array(holder, "messages")?);
        let mut messages = chat::messages(said.ok_or("it has no messages")?)?;
        let redaction = self.import.engine.journal().codec().redaction();
        chat::redact_calls(&mut messages, redaction).map_err(|error| chain(&error))?;
        let all = messages.clone();
        let ended = truth(holder, "is_terminated").unwrap_or(false);
        let over = self.item.kind == Kind::Snapshot || ended;
        let mut standing =
            chat::stand(&mut messages, over, before.step, &Scope::default()).map_err(|error| chain(&error))?;
        standing.at.failures = count(holder, "consecutive_failures").unwrap_or(0);
        standing.at.ended = text(holder, "termination_reason").map(str::to_owned).filter(|_| over);
        let mut point = self.begin(object, state.as_ref());
        self.pending(holder, writes, &mut standing, &mut point)?;
        if standing.gave_up {
            self.import.warn(&self.item.place, "the turn is over, but calls in it have no result");
        }
        point.logs.insert(agent::messages().to_string(), chat::stored(&messages).map_err(|error| chain(&error))?);
        point.registers.insert(agent::LOOP.into(), Json::of(&standing.at).map_err(|error| chain(&error))?);
        let idle = standing.at.phase == Phase::Idle;
        point.end = idle.then(|| (RunOutcome::Succeeded, standing.at.ended.clone().unwrap_or_default()));
        // The end of a turn may be stored twice; anything more is another turn.
        point.fresh = if before.over { all != before.messages } else { standing.at.turn != before.turn };
        point.effects = std::mem::take(&mut standing.effects);
        *before = Before { step: standing.at.step, turn: standing.at.turn, messages: all, over: idle };
        Ok(point)
    }

    /// A point with everything that is not the conversation.
    fn begin(&self, object: &Object, state: Option<&Object>) -> Point {
        let said = sub(object, "metadata").ok().flatten();
        let own = state.and_then(|state| sub(state, "metadata").ok().flatten());
        let (kind, description) = match self.item.kind {
            Kind::Snapshot => (CheckpointType::Turn, "snapshot after a turn".to_owned()),
            Kind::Checkpoint => (CheckpointType::Iteration, format!("iteration {}", self.item.step)),
        };
        let source = [said, own].into_iter().flatten().find_map(|said| field(said, "source"));
        let mut extra = BTreeMap::new();
        let parent = [said, own].into_iter().flatten().find_map(|said| text(said, "parent_checkpoint_id"));
        extra.extend(parent.map(|parent| ("imported_parent".to_owned(), parent.into())));
        let mark =
            Mark { kind, source: source_of(source), step: self.item.step, description, extra, ..Mark::default() };
        let mut point = Point {
            place: self.item.place.clone(),
            id: self.item.id.clone(),
            at: self.item.at.clone(),
            mark,
            ..Point::default()
        };
        keep(&mut point.registers, object, state, self.item.kind);
        point
    }

    /// Results that were saved before the step was over: outcomes of the calls they belong to or,
    /// if there is no such call, a log for whoever knows what to do with them.
    fn pending(&mut self, holder: &Object, writes: Writes, standing: &mut Standing, point: &mut Point) -> Read<()> {
        let mut kept_back = Vec::new();
        for value in self.all_pending(holder, writes)? {
            let Some(write) = pending_write(&value) else {
                self.import.skip(&self.item.place, "a pending write has no call, or its result cannot be read");
                continue;
            };
            let result = write.result.to_value().map_err(|error| chain(&error))?;
            if !standing.settle(&write.call, &result).map_err(|error| chain(&error))? {
                kept_back.push(Json::of(&write).map_err(|error| chain(&error))?);
            }
        }
        if !kept_back.is_empty() {
            let (count, log) = (kept_back.len(), format!("pending/{}", self.item.id));
            let note = format!("{count} pending writes belong to no call in the messages; log `{log}` has them");
            self.import.warn(&self.item.place, note);
            point.logs.insert(log, kept_back);
        }
        Ok(())
    }

    /// The pending writes in a checkpoint and those in a file of their own.
    fn all_pending(&mut self, holder: &Object, writes: Writes) -> Read<Vec<Value>> {
        let mut all: Vec<Value> = array(holder, "pending_writes")?.unwrap_or_default().to_vec();
        if let Some((place, read)) = writes {
            let listed = read.and_then(|value| match value {
                Value::Array(writes) => Ok(writes),
                Value::Object(object) => array(&object, "writes")?.map(<[Value]>::to_vec).ok_or_else(no_writes),
                _ => Err(no_writes()),
            });
            match listed {
                Ok(writes) => all.extend(writes),
                Err(why) => self.import.skip(place, why),
            }
        }
        if all.len() > WRITES {
            let rest = format!("it has {} pending writes; only {WRITES} are read", all.len());
            self.import.skip(&self.item.place, rest);
            all.truncate(WRITES);
        }
        Ok(all)
    }
}

fn no_writes() -> String {
    "it holds no list of pending writes".into()
}

/// The state of the loop in a checkpoint; also where it is JSON inside a string.
fn execution_state(object: &Object, kind: Kind) -> Read<Option<Object>> {
    let found = field(object, "execution_state").or_else(|| field(object, "execution_state_json"));
    let state = match found.or_else(|| field(object, "state")) {
        _ if kind == Kind::Snapshot => None,
        None => None,
        Some(Value::String(text)) => Some(read::into_object(read::parse(text.as_bytes())?)?),
        Some(value) => Some(read::into_object(value.clone())?),
    };
    let versions = [Some(object), state.as_ref()].into_iter().flatten();
    let newer = versions.filter_map(|object| count(object, "version")).find(|version| *version > VERSION);
    match newer {
        Some(found) => Err(format!("it has version {found}; up to {VERSION} can be read")),
        None => Ok(state),
    }
}

/// Keeps what has no place of its own.
fn keep(registers: &mut BTreeMap<String, Json>, object: &Object, state: Option<&Object>, kind: Kind) {
    for name in ["middleware_persistent_state", "middleware_state"] {
        for holder in [Some(object), state].into_iter().flatten() {
            for (layer, value) in sub(holder, name).ok().flatten().into_iter().flatten() {
                registers.insert(kept(&format!("middleware/{layer}")), Json::from(value.clone()));
            }
        }
    }
    if let (Kind::Snapshot, Some(metadata)) = (kind, field(object, "metadata")) {
        registers.insert(kept("metadata"), Json::from(metadata.clone()));
    }
    if let Some(state) = state {
        let known =
            ["current_messages", "messages", "pending_writes", "middleware_state", "middleware_persistent_state"];
        let rest = state.iter().filter(|(key, _)| !known.iter().any(|known| read::is_same(known, key)));
        let rest: Object = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
        registers.insert(kept("execution"), Json::from(Value::Object(rest)));
    }
}

fn source_of(value: Option<&Value>) -> CheckpointSource {
    let sources = [CheckpointSource::Input, CheckpointSource::Loop, CheckpointSource::Update, CheckpointSource::Fork];
    match value {
        Some(Value::String(name)) => match name.to_ascii_lowercase().as_str() {
            "input" => CheckpointSource::Input,
            "update" => CheckpointSource::Update,
            "fork" => CheckpointSource::Fork,
            _ => CheckpointSource::Loop,
        },
        // By its number, as enumerations are written without a converter.
        Some(Value::Number(number)) => {
            let index = number.as_u64().and_then(|number| usize::try_from(number).ok());
            index.and_then(|index| sources.get(index).copied()).unwrap_or_default()
        }
        _ => CheckpointSource::Loop,
    }
}

fn pending_write(value: &Value) -> Option<PendingWrite> {
    let Value::Object(object) = value else { return None };
    let result = match (text(object, "result_json"), field(object, "result")) {
        (Some(text), _) => read::parse(text.as_bytes()).ok()?,
        (None, result) => result.cloned()?,
    };
    Some(PendingWrite {
        call: text(object, "call_id")?.to_owned(),
        tool: text(object, "function_name").unwrap_or_default().to_owned(),
        result: Json::from(result),
        iteration: count(object, "iteration").unwrap_or(0),
        created_at: field(object, "completed_at").and_then(time::timestamp).unwrap_or_default(),
    })
}
