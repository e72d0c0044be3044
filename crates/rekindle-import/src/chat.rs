//! Conversations of other programs, as messages of ours, and where the loop stands in them.

use std::collections::{BTreeSet, HashMap};

use rekindle::core::codec::Redaction;
use rekindle::core::record::{EffectIntent, EffectKind, EffectOutcome, OutcomeStatus};
use rekindle::core::{Hash, Record};
use rekindle::executor::stored::agent::{LoopState, Phase, Scope, call_effect};
use rekindle::message::{Message, Part, Reasoning, Reference, Role, ToolCall, ToolResult};
use rekindle::{EffectId, Json, MessageId, Result};
use serde_json::Value;

use super::read::{Object, Read, array, field, is_same, text, truth};

/// The kinds of parts that are ours: what is unknown must not be taken for one.
const OWN: &[&str] = &["text", "reasoning", "image", "file", "tool_call", "tool_result"];

/// The most calls one answer may make.
const CALLS: usize = 10_000;

/// The messages of a conversation: `{role, contents}` with typed contents, or `{role, content}`
/// with `tool_calls`, as the providers have it. Each result of a tool becomes a message of its own.
pub(super) fn messages(values: &[Value]) -> Read<Vec<Message>> {
    let mut reader = Reader::default();
    for (index, value) in values.iter().enumerate() {
        reader.message(value).map_err(|why| format!("message {index}: {why}"))?;
    }
    let mut messages = reader.messages;
    give_ids(&mut messages);
    Ok(messages)
}

#[derive(Default)]
struct Reader {
    messages: Vec<Message>,
    /// The tools of the calls so far, by the id of the call.
    tools: HashMap<String, String>,
}

impl Reader {
    fn message(&mut self, value: &Value) -> Read<()> {
        let Value::Object(object) = value else { return Err("it is not an object".into()) };
        let role = role(object)?;
        let mut parts = Vec::new();
        let contents = field(object, "contents").or_else(|| field(object, "content"));
        match contents.or_else(|| field(object, "text")) {
            None => {}
            Some(content) if role == Role::Tool && self.answers(object).is_some() => {
                parts.push(self.answer(object, content));
            }
            Some(Value::String(text)) if text.is_empty() => {}
            Some(Value::String(text)) => parts.push(Part::Text(text.clone())),
            Some(Value::Array(items)) => {
                for item in items {
                    parts.push(self.part(item)?);
                }
            }
            Some(_) => return Err("its content is neither text nor a list".into()),
        }
        for call in array(object, "tool_calls")?.unwrap_or_default() {
            let Value::Object(call) = call else { return Err("a tool call is not an object".into()) };
            parts.push(self.call(call)?);
        }
        if parts.iter().filter(|part| matches!(part, Part::ToolCall(_))).count() > CALLS {
            return Err(format!("it makes more than {CALLS} calls"));
        }
        self.put(object, role, parts);
        Ok(())
    }

