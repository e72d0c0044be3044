//! An answer of the Messages API, put together from the events of a stream or read whole.

use std::collections::BTreeMap;

use rekindle::model::{Answer, Delta, ModelError, StopReason};
use serde_json::Value;

use super::block::Block;
use crate::http::{Assembly, in_stream, parsed};
use crate::price::{Price, Tokens};

/// An answer under way.
#[derive(Debug, Default)]
pub(super) struct Assembled {
    id: Option<String>,
    blocks: BTreeMap<u64, Block>,
    stop: Option<String>,
    usage: BTreeMap<&'static str, u64>,
    is_over: bool,
}

/// The counts of tokens; the first three are all input.
const COUNTS: [&str; 4] = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"];

impl Assembly for Assembled {
    fn event(&mut self, data: &str, pieces: &mut Vec<Delta>) -> Result<(), ModelError> {
        let mut event = parsed(data)?;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.begin(&event["message"]),
            "content_block_start" => {
                let block = Block::begin(event["content_block"].take());
                pieces.extend(block.piece());
                self.blocks.insert(index(&event), block);
            }
            "content_block_delta" => {
                let block = self.blocks.get_mut(&index(&event));
                pieces.extend(block.and_then(|block| block.take(&event["delta"])));
            }
            "message_delta" => {
                self.count(&event["usage"]);
                self.stop = event["delta"]["stop_reason"].as_str().map(str::to_owned).or(self.stop.take());
            }
            "message_stop" => self.is_over = true,
            "error" => return Err(in_stream(&event)),
            // `ping`, `content_block_stop` and what is not known yet.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &Value) -> Result<(), ModelError> {
        if body["type"] == "error" {
            return Err(in_stream(body));
        }
        let Some(blocks) = body["content"].as_array() else {
            return Err(ModelError::passing("the server answered with nothing"));
        };
        self.begin(body);
        self.blocks = (0..).zip(blocks.iter().cloned().map(Block::begin)).collect();
        self.stop = body["stop_reason"].as_str().map(str::to_owned);
        self.is_over = true;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_whole(&self) -> bool {
        self.stop.is_some()
    }
}

impl Assembled {
    pub(super) fn into_answer(self, price: Option<Price>) -> Answer {
        let count = |name: &str| self.usage.get(name).copied().unwrap_or_default();
        let [fresh, cached, cache_written, output] = COUNTS.map(count);
        let input = fresh.saturating_add(cached).saturating_add(cache_written);
        let tokens = Tokens { input, cached, cache_written, output, cost: None };
        let stop = stop_reason(self.stop.as_deref().unwrap_or_default());
        let parts = self.blocks.into_values().filter_map(Block::into_part).collect();
        Answer { parts, usage: tokens.usage(price), stop, response: self.id }
    }

    fn begin(&mut self, message: &Value) {
        self.id = message["id"].as_str().map(str::to_owned);
        self.count(&message["usage"]);
    }

    /// Counts are totals: the last one that is told holds.
    fn count(&mut self, usage: &Value) {
        let told = COUNTS.into_iter().filter_map(|name| Some((name, usage[name].as_u64()?)));
        self.usage.extend(told);
    }
}

fn index(event: &Value) -> u64 {
    event["index"].as_u64().unwrap_or_default()
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Filtered,
        _ => StopReason::End,
    }
}

#[cfg(test)]
mod tests {
    use rekindle::Json;
    use rekindle::core::record::Usage;
    use rekindle::message::{Part, Reasoning, ToolCall};
    use serde_json::json;

    use super::*;

    fn streamed(events: &[Value]) -> (Result<Assembled, ModelError>, Vec<Delta>) {
        let mut assembled = Assembled::default();
        let mut pieces = Vec::new();
        for event in events {
            if let Err(error) = assembled.event(&event.to_string(), &mut pieces) {
                return (Err(error), pieces);
            }
        }
        (Ok(assembled), pieces)
    }

