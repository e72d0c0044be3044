//! An answer, put together from the chunks of a stream or read whole: the two differ in one name.

use std::collections::HashSet;

use rekindle::message::{Part, Reasoning};
use rekindle::model::{Answer, Delta, ModelError, StopReason};
use serde_json::Value;

use super::calls::Calls;
use crate::http::{Assembly, in_stream, parsed};
use crate::price::{Price, Tokens};

/// The last event of a stream.
const DONE: &str = "[DONE]";

/// An answer under way.
#[derive(Debug, Default)]
pub(super) struct Assembled {
    id: Option<String>,
    reasoning: String,
    text: String,
    calls: Calls,
    finish: Option<String>,
    tokens: Tokens,
    /// Anything of an answer was there, be it empty.
    has_choice: bool,
    is_over: bool,
}

impl Assembly for Assembled {
    fn event(&mut self, data: &str, pieces: &mut Vec<Delta>) -> Result<(), ModelError> {
        if data.trim_start().starts_with(DONE) {
            self.is_over = true;
            return Ok(());
        }
        self.chunk(&parsed(data)?, "delta", pieces)
    }

    fn whole(&mut self, body: &Value) -> Result<(), ModelError> {
        // It is not said piece by piece when all of it is there.
        self.chunk(body, "message", &mut Vec::new())
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }
}

impl Assembled {
    /// The answer; `seed` names calls that have no id, or one of `used`.
    pub(super) fn into_answer(
        self,
        seed: &str,
        used: HashSet<String>,
        price: Option<Price>,
    ) -> Result<Answer, ModelError> {
        if !self.has_choice {
            return Err(ModelError::passing("the server answered with nothing"));
        }
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            parts.push(Part::Reasoning(Reasoning { text: self.reasoning, signature: None }));
        }
        if !self.text.is_empty() {
            parts.push(Part::Text(self.text));
        }
        parts.extend(self.calls.into_parts(seed, used));
        let stop = stop_reason(self.finish.as_deref().unwrap_or_default());
        Ok(Answer { parts, usage: self.tokens.usage(price), stop, response: self.id })
    }

    fn chunk(&mut self, chunk: &Value, said_in: &str, pieces: &mut Vec<Delta>) -> Result<(), ModelError> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(in_stream(chunk));
        }
        if let Some(id) = chunk["id"].as_str().filter(|id| !id.is_empty()) {
            self.id.get_or_insert_with(|| id.to_owned());
        }
        if chunk["usage"].is_object() {
            self.tokens = tokens(&chunk["usage"]);
        }
        // Only one answer was asked for.
        if let Some(choice) = chunk["choices"].get(0) {
            self.has_choice = true;
            self.said(&choice[said_in], pieces);
            if let Some(finish) = choice["finish_reason"].as_str() {
                self.finish = Some(finish.to_owned());
            }
        }
        Ok(())
    }

    fn said(&mut self, said: &Value, pieces: &mut Vec<Delta>) {
        // Some servers send both names with the same text.
        let reasoning = ["reasoning_content", "reasoning"].into_iter().find_map(|field| some_text(&said[field]));
        if let Some(text) = reasoning {
            self.reasoning.push_str(text);
            pieces.push(Delta::Reasoning(text.to_owned()));
        }
        let parts = said["content"].as_array().into_iter().flatten().map(|part| &part["text"]);
        for text in [&said["content"]].into_iter().chain(parts).chain([&said["refusal"]]).filter_map(some_text) {
            self.text.push_str(text);
            pieces.push(Delta::Text(text.to_owned()));
        }
        said["tool_calls"].as_array().into_iter().flatten().for_each(|call| self.calls.take(call));
    }
}

fn some_text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn tokens(usage: &Value) -> Tokens {
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let details = &usage["prompt_tokens_details"];
    Tokens {
        input: count(&usage["prompt_tokens"]),
        // The second is DeepSeek's name for it.
        cached: count(&details["cached_tokens"]).max(count(&usage["prompt_cache_hit_tokens"])),
        cache_written: count(&details["cache_write_tokens"]),
        output: count(&usage["completion_tokens"]),
        cost: usage["cost"].as_f64(),
    }
}

fn stop_reason(finish: &str) -> StopReason {
    match finish {
        "length" | "max_tokens" => StopReason::Length,
        "content_filter" => StopReason::Filtered,
        _ => StopReason::End,
    }
}

#[cfg(test)]
mod tests {
    use rekindle::core::record::Usage;
    use rekindle::message::ToolCall;
    use serde_json::json;

    use super::*;

    fn streamed(chunks: &[Value]) -> (Result<Answer, ModelError>, Vec<Delta>) {
        let mut assembled = Assembled::default();
        let mut pieces = Vec::new();
        for chunk in chunks {
            if let Err(error) = assembled.event(&chunk.to_string(), &mut pieces) {
                return (Err(error), pieces);
            }
        }
        (assembled.into_answer("seed", HashSet::new(), Some(Price::per_million(1.0, 2.0).cached_input(0.5))), pieces)
    }

    fn delta(delta: Value) -> Value {
        json!({"id": "r1", "choices": [{"index": 0, "delta": delta}]})
    }

