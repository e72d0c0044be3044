//! The body of a chat completion request.

use rekindle::message::convert::to_openai;
use rekindle::message::{Message, Part};
use rekindle::model::ModelError;
use rekindle::tool::ToolSpec;
use serde_json::{Map, Value, json};

use crate::request::{merge, schema};

/// What stands in every body.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) temperature: Option<f64>,
    pub(super) limit: Option<Limit>,
    pub(super) reasoning_effort: Option<String>,
    /// Where earlier reasoning goes, if it is sent back.
    pub(super) reasoning_field: Option<String>,
    pub(super) extra: Map<String, Value>,
}

/// The most tokens of an answer, and what servers call it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) field: &'static str,
    pub(super) tokens: u32,
}

impl Body {
    /// The body that asks for an answer to `messages`.
    pub(super) fn of(&self, messages: &[Message], tools: &[ToolSpec]) -> Result<Value, ModelError> {
        let mut body = Map::new();
        let mut set = |field: &str, value: Option<Value>| value.map(|value| body.insert(field.to_owned(), value));
        set("model", Some(self.model.as_str().into()));
        set("messages", Some(self.messages(messages)));
        set("tools", self.tools(tools)?);
        set("temperature", self.temperature.map(Value::from));
        set("reasoning_effort", self.reasoning_effort.as_deref().map(Value::from));
        set("stream", self.stream.then_some(Value::Bool(true)));
        set("stream_options", self.stream.then(|| json!({"include_usage": true})));
        if let Some(limit) = self.limit {
            set(limit.field, Some(limit.tokens.into()));
        }
        Ok(merge(body, &self.extra))
    }

    fn messages(&self, messages: &[Message]) -> Value {
        let Some(field) = &self.reasoning_field else {
            return to_openai(messages);
        };
        let mut all = Vec::new();
        for message in messages {
            let Value::Array(mut theirs) = to_openai([message]) else { continue };
            let thoughts: String = message.parts.iter().filter_map(thought).collect();
            if let [only] = theirs.as_mut_slice()
                && !thoughts.is_empty()
            {
                only[field] = thoughts.into();
            }
            all.append(&mut theirs);
        }
        Value::Array(all)
    }

    fn tools(&self, tools: &[ToolSpec]) -> Result<Option<Value>, ModelError> {
        let tool = |tool: &ToolSpec| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": schema(tool)?});
            Ok(json!({"type": "function", "function": function}))
        };
        let all = tools.iter().map(tool).collect::<Result<Vec<_>, ModelError>>()?;
        // An empty list is refused by some.
        Ok((!all.is_empty()).then_some(Value::Array(all)))
    }
}

fn thought(part: &Part) -> Option<&str> {
    match part {
        Part::Reasoning(reasoning) => Some(&reasoning.text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rekindle::Json;
    use rekindle::message::{Reasoning, Role, ToolCall, ToolResult};

    use super::*;

    fn conversation() -> Vec<Message> {
        let call = ToolCall::new("c1", "add", Json::from(json!({"a": 1})));
        let thought = Part::Reasoning(Reasoning { text: "hm".into(), signature: None });
        vec![
            Message::system("be brief"),
            Message::user("1 and 1?"),
            Message::new(Role::Assistant, vec![thought, Part::ToolCall(call.clone())]),
            Message::tool(ToolResult::new(&call, Json::from(json!({"sum": 2})))),
        ]
    }

    fn tool() -> ToolSpec {
        let parameters = Json::from(json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
        ToolSpec { name: "add".into(), description: "Adds.".into(), parameters, version: None }
    }

    #[test]
    fn the_body_is_as_documented() {
        let limit = Some(Limit { field: "max_completion_tokens", tokens: 99 });
        let extra = json!({"seed": 7, "stream_options": null}).as_object().cloned().unwrap();
        let body = Body {
            model: "gpt-5".into(),
            stream: true,
            temperature: Some(0.5),
            limit,
            reasoning_effort: Some("low".into()),
            reasoning_field: None,
            extra,
        };
        let golden = json!({
            "model": "gpt-5",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "1 and 1?"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "{\"sum\":2}"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "add",
                "description": "Adds.",
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
            }}],
            "temperature": 0.5,
            "max_completion_tokens": 99,
            "reasoning_effort": "low",
            "stream": true,
            "seed": 7,
        });
        assert_eq!(body.of(&conversation(), &[tool()]).unwrap(), golden);
    }

    #[test]
    fn what_is_not_set_is_not_sent() {
        let body = Body { model: "m".into(), ..Body::default() };
        let golden = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        assert_eq!(body.of(&[Message::user("hi")], &[]).unwrap(), golden);
        let streaming = Body { stream: true, ..body }.of(&[], &[]).unwrap();
        assert_eq!(streaming["stream_options"], json!({"include_usage": true}));
    }

    #[test]
    fn reasoning_goes_back_where_it_is_wanted() {
        let body = Body { model: "m".into(), reasoning_field: Some("reasoning_content".into()), ..Body::default() };
        let sent = body.of(&conversation(), &[]).unwrap();
        let plain = Body { model: "m".into(), ..Body::default() }.of(&conversation(), &[]).unwrap();
        assert_eq!(sent["messages"][2]["reasoning_content"], "hm");
        for other in [0, 1, 3] {
            assert_eq!(sent["messages"][other], plain["messages"][other]);
        }
    }
}
