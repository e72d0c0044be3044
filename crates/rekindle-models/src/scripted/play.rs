//! Plays a turn: waits, streams, answers or fails.

use std::time::Duration;

use rekindle::Json;
use rekindle::core::record::Usage;
use rekindle::message::{Part, Reasoning, ToolCall};
use rekindle::model::{Answer, Deltas, ModelError, ModelRequest};

use super::choose::{Choice, Place};
use super::request::difference;
use crate::script::{Call, Turn};

/// Bytes that count as one token where a script says nothing.
const BYTES_PER_TOKEN: usize = 4;

pub(crate) async fn play(
    choice: &Choice<'_>,
    request: &ModelRequest,
    place: Place,
    deltas: &Deltas,
) -> Result<Answer, ModelError> {
    if let Some(expect) = &choice.turn.expect
        && let Some(difference) = difference(expect, request)?
    {
        return Err(ModelError::fatal(format!("turn {}: {difference}", choice.number)));
    }
    let pieces = pieces_after(choice, request.partial.as_deref().unwrap_or_default())?;
    wait(choice.turn.delay_ms).await;
    stream(choice, request, &pieces, deltas).await;
    match choice.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(answer(choice.turn, request, place, pieces.concat())),
    }
}

/// What the turn says after what was said before it was cut off.
fn pieces_after(choice: &Choice<'_>, partial: &str) -> Result<Vec<String>, ModelError> {
    let pieces = choice.turn.pieces();
    if !pieces.concat().starts_with(partial) {
        let message = format!("turn {}: the partial answer {partial:?} is not how it begins", choice.number);
        return Err(ModelError::fatal(message));
    }
    let mut skip = partial.len();
    let rest = pieces.into_iter().filter_map(|piece| {
        let here = skip.min(piece.len());
        skip -= here;
        (here < piece.len()).then(|| piece[here..].to_owned())
    });
    Ok(rest.collect())
}

async fn stream(choice: &Choice<'_>, request: &ModelRequest, pieces: &[String], deltas: &Deltas) {
    let turn = choice.turn;
    let limit = choice.failure.map_or(usize::MAX, |failure| failure.after_chunks);
    if !turn.streams() || limit == 0 {
        return;
    }
    if let (Some(reasoning), None) = (&turn.reasoning, &request.partial) {
        deltas.reasoning(reasoning).await;
    }
    for (index, piece) in pieces.iter().take(limit).enumerate() {
        if index > 0 {
            wait(turn.chunk_delay_ms).await;
        }
        deltas.text(piece).await;
    }
}

/// Waits without a timer if there is nothing to wait for.
async fn wait(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

fn answer(turn: &Turn, request: &ModelRequest, place: Place, text: String) -> Answer {
    let mut parts = Vec::new();
    if let (Some(reasoning), None) = (&turn.reasoning, &request.partial) {
        parts.push(Part::Reasoning(Reasoning { text: reasoning.clone(), signature: None }));
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    let calls = turn.calls.iter().enumerate();
    parts.extend(calls.map(|(index, call)| Part::ToolCall(tool_call(call, place.answers + 1, index + 1))));
    let usage = turn.usage.map_or_else(|| estimate(request, &parts), Usage::from);
    Answer { parts, usage, stop: turn.stop.into(), response: turn.response.clone() }
}

fn tool_call(call: &Call, answer: usize, number: usize) -> ToolCall {
    // By the answer and not the turn: a turn that answers twice must not call with one id twice.
    let id = call.id.clone().unwrap_or_else(|| format!("call_{answer}_{number}"));
    match &call.arguments {
        Some(arguments) => ToolCall::new(id, &call.name, Json::from(arguments.clone())),
        None => ToolCall::from_text(id, &call.name, call.arguments_text.as_deref().unwrap_or_default()),
    }
}

fn estimate(request: &ModelRequest, parts: &[Part]) -> Usage {
    let sent: usize = request.view.items().map(|item| item.as_str().len()).sum();
    let received: usize = parts.iter().map(size).sum();
    let tokens = |bytes: usize| (bytes / BYTES_PER_TOKEN) as u64;
    Usage { input_tokens: tokens(sent), output_tokens: tokens(received), cost_micros: 0 }
}

fn size(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        Part::Reasoning(reasoning) => reasoning.text.len(),
        Part::ToolCall(call) => call.name.len() + call.arguments.as_str().len(),
        _ => 0,
    }
}
