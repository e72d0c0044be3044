//! Which turn answers a request. Depends on the script, the request and a place, nothing else.

use rekindle::Json;
use rekindle::message::Role;
use rekindle::model::{ModelError, ModelRequest};
use rekindle::reduction::View;
use serde::Deserialize;

use super::request::{last_text, not_a_message, text_of};
use crate::script::{Failure, Script, Turn};

/// How far a conversation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Answers given.
    pub(crate) answers: usize,
    /// Counted turns used up.
    pub(crate) counted: usize,
}

/// What a request gets.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    /// The number of the turn in the script, from 1.
    pub(crate) number: usize,
    pub(crate) turn: &'a Turn,
    /// How it fails, if it does.
    pub(crate) failure: Option<&'a Failure>,
}

impl Place {
    pub(crate) fn plus(self, turns: usize) -> Self {
        Self { answers: self.answers + turns, counted: self.counted + turns }
    }

    /// The place after that choice was answered.
    pub(crate) fn after(self, choice: &Choice<'_>) -> Self {
        let counted = usize::from(choice.turn.when.is_none());
        Self { answers: self.answers + 1, counted: self.counted + counted }
    }

    /// An id for an answer that says where to go on.
    pub(crate) fn response(self) -> String {
        format!("resp_{}_{}", self.answers, self.counted)
    }

    fn from_response(id: &str) -> Option<Self> {
        let (answers, counted) = id.strip_prefix("resp_")?.split_once('_')?;
        Some(Self { answers: answers.parse().ok()?, counted: counted.parse().ok()? })
    }
}

/// The place after the answer the request names as the last one.
pub(crate) fn place_after(script: &Script, request: &ModelRequest) -> Option<Place> {
    let previous = request.previous.as_deref()?;
    let answering = script.turns.iter().filter(|turn| turn.when.is_none() && turn.answers());
    let named = answering.enumerate().find(|(_, turn)| turn.response.as_deref() == Some(previous));
    match named {
        Some((index, _)) => Some(Place { answers: index + 1, counted: index + 1 }),
        None => Place::from_response(previous),
    }
}

/// The place a conversation shows.
pub(crate) fn place_in(script: &Script, view: &View) -> Result<Place, ModelError> {
    #[derive(Deserialize)]
    struct Head {
        role: Role,
    }
    let mut place = Place::default();
    let mut before: Option<&Json> = None;
    for item in view.items() {
        if item.decode::<Head>().map_err(not_a_message)?.role == Role::Assistant {
            place.answers += 1;
            place.counted += usize::from(!was_out_of_count(script, before)?);
        }
        before = Some(item);
    }
    Ok(place)
}

/// Whether the answer to that message came from a turn with a `when`.
fn was_out_of_count(script: &Script, before: Option<&Json>) -> Result<bool, ModelError> {
    let mut turns = script.turns.iter().filter(|turn| turn.answers_out_of_count()).peekable();
    let (Some(_), Some(before)) = (turns.peek(), before) else {
        return Ok(false);
    };
    let text = text_of(before)?;
    Ok(turns.any(|turn| fits(turn, &text)))
}

fn fits(turn: &Turn, last: &str) -> bool {
    turn.when.as_ref().is_some_and(|when| last.contains(&when.last_contains))
}

/// Chooses the turn, and whether this attempt at it fails.
pub(crate) fn choose<'a>(script: &'a Script, request: &ModelRequest, place: Place) -> Result<Choice<'a>, ModelError> {
    let last = last_text(&request.view)?;
    let numbered = || script.turns.iter().enumerate().map(|(index, turn)| (index + 1, turn));
    let fitting = numbered().filter(|(_, turn)| fits(turn, &last));
    let counted: Vec<_> = numbered().filter(|(_, turn)| turn.when.is_none()).collect();
    let start = start_of(&counted, place.counted, script.repeat_last);
    // Each failure takes up attempts; the first turn that is left with one and answers is it.
    let mut attempt = request.attempt.max(1);
    for (number, turn) in fitting.chain(counted.iter().skip(start).copied()) {
        if let Some(failure) = &turn.error {
            if attempt <= failure.times {
                return Ok(Choice { number, turn, failure: Some(failure) });
            }
            attempt -= failure.times;
        }
        if turn.answers() {
            return Ok(Choice { number, turn, failure: None });
        }
    }
    Err(ModelError::fatal(format!(
        "the script {:?} is at its end: it has {} turns, and {} answers were given before this one",
        script.name,
        script.turns.len(),
        place.answers,
    )))
}

