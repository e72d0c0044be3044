//! All shapes: exact forms, round trips, and input that means harm.

use rekindle_core::{ErrorKind, Json, Result};
use serde_json::{Value, json};

use super::*;
use crate::message::{Message, Reasoning, Reference, Role, ToolResult};

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall::from_text(id, "add", arguments)
}

fn reference(uri: &str, media_type: Option<&str>) -> Reference {
    Reference { uri: uri.into(), media_type: media_type.map(Into::into) }
}

/// Two calls, one of them malformed, and their results.
fn conversation() -> Vec<Message> {
    let (good, bad) = (call("c1", r#"{"a": 1.50}"#), call("c2", r#"{"a":"#));
    let thought = Reasoning { text: "hm".into(), signature: Some("sig".into()) };
    vec![
        Message::system("be brief"),
        Message { author: Some("ann".into()), ..Message::user("add") },
        Message::new(
            Role::Assistant,
            vec![
                Part::Reasoning(thought),
                Part::Text("one moment".into()),
                Part::ToolCall(good.clone()),
                Part::ToolCall(bad.clone()),
            ],
        ),
        Message::tool(ToolResult::new(&good, Json::parse(r#"{"sum": 1.50}"#).unwrap())),
        Message::tool(ToolResult::failed(&bad, "not JSON")),
        Message::assistant("1.5"),
    ]
}

fn attachments() -> Message {
    let parts = vec![
        Part::Text("look".into()),
        Part::Image(reference("https://a.example/b.png", None)),
        Part::Image(reference("data:image/png;base64,AAAA", Some("image/png"))),
        Part::File(reference("data:application/pdf;base64,BBBB", Some("application/pdf"))),
        Part::File(reference("file-7", None)),
        Part::Unknown("hologram".into(), Json::from("x")),
    ];
    Message::new(Role::User, parts)
}

/// Applies `change` to every part.
fn map_parts(messages: Vec<Message>, change: impl Fn(Part) -> Option<Part>) -> Vec<Message> {
    let map = |message: Message| Message { parts: message.parts.into_iter().filter_map(&change).collect(), ..message };
    messages.into_iter().map(map).collect()
}

fn without_author(messages: Vec<Message>) -> Vec<Message> {
    messages.into_iter().map(|message| Message { author: None, ..message }).collect()
}

#[test]
fn openai_has_its_exact_form() {
    let theirs = to_openai(&conversation());
    let calls = json!([
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1.50}"}},
        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{\"a\":"}}
    ]);
    let expected = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "add", "name": "ann"},
        {"role": "assistant", "content": "one moment", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "{\"sum\": 1.50}"},
        {"role": "tool", "tool_call_id": "c2", "content": "not JSON"},
        {"role": "assistant", "content": "1.5"}
    ]);
    assert_eq!(theirs, expected);
    let silent = Message::new(Role::Assistant, vec![Part::ToolCall(call("c", "{}"))]);
    assert_eq!(to_openai(&[silent])[0]["content"], Value::Null);
}

#[test]
fn openai_comes_back_without_thoughts_and_failures() {
    let expected = map_parts(conversation(), |part| match part {
        Part::Reasoning(_) => None,
        Part::ToolResult(result) => Some(Part::ToolResult(ToolResult { error: false, ..result })),
        other => Some(other),
    });
    let theirs = to_openai(&conversation());
    assert_eq!(from_openai(&theirs).unwrap(), expected);
    assert_eq!(to_openai(&from_openai(&theirs).unwrap()), theirs);
}

#[test]
fn openai_takes_attachments_and_keeps_what_is_unknown() {
    let theirs = to_openai(&[attachments()]);
    let expected = json!([
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,BBBB"}},
        {"type": "file", "file": {"file_id": "file-7"}}
    ]);
    assert_eq!(theirs[0]["content"], expected);
    let audio = json!([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA"}}]}]);
    let ours = from_openai(&audio).unwrap();
    assert_eq!(to_openai(&ours), audio);
    assert_eq!(to_anthropic(&ours), json!({"messages": []}));
    let read = json!([
        {"role": "developer", "content": "a"},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "refusal": "no", "tool_calls": null},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "4"}]}
    ]);
    let ours = from_openai(&read).unwrap();
    assert_eq!((ours[0].role, ours[1].text().as_str()), (Role::System, "no"));
    assert_eq!(ours[2].results().next().unwrap().content, Json::from("4"));
}

#[test]
fn names_that_openai_refuses_are_left_out() {
    let named =
        |name: &str| to_openai(&[Message { author: Some(name.into()), ..Message::user("u") }])[0]["name"].clone();
    assert_eq!(named("ann-1"), "ann-1");
    assert_eq!(named("Ann Smith"), Value::Null);
    assert_eq!(named(&"a".repeat(65)), Value::Null);
}

#[test]
fn anthropic_has_its_exact_form() {
    let expected = json!({"system": "be brief", "messages": [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "one moment"},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1.5}},
            {"type": "tool_use", "id": "c2", "name": "add", "input": {"arguments": "{\"a\":"}}
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "{\"sum\": 1.50}"},
            {"type": "tool_result", "tool_use_id": "c2", "content": "not JSON", "is_error": true}
        ]},
        {"role": "assistant", "content": "1.5"}
    ]});
    assert_eq!(to_anthropic(&conversation()), expected);
    let two = [Message::system("a"), Message::user(" "), Message::system("b"), Message::assistant("")];
    let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(to_anthropic(&two), json!({"system": blocks, "messages": []}));
}