    /// Puts a message into the conversation: results apart, each as the message of a tool.
    fn put(&mut self, object: &Object, role: Role, parts: Vec<Part>) {
        let (results, parts): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| matches!(part, Part::ToolResult(_)));
        let alone = results.is_empty() || !parts.is_empty();
        self.messages.extend(results.into_iter().map(|result| Message::new(Role::Tool, vec![result])));
        if alone {
            let id = text(object, "message_id").or_else(|| text(object, "id"));
            self.messages.push(Message {
                id: id.and_then(|id| MessageId::new(id).ok()),
                author: text(object, "author_name").map(str::to_owned),
                ..Message::new(role, parts)
            });
        }
    }

    /// The call a message of a tool answers.
    fn answers<'a>(&self, object: &'a Object) -> Option<&'a str> {
        text(object, "tool_call_id").or_else(|| text(object, "tool_use_id"))
    }

    fn answer(&self, object: &Object, content: &Value) -> Part {
        let call = self.answers(object).unwrap_or_default();
        let error = truth(object, "is_error").unwrap_or(false);
        self.result(call, content.clone(), error)
    }

    fn result(&self, call: &str, content: Value, error: bool) -> Part {
        let name = self.tools.get(call).map_or("unknown", String::as_str);
        let call = ToolCall::new(call, name, Json::null());
        Part::ToolResult(ToolResult { error, ..ToolResult::new(&call, Json::from(content)) })
    }

    fn part(&mut self, value: &Value) -> Read<Part> {
        let object = match value {
            Value::String(text) => return Ok(Part::Text(text.clone())),
            Value::Object(object) => object,
            _ => return Err("a part of its content is neither text nor an object".into()),
        };
        let kind = text(object, "$type").or_else(|| text(object, "type")).unwrap_or("text");
        let is = |names: &[&str]| names.iter().any(|name| is_same(name, kind));
        if is(&["text", "input_text", "output_text"]) {
            return text(object, "text").map(|text| Part::Text(text.to_owned())).ok_or_else(|| missing("text"));
        }
        if is(&["reasoning", "text_reasoning", "thinking"]) {
            let said = text(object, "text").or_else(|| text(object, "thinking")).unwrap_or_default();
            return Ok(Part::Reasoning(Reasoning { text: said.to_owned(), signature: None }));
        }
        if is(&["function_call", "tool_call", "tool_use"]) {
            return self.call(object);
        }
        if is(&["function_result", "tool_result"]) {
            let id = call_id(object).ok_or_else(|| missing("callId"))?;
            let said = field(object, "result").or_else(|| field(object, "content")).cloned().unwrap_or_default();
            let failed = field(object, "exception").is_some() || truth(object, "is_error") == Some(true);
            return Ok(self.result(id, said, failed));
        }
        if let Some(reference) = reference(object).filter(|_| is(&["data", "uri", "image", "image_url", "file"])) {
            let image = reference.media_type.as_deref().is_some_and(|of| of.starts_with("image/"));
            return Ok(if image || is(&["image", "image_url"]) {
                Part::Image(reference)
            } else {
                Part::File(reference)
            });
        }
        let kind = if OWN.contains(&kind) || kind.is_empty() { format!("imported_{kind}") } else { kind.to_owned() };
        Ok(Part::Unknown(kind, Json::from(value.clone())))
    }

    fn call(&mut self, object: &Object) -> Read<Part> {
        let function = match field(object, "function") {
            Some(Value::Object(function)) => function,
            _ => object,
        };
        let id = call_id(object).ok_or_else(|| missing("callId"))?;
        let name = text(function, "name").ok_or_else(|| missing("name"))?;
        let arguments = field(function, "arguments").or_else(|| field(function, "input"));
        self.tools.insert(id.to_owned(), name.to_owned());
        Ok(Part::ToolCall(match arguments {
            None => ToolCall::from_text(id, name, ""),
            Some(Value::String(text)) => ToolCall::from_text(id, name, text),
            Some(value) => ToolCall::new(id, name, Json::from(value.clone())),
        }))
    }
}

fn call_id(object: &Object) -> Option<&str> {
    ["call_id", "tool_use_id", "tool_call_id", "id"].into_iter().find_map(|name| text(object, name))
}

fn missing(name: &str) -> String {
    format!("a part of its content has no `{name}`")
}

fn reference(object: &Object) -> Option<Reference> {
    let nested = match field(object, "image_url") {
        Some(Value::Object(nested)) => nested,
        _ => object,
    };
    let uri = text(nested, "uri").or_else(|| text(nested, "url")).or_else(|| text(object, "image_url"))?;
    Some(Reference { uri: uri.to_owned(), media_type: text(object, "media_type").map(str::to_owned) })
}

fn role(object: &Object) -> Read<Role> {
    let said = match field(object, "role") {
        Some(Value::String(said)) => said.as_str(),
        Some(Value::Object(said)) => text(said, "value").unwrap_or_default(),
        _ => return Err("it has no role".into()),
    };
    match said.to_ascii_lowercase().as_str() {
        "system" | "developer" => Ok(Role::System),
        "user" | "human" => Ok(Role::User),
        "assistant" | "ai" => Ok(Role::Assistant),
        "tool" | "function" => Ok(Role::Tool),
        _ => Err("its role is not known".into()),
    }
}

/// Takes out of the arguments of calls what must not be stored. A call is recognised by its
/// arguments, so they must be those that will be on record.
pub(super) fn redact_calls(messages: &mut [Message], redaction: &Redaction) -> Result<()> {
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::ToolCall(call) = part {
            call.arguments = redaction.value(&call.arguments)?;
        }
    }
    Ok(())
}

/// Every message gets an id of its own, the same whenever the same conversation is read.
fn give_ids(messages: &mut [Message]) {
    let mut taken: BTreeSet<MessageId> = BTreeSet::new();
    for (index, message) in messages.iter_mut().enumerate() {
        if message.id.clone().is_some_and(|id| taken.insert(id)) {
            continue;
        }
        let names = (0_usize..).map(|again| match again {
            0 => format!("msg_imported_{}", index + 1),
            again => format!("msg_imported_{}.{again}", index + 1),
        });
        message.id = names.filter_map(|name| MessageId::new(name).ok()).find(|id| taken.insert(id.clone()));
    }
}