/// Where in the counted turns to go on after `used` of them have answered: right after the last of
/// those, as what only fails stands before what it delays.
fn start_of(counted: &[(usize, &Turn)], used: usize, repeat_last: bool) -> usize {
    let ends: Vec<usize> =
        counted.iter().enumerate().filter(|(_, (_, turn))| turn.answers()).map(|(index, _)| index + 1).collect();
    match (used, ends.last()) {
        (0, _) => 0,
        (_, Some(last)) if used >= ends.len() && repeat_last => last - 1,
        (_, Some(_)) if used <= ends.len() => ends[used - 1],
        _ => counted.len(),
    }
}

#[cfg(test)]
mod tests {
    use rekindle::message::Message;
    use serde_json::{Value, json};

    use super::*;

    fn script(turns: Value, repeat_last: bool) -> Script {
        let text = json!({"name": "m", "repeat_last": repeat_last, "turns": turns}).to_string();
        Script::from_json(&text).unwrap()
    }

    fn request(messages: &[Message], attempt: u32) -> ModelRequest {
        ModelRequest {
            system: None,
            view: View::of(messages.iter().map(|message| message.to_json().unwrap()).collect()),
            tools: [].into(),
            previous: None,
            partial: None,
            attempt,
            idempotency_key: "k".into(),
            cancel: Default::default(),
        }
    }

    /// `says` alternates between a person and the model; the choice is `+n` for an answer of turn
    /// `n`, `-n` for its failure and 0 for the end of the script.
    #[track_caller]
    fn check(script: &Script, says: &[&str], attempt: u32, expected: i64) {
        let roles = [Message::user as fn(String) -> Message, Message::assistant];
        let messages: Vec<_> =
            says.iter().enumerate().map(|(index, text)| roles[index % 2](text.to_string())).collect();
        let request = request(&messages, attempt);
        let place = place_in(script, &request.view).unwrap();
        let found = match choose(script, &request, place) {
            Ok(Choice { number, failure: None, .. }) => number as i64,
            Ok(Choice { number, .. }) => -(number as i64),
            Err(error) => {
                assert!(!error.retry && error.message.contains("is at its end"));
                0
            }
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn turns_are_counted_by_the_answers_in_the_request() {
        let two = script(json!([{"text": "a"}, {"text": "b"}]), false);
        check(&two, &[], 1, 1);
        check(&two, &["u"], 1, 1);
        check(&two, &["u", "a", "u"], 1, 2);
        check(&two, &["u", "a", "u", "b", "u"], 1, 0);
        let repeating = script(json!([{"text": "a"}, {"text": "b"}]), true);
        check(&repeating, &["u", "a", "u", "b", "u", "b", "u", "b", "u"], 1, 2);
        check(&script(json!([]), true), &["u"], 1, 0);
    }

    #[test]
    fn failures_take_up_attempts_and_no_place() {
        let script = script(
            json!([
                {"text": "a"},
                {"error": {"message": "x", "times": 2}},
                {"error": {"message": "y"}},
                {"text": "b", "error": {"message": "z"}},
                {"text": "c"},
                {"error": {"message": "end"}}
            ]),
            false,
        );
        check(&script, &["u"], 1, 1);
        for (attempt, expected) in [(1, -2), (2, -2), (3, -3), (4, -4), (5, 4), (9, 4)] {
            check(&script, &["u", "a", "u"], attempt, expected);
        }
        check(&script, &["u", "a", "u", "b", "u"], 1, 5);
        check(&script, &["u", "a", "u", "b", "u", "c", "u"], 1, -6);
        check(&script, &["u", "a", "u", "b", "u", "c", "u"], 2, 0);
    }

    #[test]
    fn turns_with_a_condition_come_first_and_are_not_counted() {
        let script = script(
            json!([
                {"text": "a"},
                {"when": {"last_contains": "ping"}, "text": "pong"},
                {"when": {"last_contains": "slow"}, "error": {"message": "x"}},
                {"text": "b"}
            ]),
            false,
        );
        check(&script, &["a ping"], 1, 2);
        check(&script, &["ping", "pong", "u"], 1, 1);
        check(&script, &["u", "a", "ping", "pong", "ping", "pong", "u"], 1, 4);
        check(&script, &["slow"], 1, -3);
        check(&script, &["slow"], 2, 1);
        check(&script, &["slow", "a", "u"], 1, 4);
    }

    #[test]
    fn the_id_of_the_last_answer_says_where_to_go_on() {
        let script = script(json!([{"text": "a", "response": "first"}, {"text": "b"}]), false);
        let after = |id: &str| place_after(&script, &ModelRequest { previous: Some(id.into()), ..request(&[], 1) });
        assert_eq!(after("first"), Some(Place { answers: 1, counted: 1 }));
        assert_eq!(after(&Place { answers: 7, counted: 2 }.response()), Some(Place { answers: 7, counted: 2 }));
        assert_eq!(after("resp_x"), None);
        assert_eq!(place_after(&script, &request(&[], 1)), None);
    }
}
