//! Messages in our form and in those of others, and references to secrets.

use rekindle::message::convert::{from_anthropic, from_openai, to_anthropic, to_openai};
use rekindle::{Json, Message, Result, SecretRef};
use rekindle_fuzz::{Fuzz, fuzz};
use serde_json::{Value, json};

type From = fn(&Value) -> Result<Vec<Message>>;

/// Everything that was read goes out again, and is read as the same from then on.
fn check(fuzz: Fuzz, seeds: &[Value], read: From, write: fn(&[Message]) -> Value) {
    let words = [
        "\"role\":\"tool\"",
        "\"role\":\"assistant\"",
        "\"type\":\"text\"",
        "\"content\":null",
        "\"arguments\":\"{\"",
        "\"id\":\"c\"",
    ];
    fuzz.seeds(seeds.iter().map(ToString::to_string)).words(words).memory(4 << 20, 1_000).text(|text| {
        let theirs: Value = serde_json::from_str(text).ok()?;
        let messages = read(&theirs).ok()?;
        for message in &messages {
            assert_eq!(Message::from_json(&message.to_json().unwrap()).unwrap(), *message);
        }
        let written = write(&messages);
        let again = read(&written).expect("what we write can be read");
        assert_eq!(write(&again), written);
        Some(())
    });
}

#[test]
fn openai() {
    let seeds = [json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "name": "ada", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "[1]"},
    ])];
    check(fuzz!("messages-openai"), &seeds, from_openai, |messages| to_openai(messages));
}

#[test]
fn anthropic() {
    let seeds = [json!({"system": "be brief", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": "s"}, {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x", "is_error": true}]},
    ]})];
    check(fuzz!("messages-anthropic"), &seeds, from_anthropic, |messages| to_anthropic(messages));
}

#[test]
fn stored() {
    let messages = [Message::user("hi"), Message::assistant("x"), Message::system("y")];
    let seeds = messages.iter().map(|message| message.to_json().unwrap().as_str().to_owned()).collect::<Vec<_>>();
    fuzz!("message").seeds(seeds).words(["\"parts\":[", "{\"text\":\"x\"}", "{\"call\":{", "{\"new\":1}"]).text(
        |text| {
            let message = Message::from_json(&Json::parse(text)?)?;
            assert_eq!(Message::from_json(&message.to_json()?)?, message);
            let _ = (message.text(), message.calls().count(), message.results().count());
            Ok::<(), rekindle::Error>(())
        },
    );
}

/// A reference that is refused is not repeated: it may be the secret itself.
#[test]
fn secrets() {
    fuzz!("secret-reference").seeds(["@env:KEY", "@file:/run/key", "@keychain:a/b"]).text(|text| {
        match text.parse::<SecretRef>() {
            Ok(reference) => {
                assert_eq!(reference.as_str(), text);
                let _ = (reference.scheme(), reference.rest());
                true
            }
            Err(_) => false,
        }
    });
}
