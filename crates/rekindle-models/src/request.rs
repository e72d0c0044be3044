//! What both shapes of requests share.

use rekindle::message::{Message, Part, Role};
use rekindle::model::{ModelError, ModelRequest};
use serde_json::{Map, Value};

use crate::arrange::arranged;
use crate::files::Files;

/// The messages of a request with what the author of the agent says ahead, ready to be converted.
pub(crate) async fn messages(request: &ModelRequest, files: &Files) -> Result<Vec<Message>, ModelError> {
    let unreadable = |error| ModelError::fatal(format!("a message of the request cannot be read: {error}"));
    let view = request.view.messages().collect::<rekindle::Result<Vec<_>>>().map_err(unreadable)?;
    let system = request.system.as_deref().map(Message::system);
    let mut messages = with_one_system(arranged(system.into_iter().chain(view).collect()));
    files.inline(&mut messages).await?;
    Ok(messages)
}

/// Puts `extra` into `body`; `null` takes a field out.
pub(crate) fn merge(mut body: Map<String, Value>, extra: &Map<String, Value>) -> Value {
    for (field, value) in extra {
        match value {
            Value::Null => drop(body.remove(field)),
            value => drop(body.insert(field.clone(), value.clone())),
        }
    }
    Value::Object(body)
}

/// The JSON Schema of a tool as a tree.
pub(crate) fn schema(tool: &rekindle::tool::ToolSpec) -> Result<Value, ModelError> {
    let wrong = |error| ModelError::fatal(format!("the schema of the tool `{}` cannot be sent: {error}", tool.name));
    tool.parameters.to_value().map_err(wrong)
}

/// The system messages at the beginning as one: many servers take no more.
fn with_one_system(messages: Vec<Message>) -> Vec<Message> {
    let is_plain = |message: &&Message| {
        message.role == Role::System && message.parts.iter().all(|part| matches!(part, Part::Text(_)))
    };
    let count = messages.iter().take_while(is_plain).count();
    if count < 2 {
        return messages;
    }
    let texts: Vec<String> = messages[..count].iter().map(Message::text).collect();
    std::iter::once(Message::system(texts.join("\n\n"))).chain(messages.into_iter().skip(count)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_system_messages_become_one() {
        let [a, b, u] = [Message::system("a"), Message::system("b"), Message::user("u")];
        let one = with_one_system(vec![a.clone(), b.clone(), u.clone(), a.clone()]);
        assert_eq!(one, [Message::system("a\n\nb"), u.clone(), a.clone()]);
        assert_eq!(with_one_system(vec![a.clone(), u.clone()]), [a, u]);
        assert_eq!(with_one_system(Vec::new()), []);
    }

    #[test]
    fn extra_fields_replace_add_and_take_out() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let merged = merge(object(json!({"a": 1, "b": 2})), &object(json!({"a": null, "b": 3, "c": [4]})));
        assert_eq!(merged, json!({"b": 3, "c": [4]}));
    }
}