#[test]
fn anthropic_comes_back() {
    let expected = map_parts(without_author(conversation()), |part| match part {
        Part::ToolCall(call) if call.malformed.is_some() => {
            let arguments = Json::from(json!({"arguments": "{\"a\":"}));
            Some(Part::ToolCall(ToolCall { arguments, malformed: None, ..call }))
        }
        Part::ToolCall(call) => Some(Part::ToolCall(ToolCall { arguments: Json::from(json!({"a": 1.5})), ..call })),
        other => Some(other),
    });
    let theirs = to_anthropic(&conversation());
    assert_eq!(from_anthropic(&theirs).unwrap(), expected);
    assert_eq!(to_anthropic(&from_anthropic(&theirs).unwrap()), theirs);
}

#[test]
fn anthropic_takes_attachments_and_keeps_what_is_unknown() {
    let theirs = to_anthropic(&[attachments()]);
    let expected = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}},
        {"type": "document", "source": {"type": "file", "file_id": "file-7"}}
    ]);
    assert_eq!(theirs["messages"][0]["content"], expected);
    let mut without_unknown = attachments();
    without_unknown.parts.pop();
    assert_eq!(from_anthropic(&theirs).unwrap(), [without_unknown]);
    let odd = json!({"messages": [
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "AA"}, {"type": "text", "text": "a"}]},
        {"role": "user", "content": [
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
            {"type": "text", "text": "b"}
        ]}
    ]});
    assert_eq!(to_anthropic(&from_anthropic(&odd).unwrap()), odd);
}

#[test]
fn anthropic_results_come_ahead_of_what_else_is_said() {
    let theirs = json!({"messages": [
        {"id": "msg_1", "role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "add", "input": {}}]},
        {"role": "user", "content": [
            {"type": "text", "text": "and"},
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "[1]"}]},
            {"type": "tool_result", "tool_use_id": "d", "content": [{"type": "image", "source": {}}]},
            {"type": "tool_result", "tool_use_id": "e"}
        ]}
    ]});
    let ours = from_anthropic(&theirs).unwrap();
    assert_eq!(ours[0].response.as_deref(), Some("msg_1"));
    let results: Vec<_> = ours.iter().flat_map(Message::results).collect();
    assert_eq!(results.iter().map(|result| result.name.as_str()).collect::<Vec<_>>(), ["add", "", ""]);
    let contents: Vec<_> = results.iter().map(|result| result.content.as_str()).collect();
    assert_eq!(contents, ["[1]", r#"[{"source":{},"type":"image"}]"#, r#""""#]);
    assert_eq!((ours[4].role, ours[4].text().as_str()), (Role::User, "and"));
}

#[test]
fn arguments_too_deep_for_a_tree_go_as_text() {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let message = Message::new(Role::Assistant, vec![Part::ToolCall(call("c", &deep))]);
    let input = &to_anthropic(std::slice::from_ref(&message))["messages"][0]["content"][0]["input"];
    assert_eq!(input["arguments"], deep);
    assert_eq!(to_openai(&[message])[0]["tool_calls"][0]["function"]["arguments"], deep);
}

#[test]
fn errors_name_the_place() {
    fn check(found: Result<Vec<Message>>, expected: &str) {
        let error = found.unwrap_err();
        assert_eq!((error.kind(), error.message()), (&ErrorKind::Invalid, expected));
    }
    check(from_openai(&json!({})), "messages is not an array");
    check(from_openai(&json!([{"role": "user"}, 7])), "messages[1] is not an object");
    check(from_openai(&json!([{"role": "robot"}])), "messages[0].role is not a role: \"robot\"");
    check(
        from_openai(&json!([{"role": "user", "content": [{"type": "text"}]}])),
        "messages[0].content[0] has no `text`",
    );
    check(
        from_openai(&json!([{"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "a"}}]}])),
        "messages[0].tool_calls[0].id is not a string",
    );
    check(from_anthropic(&json!([])), "the value is not an object");
    check(from_anthropic(&json!({"system": 1, "messages": []})), "system is not an array");
    check(from_anthropic(&json!({"messages": [{"role": "user"}]})), "messages[0] has no `content`");
    let long = json!([{"role": "x".repeat(10_000)}]);
    assert!(from_openai(&long).unwrap_err().message().len() < 100);
}

/// Every tree that differs from `value` in one place: something else there, or nothing.
fn damaged(value: &Value) -> Vec<Value> {
    let mut all = vec![Value::Null, json!(true), json!(-1), json!("x"), json!(""), json!([]), json!([[]]), json!({})];
    match value {
        Value::Array(items) => {
            for index in 0..items.len() {
                let with = |item| {
                    let mut items = items.clone();
                    items[index] = item;
                    Value::Array(items)
                };
                all.extend(damaged(&items[index]).into_iter().map(with));
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let mut without = fields.clone();
                without.remove(name);
                all.push(Value::Object(without));
                all.extend(damaged(field).into_iter().map(|field| {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), field);
                    Value::Object(fields)
                }));
            }
        }
        _ => {}
    }
    all
}

#[test]
fn damage_never_panics_and_never_makes_what_cannot_be_stored() {
    fn check(theirs: &Value, from: fn(&Value) -> Result<Vec<Message>>, to: fn(&[Message]) -> Value) {
        let (mut read, mut refused) = (0, 0);
        for damaged in damaged(theirs) {
            match from(&damaged) {
                Ok(messages) => {
                    read += 1;
                    for message in &messages {
                        assert_eq!(&Message::from_json(&message.to_json().unwrap()).unwrap(), message);
                    }
                    to(&messages);
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.kind(), &ErrorKind::Invalid, "{error}");
                }
            }
        }
        assert!(read > 20 && refused > 200, "{read} {refused}");
    }
    let mut messages = conversation();
    messages.push(attachments());
    check(&to_openai(&messages), from_openai, |messages| to_openai(messages));
    check(&to_anthropic(&messages), from_anthropic, |messages| to_anthropic(messages));
}
