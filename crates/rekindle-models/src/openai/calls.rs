//! Calls of tools, put together from the pieces of a stream. Servers number them, or give only ids,
//! or send each call whole, or number all of them 0: all of that is understood.

use std::collections::HashSet;

use rekindle::message::{Part, ToolCall};
use serde_json::Value;

/// The calls so far.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// Takes one entry of `tool_calls`.
    pub(super) fn take(&mut self, piece: &Value) {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().unwrap_or_default();
        let function = &piece["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let place = self.place(index, id, name).unwrap_or_else(|| {
            self.0.push(Call { index, ..Call::default() });
            self.0.len() - 1
        });
        let call = &mut self.0[place];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // Some repeat the name with every piece.
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        match &function["arguments"] {
            Value::Null => {}
            Value::String(text) => call.arguments.push_str(text),
            // Not as a string, so as a whole.
            whole => call.arguments = whole.to_string(),
        }
    }

    /// Which call a piece belongs to; none if it begins one.
    fn place(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let by_id = || self.0.iter().rposition(|call| !id.is_empty() && call.id == id);
        let Some(index) = index else {
            // Neither a number nor an id: a name begins a call, all else goes on with the last.
            let last = if id.is_empty() && name.is_empty() { self.0.len().checked_sub(1) } else { None };
            return by_id().or(last);
        };
        let place = self.0.iter().rposition(|call| call.index == Some(index))?;
        let call = &self.0[place];
        let is_other = !id.is_empty() && !call.id.is_empty() && call.id != id;
        if is_other { by_id() } else { Some(place) }
    }

    /// The calls as parts. Those without an id of their own get one from `seed`; an id is not its own
    /// if it is one of `used`: some servers count from 0 in every answer.
    pub(super) fn into_parts(self, seed: &str, mut used: HashSet<String>) -> impl Iterator<Item = Part> {
        // A server may begin a call and never say which.
        let calls = self.0.into_iter().filter(|call| !call.name.is_empty() || !call.arguments.is_empty());
        calls.enumerate().map(move |(number, call)| {
            let is_own = !call.id.is_empty() && used.insert(call.id.clone());
            let id = if is_own { call.id } else { format!("call_{:016x}_{number}", hash(seed)) };
            Part::ToolCall(ToolCall::from_text(id, call.name, &call.arguments))
        })
    }
}

/// A short name for a text (FNV-1a), the same in every process.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `id name(arguments)` for each call.
    fn check(pieces: Value, expected: &[&str]) {
        let mut calls = Calls::default();
        pieces.as_array().unwrap().iter().for_each(|piece| calls.take(piece));
        let parts: Vec<String> = calls
            .into_parts("seed", HashSet::from(["used".to_owned()]))
            .map(|part| match part {
                Part::ToolCall(call) => format!("{} {}({})", call.id, call.name, call.arguments.as_str()),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(parts, expected, "{pieces}");
    }

    #[test]
    fn pieces_are_put_together_by_number() {
        check(
            json!([
                {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
                {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"x\""}},
                {"index": 0, "function": {"arguments": "[1"}},
                {"index": 1, "function": {"arguments": ":1}"}},
                {"index": 0, "function": {"arguments": "]"}},
            ]),
            &["a f([1])", r#"b g({"x":1})"#],
        );
    }

    #[test]
    fn numbers_may_be_missing_or_all_the_same() {
        let whole = json!([
            {"id": "a", "function": {"name": "f", "arguments": "1"}},
            {"id": "b", "function": {"name": "f", "arguments": "2"}},
        ]);
        check(whole, &["a f(1)", "b f(2)"]);
        let pieces = json!([
            {"id": "a", "function": {"name": "f"}},
            {"function": {"arguments": "1"}},
            {"id": "b", "function": {"name": "f", "arguments": "2"}},
            {"id": "a", "function": {"arguments": "3"}},
        ]);
        check(pieces, &["a f(13)", "b f(2)"]);
        let zeros = json!([
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}},
            {"index": 0, "id": "b", "function": {"name": "f", "arguments": "2"}},
            {"index": 0, "function": {"arguments": "3"}},
            {"index": 0, "id": "a", "function": {"arguments": "4"}},
        ]);
        check(zeros, &["a f(14)", "b f(23)"]);
    }

    #[test]
    fn ids_may_be_missing_or_all_the_same() {
        let made = |number: usize| format!("call_{:016x}_{number}", hash("seed"));
        let without = json!([{"function": {"name": "f"}}, {"function": {"name": "g", "arguments": "1"}}]);
        check(without, &[&format!("{} f({{}})", made(0)), &format!("{} g(1)", made(1))]);
        let same = json!([
            {"index": 0, "id": "f", "function": {"name": "f", "arguments": "1"}},
            {"index": 1, "id": "f", "function": {"name": "f", "arguments": "2"}},
        ]);
        check(same, &["f f(1)", &format!("{} f(2)", made(1))]);
        let again = json!([{"index": 0, "id": "used", "function": {"name": "f", "arguments": "1"}}]);
        check(again, &[&format!("{} f(1)", made(0))]);
    }

    #[test]
    fn what_is_odd_is_kept_or_left_out() {
        check(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]), &[r#"a f({"x":1})"#]);
        let repeated = json!([
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "["}},
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "]"}},
        ]);
        check(repeated, &["a f([])"]);
        check(json!([{"index": 0, "id": "a"}, {}, 7]), &[]);
        check(json!([{"id": "a", "function": {"name": "f", "arguments": "{\"x"}}]), &[r#"a f("{\"x")"#]);
    }
}
