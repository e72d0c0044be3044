//! The exact form, round trips, and input that means harm.

use rekindle::message::{Message, Part, Reasoning, Reference, Role, ToolCall, ToolResult};
use rekindle::{ErrorKind, Json, MessageId, Result};
use serde_json::{Value, json};

use super::{from_ag_ui, to_ag_ui};

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

#[test]
fn messages_have_their_exact_form() {
    let mut messages = conversation();
    messages[2].id = Some(MessageId::new("m").unwrap());
    let calls = json!([
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1.50}"}},
        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{\"a\":"}}
    ]);
    let expected = json!([
        {"id": "message-0", "role": "system", "content": "be brief"},
        {"id": "message-1", "role": "user", "content": "add", "name": "ann"},
        {"id": "m-reasoning-1", "role": "reasoning", "content": "hm", "encryptedValue": "sig"},
        {"id": "m", "role": "assistant", "content": "one moment", "toolCalls": calls},
        {"id": "message-3", "role": "tool", "toolCallId": "c1", "content": "{\"sum\": 1.50}"},
        {"id": "message-4", "role": "tool", "toolCallId": "c2", "content": "not JSON", "error": "not JSON"},
        {"id": "message-5", "role": "assistant", "content": "1.5"}
    ]);
    assert_eq!(to_ag_ui(&messages), expected);
    let results: Vec<Part> = messages[3..5].iter().flat_map(|message| message.parts.clone()).collect();
    let theirs = to_ag_ui(&[Message::new(Role::Tool, results)]);
    assert_eq!((&theirs[0]["id"], &theirs[1]["id"]), (&json!("message-0"), &json!("message-0-2")));
}

#[test]
fn messages_come_back_with_ids() {
    let mut messages = conversation();
    messages.push(attachments());
    messages.push(Message::new(Role::Assistant, vec![Part::Reasoning(Reasoning::default())]));
    for (index, message) in messages.iter_mut().enumerate() {
        message.id = Some(MessageId::new(format!("m{index}")).unwrap());
    }
    let theirs = to_ag_ui(&messages);
    assert!(!theirs.to_string().contains("null"));
    messages.iter_mut().for_each(|message| message.parts.retain(|part| !matches!(part, Part::Unknown(..))));
    assert_eq!(from_ag_ui(&theirs).unwrap(), messages);
}

#[test]
fn reads_the_older_forms_and_what_is_no_message() {
    let theirs = json!([
        {"id": "1", "role": "developer", "content": "a"},
        {"id": "2", "role": "activity", "activityType": "plan", "content": {}},
        {"id": "3", "role": "reasoning", "content": "hm"},
        {"id": "4", "role": "user", "name": null, "content": [
            {"type": "binary", "mimeType": "image/png", "data": "AAAA"},
            {"type": "binary", "mimeType": "text/csv", "url": "https://a.example/b.csv"},
            {"type": "binary", "mimeType": "text/csv", "id": "x"},
            {"type": "audio", "source": {"type": "url", "value": "https://a.example/c", "mimeType": "audio/ogg"}}
        ]}
    ]);
    let ours = from_ag_ui(&theirs).unwrap();
    let ids: Vec<_> = ours.iter().map(|message| message.id.as_ref().unwrap().as_str()).collect();
    assert_eq!(ids, ["1", "3", "4"]);
    assert_eq!(ours[1].role, Role::Assistant);
    let again = to_ag_ui(&ours);
    let user = &again.as_array().unwrap().last().unwrap()["content"];
    let kinds: Vec<_> = user.as_array().unwrap().iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["image", "document", "binary", "audio"]);
}

#[test]
fn errors_name_the_place() {
    fn check(found: Result<Vec<Message>>, expected: &str) {
        let error = found.unwrap_err();
        assert_eq!((error.kind(), error.message()), (&ErrorKind::Invalid, expected));
    }
    check(from_ag_ui(&json!({})), "messages is not an array");
    check(from_ag_ui(&json!([{"role": "user", "content": ""}])), "messages[0] has no `id`");
    check(from_ag_ui(&json!([{"id": "", "role": "user", "content": ""}])), "messages[0].id is not a legal id");
    let call = json!([{"id": "a", "role": "assistant", "toolCalls": [{"id": 1, "function": {"name": "f"}}]}]);
    check(from_ag_ui(&call), "messages[0].toolCalls[0].id is not a string");
    let long = json!([{"id": "a", "role": "x".repeat(10_000)}]);
    assert!(from_ag_ui(&long).unwrap_err().message().len() < 100);
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
    let mut messages = conversation();
    messages.push(attachments());
    let (mut read, mut refused) = (0, 0);
    for damaged in damaged(&to_ag_ui(&messages)) {
        match from_ag_ui(&damaged) {
            Ok(messages) => {
                read += 1;
                for message in &messages {
                    assert_eq!(&Message::from_json(&message.to_json().unwrap()).unwrap(), message);
                }
                to_ag_ui(&messages);
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), &ErrorKind::Invalid, "{error}");
            }
        }
    }
    assert!(read > 20 && refused > 200, "{read} {refused}");
}