    fn start(index: u64, block: Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    fn delta(index: u64, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn sample() -> Vec<Value> {
        let usage = json!({"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1});
        vec![
            json!({"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": usage}}),
            json!({"type": "ping"}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
            delta(0, json!({"type": "signature_delta", "signature": "sig"})),
            json!({"type": "content_block_stop", "index": 0}),
            start(1, json!({"type": "redacted_thinking", "data": "xyz"})),
            start(2, json!({"type": "text", "text": ""})),
            delta(2, json!({"type": "text_delta", "text": "he"})),
            delta(2, json!({"type": "text_delta", "text": "llo"})),
            start(3, json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}})),
            delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
            delta(3, json!({"type": "input_json_delta", "partial_json": "{\"a\""})),
            delta(3, json!({"type": "input_json_delta", "partial_json": ":1}"})),
            start(4, json!({"type": "tool_use", "id": "t2", "name": "g", "input": {}})),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
            json!({"type": "something_new"}),
            json!({"type": "message_stop"}),
        ]
    }

    fn parts() -> Vec<Part> {
        let redacted = json!({"type": "redacted_thinking", "data": "xyz"});
        vec![
            Part::Reasoning(Reasoning { text: "hm".into(), signature: Some("sig".into()) }),
            Part::Unknown("anthropic/redacted_thinking".into(), Json::from(redacted)),
            Part::Text("hello".into()),
            Part::ToolCall(ToolCall::from_text("t1", "f", r#"{"a":1}"#)),
            Part::ToolCall(ToolCall::from_text("t2", "g", "{}")),
        ]
    }

    #[test]
    fn a_stream_is_put_together() {
        let (assembled, pieces) = streamed(&sample());
        let assembled = assembled.unwrap();
        assert!(assembled.is_over() && assembled.is_whole());
        let text = |text: &str| Delta::Text(text.into());
        assert_eq!(pieces, [Delta::Reasoning("h".into()), Delta::Reasoning("m".into()), text("he"), text("llo")]);
        let price = Price::per_million(1.0, 2.0).cached_input(0.1).cache_write(2.0);
        let answer = assembled.into_answer(Some(price));
        assert_eq!(answer.parts, parts());
        assert_eq!(answer.usage, Usage { input_tokens: 115, output_tokens: 7, cost_micros: 10 + 10 + 10 + 14 });
        assert_eq!((answer.stop, answer.response.as_deref()), (StopReason::End, Some("msg_1")));
    }

    #[test]
    fn a_whole_answer_is_the_same() {
        let body = json!({
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "hello"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
            ],
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 3, "output_tokens": 4},
        });
        let mut assembled = Assembled::default();
        assembled.whole(&body).unwrap();
        let answer = assembled.into_answer(None);
        assert_eq!(answer.parts, parts());
        assert_eq!(answer.usage, Usage { input_tokens: 3, output_tokens: 4, cost_micros: 0 });
        assert_eq!((answer.stop, answer.response.as_deref()), (StopReason::Length, Some("msg_1")));
    }

    #[test]
    fn what_a_server_ran_itself_is_kept() {
        let events = [
            start(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
            delta(0, json!({"type": "input_json_delta", "partial_json": "{\"query\":\"x\"}"})),
            start(1, json!({"type": "text", "text": ""})),
            delta(9, json!({"type": "text_delta", "text": "to nowhere"})),
        ];
        let answer = streamed(&events).0.unwrap().into_answer(None);
        let used = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}});
        assert_eq!(answer.parts, [Part::Unknown("anthropic/server_tool_use".into(), Json::from(used))]);
    }

    #[test]
    fn errors_end_it() {
        let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        let (error, pieces) = streamed(&[sample()[..10].to_vec(), vec![overloaded.clone()]].concat());
        assert_eq!(error.unwrap_err(), ModelError::passing("the stream ended with an error: Overloaded"));
        assert_eq!(pieces.len(), 3);
        assert!(Assembled::default().whole(&overloaded).unwrap_err().retry);
        assert!(Assembled::default().whole(&json!({})).unwrap_err().retry);
        assert!(
            !streamed(&[json!({"type": "error", "error": {"type": "invalid_request_error"}})]).0.unwrap_err().retry
        );
    }

    #[test]
    fn the_reason_to_stop_is_told() {
        let check = |reason: &str, expected| {
            let event = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
            assert_eq!(streamed(&[event]).0.unwrap().into_answer(None).stop, expected, "{reason}");
        };
        check("end_turn", StopReason::End);
        check("pause_turn", StopReason::End);
        check("max_tokens", StopReason::Length);
        check("refusal", StopReason::Filtered);
    }

    /// Lines are the data of events.
    #[test]
    fn fuzzed_answers() {
        let stream = sample().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let whole = json!({"id": "m", "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 2}, "content": [
            {"type": "text", "text": "hi"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]});
        let words =
            ["\"index\":", "\"type\":\"content_block_start\"", "\"partial_json\":\"", "\"usage\":{", "\"error\":{}"];
        rekindle_fuzz::fuzz!("anthropic-answer").seeds([stream, whole.to_string()]).words(words).text(|text| {
            let (mut streamed, mut pieces) = (Assembled::default(), Vec::new());
            for line in text.lines() {
                if streamed.is_over() || streamed.event(line, &mut pieces).is_err() {
                    break;
                }
            }
            let _ = (streamed.is_whole(), streamed.into_answer(Some(Price::per_million(1.0, 2.0))));
            if let Ok(body) = serde_json::from_str(text) {
                let mut whole = Assembled::default();
                let _ = whole.whole(&body);
                let _ = whole.into_answer(None);
            }
        });
    }
}