    #[test]
    fn a_stream_and_a_whole_answer_are_the_same() {
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}});
        let chunks = [
            delta(json!({"role": "assistant", "content": "", "reasoning_content": "h"})),
            delta(json!({"reasoning_content": "m", "content": null})),
            delta(json!({"content": "he"})),
            delta(json!({"content": "llo"})),
            delta(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]})),
            json!({"id": "r1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"id": "r1", "choices": [], "usage": usage}),
        ];
        let (answer, pieces) = streamed(&chunks);
        let answer = answer.unwrap();
        let text = |text: &str| Delta::Text(text.into());
        assert_eq!(pieces, [Delta::Reasoning("h".into()), Delta::Reasoning("m".into()), text("he"), text("llo")]);
        let call = ToolCall::from_text("c", "f", "{}");
        let thought = Reasoning { text: "hm".into(), signature: None };
        assert_eq!(answer.parts, [Part::Reasoning(thought), Part::Text("hello".into()), Part::ToolCall(call)]);
        assert_eq!(answer.usage, Usage { input_tokens: 10, output_tokens: 4, cost_micros: 4 + 3 + 8 });
        assert_eq!((answer.stop, answer.response.as_deref()), (StopReason::End, Some("r1")));

        let message = json!({"content": "hello", "reasoning": "hm", "tool_calls": [{"id": "c", "type": "function",
            "function": {"name": "f", "arguments": "{}"}}]});
        let body =
            json!({"id": "r1", "choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage});
        let mut whole = Assembled::default();
        whole.whole(&body).unwrap();
        let whole =
            whole.into_answer("seed", HashSet::new(), Some(Price::per_million(1.0, 2.0).cached_input(0.5))).unwrap();
        assert_eq!((whole.parts, whole.usage, whole.response), (answer.parts, answer.usage, answer.response));
    }

    #[test]
    fn the_reason_to_stop_is_told() {
        let check = |finish: &str, expected| {
            let chunk = json!({"choices": [{"delta": {}, "finish_reason": finish}]});
            assert_eq!(streamed(&[chunk]).0.unwrap().stop, expected, "{finish}");
        };
        check("stop", StopReason::End);
        check("tool_calls", StopReason::End);
        check("length", StopReason::Length);
        check("content_filter", StopReason::Filtered);
    }

    #[test]
    fn refusals_and_parts_are_text() {
        let said = |said: Value| streamed(&[delta(said)]).0.unwrap().parts;
        assert_eq!(said(json!({"refusal": "no"})), [Part::Text("no".into())]);
        let parts =
            json!({"content": [{"type": "text", "text": "a"}, {"type": "thinking"}, {"type": "text", "text": "b"}]});
        assert_eq!(said(parts), [Part::Text("ab".into())]);
        let both = json!({"reasoning_content": "x", "reasoning": "x"});
        assert_eq!(said(both), [Part::Reasoning(Reasoning { text: "x".into(), signature: None })]);
    }

    #[test]
    fn errors_within_and_answers_without_anything_are_errors() {
        let (error, pieces) =
            streamed(&[delta(json!({"content": "a"})), json!({"error": {"message": "busy", "code": 503}})]);
        let error = error.unwrap_err();
        assert_eq!(error, ModelError::passing("the stream ended with an error: busy"));
        assert_eq!(pieces, [Delta::Text("a".into())]);
        assert!(streamed(&[json!({"choices": []})]).0.unwrap_err().retry);
        assert!(Assembled::default().event("{\"choices\": [", &mut Vec::new()).unwrap_err().retry);
    }

    #[test]
    fn the_end_is_known() {
        let mut assembled = Assembled::default();
        assembled.event(&delta(json!({"content": "a"})).to_string(), &mut Vec::new()).unwrap();
        assert!(!assembled.is_whole() && !assembled.is_over());
        assembled.event("[DONE]", &mut Vec::new()).unwrap();
        assert!(!assembled.is_whole() && assembled.is_over());
    }

    /// Lines are the data of events.
    #[test]
    fn fuzzed_answers() {
        let chunks = [
            json!({"id": "r1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "he", "reasoning_content": "h"}}]}),
            delta(json!({"content": "llo", "refusal": "no"})),
            delta(json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{\"a\""}}]})),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]})),
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}}),
        ];
        let stream = chunks.iter().map(ToString::to_string).chain(["[DONE]".to_owned()]).collect::<Vec<_>>().join("\n");
        let whole = json!({"id": "r", "choices": [{"message": {"content": [{"type": "text", "text": "hi"}], "tool_calls": [
            {"id": "c", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}});
        let words = ["\"index\":", "\"tool_calls\":[", "\"id\":\"c1\"", "\"usage\":{", "\"error\":{\"message\":\"x\"}"];
        rekindle_fuzz::fuzz!("openai-answer").seeds([stream, whole.to_string()]).words(words).text(|text| {
            let price = Some(Price::per_million(1.0, 2.0).cached_input(0.5));
            let (mut streamed, mut pieces) = (Assembled::default(), Vec::new());
            for line in text.lines() {
                if streamed.is_over() || streamed.event(line, &mut pieces).is_err() {
                    break;
                }
            }
            let _ = (streamed.is_whole(), streamed.into_answer("seed", HashSet::from(["c1".to_owned()]), price));
            if let Ok(body) = serde_json::from_str(text) {
                let mut whole = Assembled::default();
                let _ = whole.whole(&body);
                let _ = whole.into_answer("seed", HashSet::new(), price);
            }
        });
    }
}
