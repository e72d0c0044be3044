//! The shape of scripts, for their schema. What reads them is `rekindle_models::Script`; a test
//! holds the two together.

#![allow(dead_code, reason = "only the schema is used")]

use rekindle::schemars::{self, JsonSchema};
use serde_json::Value;

/// A script: what a scripted model answers, turn by turn.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename = "Script")]
pub(crate) struct ScriptForm {
    /// The name of the model.
    name: String,
    /// How the turns are counted.
    by: Option<By>,
    /// Whether the last turn answers for ever, instead of an error after it.
    repeat_last: Option<bool>,
    /// The answers.
    turns: Option<Vec<Turn>>,
}

/// How turns are counted.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case", rename = "ScriptBy")]
enum By {
    /// By the answers the request shows: right in every process.
    Messages,
    /// By the answers this process gave.
    Calls,
}

/// One answer.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename = "ScriptTurn")]
struct Turn {
    /// Makes it answer whenever this fits, out of the count.
    when: Option<When>,
    /// What the request must look like.
    expect: Option<Expect>,
    /// What the model thinks.
    reasoning: Option<String>,
    /// What the model says.
    text: Option<String>,
    /// What it says, in the pieces it is streamed in.
    chunks: Option<Vec<String>>,
    /// Streams `text` in pieces of that many characters.
    stream: Option<usize>,
    /// The tools it calls.
    calls: Option<Vec<Call>>,
    /// What it uses.
    usage: Option<TurnUsage>,
    /// The provider's id of the answer.
    response: Option<String>,
    /// Why it stops.
    stop: Option<Stop>,
    /// Milliseconds before it begins.
    delay_ms: Option<u64>,
    /// Milliseconds between two pieces.
    chunk_delay_ms: Option<u64>,
    /// How the first attempts fail.
    error: Option<Failure>,
}

/// A tool the model calls.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename = "ScriptCall")]
struct Call {
    /// The id of the call; without it one is made from the place of the call.
    id: Option<String>,
    /// The tool.
    name: String,
    /// The arguments.
    arguments: Option<Value>,
    /// The arguments as they are sent, JSON or not.
    arguments_text: Option<String>,
}

/// What an answer uses.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename = "ScriptUsage")]
struct TurnUsage {
    /// Tokens sent.
    input_tokens: Option<u64>,
    /// Tokens received.
    output_tokens: Option<u64>,
    /// Cost in millionths of the currency unit.
    cost_micros: Option<u64>,
}

/// Why an answer stops.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case", rename = "ScriptStop")]
enum Stop {
    /// It is done, or wants tools called.
    End,
    /// It reached the limit of tokens.
    Length,
    /// A filter stopped it.
    Filtered,
}

/// How the first attempts at a turn fail.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename = "ScriptFailure")]
struct Failure {
    /// What happened.
    message: String,
    /// Whether asking again may help; yes unless this says otherwise.
    retry: Option<bool>,
    /// How long the provider wants to be left alone, in milliseconds.
    retry_after_ms: Option<u64>,
    /// How many pieces are streamed first.
    after_chunks: Option<usize>,
    /// How many attempts fail; one unless this says otherwise.
    times: Option<u32>,
}

/// When a turn answers out of the count.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename = "ScriptWhen")]
struct When {
    /// The last message has this in its text or in the result of a tool.
    last_contains: String,
}

/// What a request must look like. What is left out is not looked at.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename = "ScriptExpect")]
struct Expect {
    /// The last message has this in its text or in the result of a tool.
    last_contains: Option<String>,
    /// What the author of the agent says has this in it.
    system_contains: Option<String>,
    /// The names of the tools, in any order.
    tools: Option<Vec<String>>,
    /// How many messages are sent.
    messages: Option<usize>,
    /// The provider's id of the last answer.
    previous: Option<String>,
    /// What was said before the answer was cut off.
    partial: Option<String>,
}
