//! Messages of AG-UI against mutated and arbitrary input; see `docs/fuzzing.md`.
//! Decoders that are private are fuzzed beside their code, in tests named `fuzzed_…`.
#![allow(clippy::unwrap_used)]

use rekindle::Message;
use rekindle_fuzz::fuzz;
use rekindle_server::ag_ui::{from_ag_ui, to_ag_ui};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

/// Everything that was read goes out again, and is read as the same from then on.
#[test]
fn ag_ui() {
    let seeds = [json!([
        {"id": "1", "role": "system", "content": "be brief"},
        {"id": "2", "role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image", "source": {"type": "url", "value": "https://h/a.png"}}]},
        {"id": "3", "role": "assistant", "content": "", "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"id": "4", "role": "tool", "toolCallId": "c", "content": "[1]", "error": "no"},
    ])];
    let words = [
        "\"role\":\"tool\"",
        "\"role\":\"assistant\"",
        "\"type\":\"text\"",
        "\"content\":null",
        "\"arguments\":\"{\"",
        "\"id\":\"c\"",
    ];
    let fuzz = fuzz!("messages-ag-ui").seeds(seeds.iter().map(ToString::to_string)).words(words);
    fuzz.memory(4 << 20, 1_000).text(|text| {
        let theirs: Value = serde_json::from_str(text).ok()?;
        let messages = from_ag_ui(&theirs).ok()?;
        for message in &messages {
            assert_eq!(Message::from_json(&message.to_json().unwrap()).unwrap(), *message);
        }
        let written = to_ag_ui(&messages);
        let again = from_ag_ui(&written).expect("what we write can be read");
        assert_eq!(to_ag_ui(&again), written);
        Some(())
    });
}
