//! The body of a request to the Messages API.

use rekindle::message::convert::to_anthropic;
use rekindle::message::{Message, Part};
use rekindle::model::ModelError;
use rekindle::tool::ToolSpec;
use serde_json::{Map, Value, json};

use crate::arrange::LEFT_OUT;
use crate::request::{merge, schema};

/// Asks a model that spoke last to speak again: the API would have it go on within its answer.
const GO_ON: &str = "(go on)";

/// What stands in every body.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) max_tokens: u32,
    pub(super) temperature: Option<f64>,
    /// How many tokens it may think.
    pub(super) thinking: Option<u32>,
    pub(super) extra: Map<String, Value>,
}

impl Body {
    /// The body that asks for an answer to `messages`.
    pub(super) fn of(&self, mut messages: Vec<Message>, tools: &[ToolSpec]) -> Result<Value, ModelError> {
        messages.iter_mut().flat_map(|message| &mut message.parts).for_each(with_legal_id);
        let mut body = match to_anthropic(&messages) {
            Value::Object(body) => body,
            _ => Map::new(),
        };
        let turns = body.remove("messages").map(by_turns).unwrap_or_default();
        let mut set = |field: &str, value: Option<Value>| value.map(|value| body.insert(field.to_owned(), value));
        set("messages", Some(turns));
        set("model", Some(self.model.as_str().into()));
        set("max_tokens", Some(self.max_tokens.into()));
        set("tools", self.tools(tools)?);
        set("temperature", self.temperature.map(Value::from));
        set("thinking", self.thinking.map(|tokens| json!({"type": "enabled", "budget_tokens": tokens})));
        set("stream", self.stream.then_some(Value::Bool(true)));
        Ok(merge(body, &self.extra))
    }

    fn tools(&self, tools: &[ToolSpec]) -> Result<Option<Value>, ModelError> {
        let tool = |tool: &ToolSpec| {
            Ok(json!({"name": tool.name, "description": tool.description, "input_schema": schema(tool)?}))
        };
        let all = tools.iter().map(tool).collect::<Result<Vec<_>, ModelError>>()?;
        Ok((!all.is_empty()).then_some(Value::Array(all)))
    }
}

/// Ids from other providers may hold characters that are refused here.
fn with_legal_id(part: &mut Part) {
    let id = match part {
        Part::ToolCall(call) => &mut call.id,
        Part::ToolResult(result) => &mut result.call,
        _ => return,
    };
    let is_illegal = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
    if id.contains(is_illegal) {
        *id = id.replace(is_illegal, "_");
    }
}

/// Messages of the same role in a row as one, and users first and last. Some messages were left out
/// of the shape, so only now it shows who speaks when.
fn by_turns(messages: Value) -> Value {
    let Value::Array(messages) = messages else { return messages };
    let mut turns: Vec<Value> = Vec::with_capacity(messages.len() + 2);
    if messages.first().is_some_and(|message| message["role"] == "assistant") {
        turns.push(json!({"role": "user", "content": LEFT_OUT}));
    }
    for mut message in messages {
        match turns.last_mut() {
            Some(last) if last["role"] == message["role"] => {
                let mut all = blocks(last["content"].take());
                all.extend(blocks(message["content"].take()));
                last["content"] = Value::Array(all);
            }
            _ => turns.push(message),
        }
    }
    if turns.last().is_none_or(|message| message["role"] == "assistant") {
        turns.push(json!({"role": "user", "content": GO_ON}));
    }
    Value::Array(turns)
}

fn blocks(content: Value) -> Vec<Value> {
    match content {
        Value::Array(blocks) => blocks,
        text => vec![json!({"type": "text", "text": text})],
    }
}

#[cfg(test)]
mod tests {
    use rekindle::Json;
    use rekindle::message::{Reasoning, Role, ToolCall, ToolResult};

    use super::*;
    use crate::arrange::arranged;

    fn body() -> Body {
        Body { model: "claude".into(), max_tokens: 100, ..Body::default() }
    }

    fn tool() -> ToolSpec {
        let parameters = Json::from(json!({"type": "object"}));
        ToolSpec { name: "add".into(), description: "Adds.".into(), parameters, version: None }
    }

    #[test]
    fn the_body_is_as_documented() {
        let call = ToolCall::new("c:1", "add", Json::from(json!({"a": 1})));
        let thought = Part::Reasoning(Reasoning { text: "hm".into(), signature: Some("sig".into()) });
        let redacted = json!({"type": "redacted_thinking", "data": "xyz"});
        let hidden = Part::Unknown("anthropic/redacted_thinking".into(), Json::from(redacted.clone()));
        let messages = vec![
            Message::system("be brief"),
            Message::user("1 and 1?"),
            Message::new(Role::Assistant, vec![thought, hidden, Part::ToolCall(call.clone())]),
            Message::tool(ToolResult::failed(&call, "broken")),
            Message::user("and 2?"),
        ];
        let extra = json!({"cache_control": {"type": "ephemeral"}}).as_object().cloned().unwrap();
        let body = Body { stream: true, thinking: Some(2000), extra, ..body() };
        let golden = json!({
            "model": "claude",
            "max_tokens": 100,
            "system": "be brief",
            "messages": [
                {"role": "user", "content": "1 and 1?"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    redacted,
                    {"type": "tool_use", "id": "c_1", "name": "add", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c_1", "content": "broken", "is_error": true},
                    {"type": "text", "text": "and 2?"},
                ]},
            ],
            "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "cache_control": {"type": "ephemeral"},
            "stream": true,
        });
        assert_eq!(body.of(messages, &[tool()]).unwrap(), golden);
    }

    fn check(messages: Vec<Message>, expected: Value) {
        let sent = body().of(arranged(messages), &[]).unwrap();
        assert_eq!(sent, json!({"model": "claude", "max_tokens": 100, "messages": expected}));
    }

    #[test]
    fn users_and_model_take_turns() {
        let [u, a] = [Message::user("u"), Message::assistant("a")];
        let text = |text: &str| json!({"type": "text", "text": text});
        check(vec![u.clone()], json!([{"role": "user", "content": "u"}]));
        check(
            vec![a.clone(), a.clone(), u.clone(), u.clone(), u.clone()],
            json!([
                {"role": "user", "content": "(earlier conversation left out)"},
                {"role": "assistant", "content": [text("a"), text("a")]},
                {"role": "user", "content": [text("u"), text("u"), text("u")]},
            ]),
        );
        check(
            vec![u.clone(), a.clone()],
            json!([
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "(go on)"},
            ]),
        );
        check(vec![], json!([{"role": "user", "content": "(go on)"}]));
        // A blank message is left out.
        check(
            vec![Message::user(" "), a.clone(), Message::assistant(""), u.clone()],
            json!([
                {"role": "user", "content": "(earlier conversation left out)"},
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": "u"},
            ]),
        );
    }

    #[test]
    fn late_results_come_first_in_their_turn() {
        let call = ToolCall::new("c", "add", Json::from(json!({})));
        let asked = Message::new(Role::Assistant, vec![Part::ToolCall(call.clone())]);
        let late = Message::tool(ToolResult::new(&call, Json::from(json!(2))));
        check(
            vec![Message::user("u"), asked, Message::user("hurry"), late],
            json!([
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "2"},
                    {"type": "text", "text": "hurry"},
                ]},
            ]),
        );
    }
}