/// Where the loop stands in a conversation, and the calls that ended although others did not.
pub(super) struct Standing {
    pub(super) at: LoopState,
    /// The records of the calls that ended.
    pub(super) effects: Vec<Record>,
    /// The calls that have not ended.
    pub(super) open: Vec<(EffectId, ToolCall)>,
    /// Whether the turn is over although calls have no result.
    pub(super) gave_up: bool,
}

/// Finds out where the loop stands. `over` says that the turn has ended whatever the messages look
/// like. Results of a step that is not finished leave the conversation: they stand as outcomes,
/// where the loop looks for them. `step` is the step before, which must not be gone back behind.
pub(super) fn stand(messages: &mut Vec<Message>, over: bool, step: u64, scope: &Scope) -> Result<Standing> {
    let answers = |messages: &[Message]| messages.iter().filter(|said| said.role == Role::Assistant).count() as u64;
    let began = messages.iter().rposition(|said| said.role == Role::User).unwrap_or(0);
    let turns = messages.iter().filter(|said| said.role == Role::User).count() as u64;
    let asked = messages.iter().rposition(|said| said.role != Role::Tool);
    let asked = asked.filter(|&at| messages[at].role == Role::Assistant);
    let answered: BTreeSet<&str> =
        asked.map(|at| messages[at + 1..].iter().flat_map(Message::results).map(call_of).collect()).unwrap_or_default();
    let calls: Vec<ToolCall> = asked.map_or(Vec::new(), |at| messages[at].calls().cloned().collect());
    let is_open = calls.iter().any(|call| !answered.contains(call.id.as_str()));
    let phase = match () {
        () if over || messages.is_empty() => Phase::Idle,
        () if is_open => Phase::Act,
        () if asked.is_some() && calls.is_empty() => Phase::Idle,
        () => Phase::Think,
    };
    let next = u64::from(phase == Phase::Think);
    let mut at = LoopState::default();
    at.turn = turns.max(u64::from(!messages.is_empty()));
    at.iteration = answers(&messages[began..]) + next;
    at.step = (answers(messages) + next).max(step);
    at.phase = phase;
    let mut standing = Standing { at, effects: Vec::new(), open: Vec::new(), gave_up: is_open && over };
    if let (Phase::Act, Some(asked)) = (phase, asked) {
        let results = messages.split_off(asked + 1);
        standing.take(&calls, &results, scope)?;
    }
    Ok(standing)
}

fn call_of(result: &ToolResult) -> &str {
    &result.call
}

impl Standing {
    /// Tells the calls that ended from those that did not.
    fn take(&mut self, calls: &[ToolCall], results: &[Message], scope: &Scope) -> Result<()> {
        let by_call: HashMap<&str, &Message> =
            results.iter().flat_map(|said| said.results().map(move |result| (call_of(result), said))).collect();
        for (number, call) in calls.iter().enumerate() {
            let effect = call_effect(scope, self.at.step, number, call)?;
            match by_call.get(call.id.as_str()) {
                Some(result) => self.effects.extend(settled(&effect, call, result)?),
                None => self.open.push((effect, call.clone())),
            }
        }
        Ok(())
    }

    /// An open call ended with this result, as a pending write says. Whether there is such a call.
    pub(super) fn settle(&mut self, call: &str, result: &Value) -> Result<bool> {
        let Some(at) = self.open.iter().position(|(_, open)| open.id == call) else { return Ok(false) };
        let (effect, call) = self.open.remove(at);
        let mut said = Message::tool(ToolResult::new(&call, Json::from(result.clone())));
        said.id = MessageId::new(format!("msg_imported_{effect}")).ok();
        self.effects.extend(settled(&effect, &call, &said)?);
        Ok(true)
    }
}

/// The records of a call that ended, as the loop looks for them.
fn settled(effect: &EffectId, call: &ToolCall, result: &Message) -> Result<[Record; 2]> {
    // As the loop recognises a call.
    let hash = rekindle::wait::digest(&call.arguments).unwrap_or_else(|_| Hash::of(call.arguments.as_str().as_bytes()));
    let intent = EffectIntent::new(effect.clone(), EffectKind::Tool, call.name.clone(), hash);
    let failed = result.results().any(|result| result.error);
    let status = if failed { OutcomeStatus::ToolError } else { OutcomeStatus::Ok };
    Ok([intent.into(), EffectOutcome::new(effect.clone(), status, Some(result.to_json()?)).into()])
}

