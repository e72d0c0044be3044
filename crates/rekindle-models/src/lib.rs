//! Models for Rekindle agents:
//!
//! * [`OpenAiModel`]: chat completions as OpenAI, Azure OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and
//!   many more speak them.
//! * [`AnthropicModel`]: the Messages API of Anthropic.
//! * [`ScriptedModel`]: answers from a script, for tests, demos and replays. It needs no network and
//!   no key.
//!
//! ```
//! use rekindle::{Agent, Secret};
//! use rekindle_models::{ApiKey, OpenAiModel};
//!
//! let key = ApiKey::new(Secret::new("sk-123")).labelled("@env:OPENAI_API_KEY");
//! let model = OpenAiModel::builder("gpt-5").api_key(key).max_output_tokens(4_000).build()?;
//! let agent = Agent::builder("guide", model).build()?;
//! # Ok::<(), rekindle::Error>(())
//! ```
//!
//! # Failures
//! A model asks once and says whether asking again may help; the engine does the asking.
//!
//! | what happens | again? |
//! | --- | --- |
//! | no connection, silence, a stream that is cut, malformed JSON | yes |
//! | status 408, 409, 429, 500, 502–504, 529; an error within a stream that is not the request's fault | yes, after `Retry-After` if given |
//! | 400, 401, 403, 404 and other refusals, money used up, a redirect, a web page, an answer that is too large | no |
//!
//! An error names the server and the label of the key. What the provider says itself is shortened, and
//! the key is taken out of it. Redirects are never followed, and neither the environment nor a proxy
//! named there is looked at.
//!
//! # Scripted answers
//! ```
//! use rekindle_models::{Script, ScriptedModel, Turn};
//! use serde_json::json;
//!
//! let script = Script::new("demo-model")
//!     .turn(Turn::call("weather", json!({"city": "Oslo"})))
//!     .turn(Turn::text("it is cold in Oslo").streamed(4));
//! let model = ScriptedModel::new(script);
//! let handle = model.clone(); // goes on seeing what is asked after `model` went into an agent
//! assert!(handle.requests().is_empty());
//! ```
//!
//! # Scripts as files
//! A script is JSON; its types are plain serde, so another self-describing format can be read into
//! them too. A field that does not exist is an error. Everything but `name` may be left out.
//!
//! ```
//! let model = rekindle_models::ScriptedModel::from_json(r#"{
//!   "name": "demo-model",
//!   "by": "messages",
//!   "repeat_last": false,
//!   "turns": [
//!     {
//!       "when": { "last_contains": "ping" },
//!       "text": "pong"
//!     },
//!     {
//!       "expect": { "last_contains": "Oslo", "tools": ["weather"], "messages": 1 },
//!       "reasoning": "I must look that up",
//!       "text": "one moment",
//!       "calls": [
//!         { "name": "weather", "arguments": { "city": "Oslo" } },
//!         { "id": "mine", "name": "weather", "arguments_text": "{\"city\": \"Ber" }
//!       ],
//!       "usage": { "input_tokens": 120, "output_tokens": 30, "cost_micros": 450 },
//!       "response": "resp_a"
//!     },
//!     { "error": { "message": "overloaded", "retry": true, "retry_after_ms": 50, "times": 2 } },
//!     {
//!       "text": "it is cold in Oslo",
//!       "stream": 5,
//!       "delay_ms": 10,
//!       "chunk_delay_ms": 1,
//!       "error": { "message": "the stream was cut", "after_chunks": 2 },
//!       "stop": "end"
//!     },
//!     { "chunks": ["good", "bye"], "stop": "length" }
//!   ]
//! }"#)?;
//! # Ok::<(), rekindle::Error>(())
//! ```
//!
//! | field of a turn | what it does |
//! | --- | --- |
//! | `text`, `reasoning`, `calls` | the answer; a turn with none of them and no `error` answers nothing at all |
//! | `calls[].arguments`, `arguments_text` | any JSON, or text as the provider sent it, which may not be JSON; without both `{}` |
//! | `calls[].id` | without it `call_<answer>_<n>`, both from 1 |
//! | `chunks`, or `stream` | streams those pieces, or `text` in pieces of that many characters; without both nothing is streamed |
//! | `delay_ms`, `chunk_delay_ms` | waits before the answer (or the failure), and between two pieces |
//! | `usage` | without it estimated: a token for four bytes |
//! | `response` | the provider's id of the answer; without it none, or one of its own if the model keeps history |
//! | `stop` | `end`, `length` or `filtered` |
//! | `error` | the first `times` (1) attempts fail, see below |
//! | `when` | the turn is not counted but answers whenever the last message contains that text |
//! | `expect` | what the request must look like; if it does not, the model fails for good and says how it differs |
//!
//! # Which turn answers
//! It depends on the request alone, so a new process goes on where a dead one was:
//!
//! 1. The first turn with a `when` that fits the last message of the request.
//! 2. Else the counted turns (those without `when`), one after the other. With `"by": "messages"`, as
//!    many of them were used up as the request shows answers of the model, not counting those that
//!    a `when` gave. With `"by": "calls"`, as many as this process gave: for requests that do not
//!    show the whole conversation (a reduced history) in tests that do not crash, or that say
//!    where to go on with [`ScriptedModel::at`].
//! 3. A model that keeps history ([`ModelCapabilities`](rekindle::model::ModelCapabilities)) is sent
//!    the id of its last answer; with `"by": "messages"` it goes on after the turn with that id.
//! 4. After the last turn the model fails for good, or repeats that turn for ever with
//!    `"repeat_last": true`.
//!
//! # Failures
//! They follow the request's `attempt`. The first `times` attempts at a turn with an `error` fail;
//! the attempt after them gets the turn's answer. A turn with an `error` and no answer is only in the
//! way: the attempt after its failures goes on with the next turn, and it takes no place in the
//! count. `retry` (true if left out) says whether asking again may help. `after_chunks` streams so
//! many pieces first: a stream that is cut.

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

mod anthropic;
mod arrange;
mod files;
mod http;
mod key;
mod openai;
mod price;
mod request;
mod script;
mod scripted;

pub use anthropic::{AnthropicBuilder, AnthropicModel};
pub use key::ApiKey;
pub use openai::{OpenAiBuilder, OpenAiModel};
pub use price::Price;
pub use script::{By, Call, Expect, Failure, Script, Stop, Turn, TurnUsage, When};
pub use scripted::{Asked, ScriptedModel};
