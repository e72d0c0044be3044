//! Scripts built in code.

use std::time::Duration;

use rekindle::core::record::Usage;
use rekindle::model::{ModelError, StopReason};
use serde_json::Value;

use super::{By, Call, Expect, Failure, Script, Stop, Turn, TurnUsage, When};

impl Script {
    /// A script without turns.
    ///
    /// ```
    /// use rekindle_models::{Call, Script};
    /// use serde_json::json;
    ///
    /// let script = Script::new("demo")
    ///     .calls([Call::new("add", json!({"a": 1})), Call::raw("add", "{oh")])
    ///     .text("done");
    /// assert_eq!(script.turns.len(), 2);
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// One more turn.
    #[must_use]
    pub fn turn(mut self, turn: Turn) -> Self {
        self.turns.push(turn);
        self
    }

    /// One more turn, of text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.turn(Turn::text(text))
    }

    /// One more turn, a call.
    #[must_use]
    pub fn call(self, name: impl Into<String>, arguments: Value) -> Self {
        self.turn(Turn::call(name, arguments))
    }

    /// One more turn, several calls at once.
    #[must_use]
    pub fn calls(self, calls: impl IntoIterator<Item = Call>) -> Self {
        self.turn(Turn::calls(calls))
    }

    /// Counts turns in that way.
    #[must_use]
    pub fn by(mut self, by: By) -> Self {
        self.by = by;
        self
    }

    /// Lets the last turn answer for ever.
    #[must_use]
    pub fn repeating_last(mut self) -> Self {
        self.repeat_last = true;
        self
    }
}

impl Turn {
    /// An answer of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// An answer streamed in those pieces.
    pub fn chunks<T: Into<String>>(chunks: impl IntoIterator<Item = T>) -> Self {
        Self { chunks: chunks.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A call.
    pub fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self::calls([Call::new(name, arguments)])
    }

    /// Several calls at once.
    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Self {
        Self { calls: calls.into_iter().collect(), ..Self::default() }
    }

    /// No answer: one attempt fails, the next goes on with the next turn.
    pub fn error(error: ModelError) -> Self {
        Self::default().failing(error)
    }

    /// The same, with text.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// The same, after that thought.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// The same, with one more call.
    #[must_use]
    pub fn with_call(mut self, call: Call) -> Self {
        self.calls.push(call);
        self
    }

    /// The same, using that much.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage.into());
        self
    }

    /// The same, with the provider's id.
    #[must_use]
    pub fn with_response(mut self, response: impl Into<String>) -> Self {
        self.response = Some(response.into());
        self
    }

    /// The same, stopped for that reason.
    #[must_use]
    pub fn stopped(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// The same, its text streamed in pieces of `characters`.
    #[must_use]
    pub fn streamed(mut self, characters: usize) -> Self {
        self.stream = Some(characters);
        self
    }

    /// The same, after that time.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay_ms = millis(delay);
        self
    }

    /// The same, with that time between two pieces.
    #[must_use]
    pub fn with_chunk_delay(mut self, delay: Duration) -> Self {
        self.chunk_delay_ms = millis(delay);
        self
    }

    /// The same, but the first attempt fails.
    #[must_use]
    pub fn failing(mut self, error: ModelError) -> Self {
        self.error = Some(error.into());
        self
    }

    /// The same, but the first `times` attempts fail.
    #[must_use]
    pub fn failing_times(mut self, times: u32, error: ModelError) -> Self {
        self.error = Some(Failure { times, ..error.into() });
        self
    }

    /// The same, but the first attempt is cut off after `chunks` pieces.
    #[must_use]
    pub fn failing_after(mut self, chunks: usize, error: ModelError) -> Self {
        self.error = Some(Failure { after_chunks: chunks, ..error.into() });
        self
    }

    /// The same, answering out of the count whenever the last message contains `text`.
    #[must_use]
    pub fn when_last_contains(mut self, text: impl Into<String>) -> Self {
        self.when = Some(When { last_contains: text.into() });
        self
    }

    /// The same, failing for good if the request does not look like that.
    #[must_use]
    pub fn expecting(mut self, expect: Expect) -> Self {
        self.expect = Some(expect);
        self
    }
}

impl Call {
    /// A call with arguments that are JSON.
    pub fn new(name: impl Into<String>, arguments: Value) -> Self {
        Self { name: name.into(), arguments: Some(arguments), ..Self::default() }
    }

    /// A call with arguments as they are sent, JSON or not.
    pub fn raw(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { name: name.into(), arguments_text: Some(arguments.into()), ..Self::default() }
    }

    /// The same with an id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }
}

impl Expect {
    /// The last message contains `text`.
    pub fn last_contains(text: impl Into<String>) -> Self {
        Self { last_contains: Some(text.into()), ..Self::default() }
    }

    /// The same, and those are the tools.
    #[must_use]
    pub fn with_tools<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.tools = Some(tools.into_iter().map(Into::into).collect());
        self
    }

    /// The same, and so many messages are sent.
    #[must_use]
    pub fn with_messages(mut self, messages: usize) -> Self {
        self.messages = Some(messages);
        self
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self {
            message: error.message,
            retry: error.retry,
            retry_after_ms: error.retry_after.map(millis),
            after_chunks: 0,
            times: 1,
        }
    }
}

impl From<&Failure> for ModelError {
    fn from(failure: &Failure) -> Self {
        Self {
            message: failure.message.clone(),
            retry: failure.retry,
            retry_after: failure.retry_after_ms.map(Duration::from_millis),
        }
    }
}

impl From<Usage> for TurnUsage {
    fn from(usage: Usage) -> Self {
        Self { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens, cost_micros: usage.cost_micros }
    }
}

impl From<TurnUsage> for Usage {
    fn from(usage: TurnUsage) -> Self {
        Self { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens, cost_micros: usage.cost_micros }
    }
}

impl From<Stop> for StopReason {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::End => Self::End,
            Stop::Length => Self::Length,
            Stop::Filtered => Self::Filtered,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