/// Messages as they are stored.
pub(super) fn stored(messages: &[Message]) -> Result<Vec<Json>> {
    messages.iter().map(Message::to_json).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Vec<Message> {
        messages(value.as_array().unwrap()).unwrap()
    }

    fn check(conversation: Value, over: bool, phase: Phase, turn: u64, iteration: u64, step: u64) -> Standing {
        let standing = stand(&mut read(conversation), over, 0, &Scope::default()).unwrap();
        let at = &standing.at;
        assert_eq!((at.phase, at.turn, at.iteration, at.step), (phase, turn, iteration, step));
        standing
    }

    fn asks() -> Value {
        json!({"role": "assistant", "contents": [
            {"$type": "functionCall", "callId": "a", "name": "f", "arguments": {"x": 1}},
            {"$type": "functionCall", "callId": "b", "name": "g"}]})
    }

    #[test]
    fn the_spelling_of_names_does_not_matter() {
        let camel = read(json!([{"role": "user", "contents": [{"$type": "text", "text": "hi"}]}, asks()]));
        let pascal = read(json!([
            {"Role": "User", "Contents": [{"$type": "text", "Text": "hi"}]},
            {"Role": "Assistant", "Contents": [
                {"$type": "functionCall", "CallId": "a", "Name": "f", "Arguments": {"x": 1}},
                {"$type": "functionCall", "CallId": "b", "Name": "g", "Arguments": null}]}]));
        let plain = read(json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]}]));
        assert_eq!(camel, pascal);
        assert_eq!(camel, plain);
    }

    #[test]
    fn results_become_messages_of_their_own() {
        let said = read(json!([asks(), {"role": "tool", "contents": [
            {"$type": "functionResult", "callId": "a", "result": [1]},
            {"$type": "functionResult", "callId": "b", "result": "no", "exception": "boom"}]}]));
        assert_eq!(said.len(), 3);
        let results: Vec<_> = said.iter().flat_map(Message::results).collect();
        assert_eq!((results[0].name.as_str(), results[0].content.as_str(), results[0].error), ("f", "[1]", false));
        assert_eq!((results[1].name.as_str(), results[1].error), ("g", true));
    }

    #[test]
    fn what_is_unknown_is_kept() {
        let said = read(json!([{"role": "user", "contents": [{"$type": "hologram", "x": 1}, {"$type": "image"}]}]));
        assert!(matches!(&said[0].parts[0], Part::Unknown(kind, _) if kind == "hologram"));
        assert!(matches!(&said[0].parts[1], Part::Unknown(kind, _) if kind == "imported_image"));
        let stored = said[0].to_json().unwrap();
        assert_eq!(Message::from_json(&stored).unwrap(), said[0]);
    }

    #[test]
    fn nonsense_names_the_message() {
        for value in
            [json!([1]), json!([{"role": "king"}]), json!([{"contents": []}]), json!([{"role": "user", "content": 1}])]
        {
            assert!(messages(value.as_array().unwrap()).unwrap_err().starts_with("message 0: "));
        }
    }

    #[test]
    fn ids_are_given_once() {
        let said = read(json!([
            {"role": "user", "content": "a", "id": "msg_imported_2"}, {"role": "user", "content": "b"},
            {"role": "user", "content": "c", "id": "msg_imported_2"}]));
        let ids: BTreeSet<_> = said.iter().map(|said| said.id.clone().unwrap()).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn the_loop_stands_where_the_conversation_ends() {
        let user = || json!({"role": "user", "content": "hi"});
        let done = || json!({"role": "assistant", "content": "done"});
        let result = |id| json!({"role": "tool", "tool_call_id": id, "content": "r"});
        check(json!([]), false, Phase::Idle, 0, 0, 0);
        check(json!([user()]), false, Phase::Think, 1, 1, 1);
        check(json!([user(), done()]), false, Phase::Idle, 1, 1, 1);
        check(json!([user(), done(), user()]), false, Phase::Think, 2, 1, 2);
        check(json!([user(), asks(), result("a"), result("b")]), false, Phase::Think, 1, 2, 2);
        check(json!([user(), asks(), result("a"), result("b")]), true, Phase::Idle, 1, 1, 1);
        let standing = check(json!([user(), asks(), result("b")]), false, Phase::Act, 1, 1, 1);
        assert_eq!(standing.open[0].1.id, "a");
        assert_eq!(standing.effects.len(), 2);
    }
}
