//! Views without open calls and without results that lack their call. Where the history has
//! neither it is shared; only where it has, what is sent is put together anew.

use std::ops::Range;
use std::sync::Arc;

use rekindle_core::{Json, Result};

use super::{HistoryIndex, View};
use crate::message::{Message, Part, Role, ToolResult};

/// What stands for the result of a call that has none.
const NOT_FINISHED: &str = "the call was not finished";

/// `lead` and that stretch, which must begin and end where the history may be cut.
pub(super) fn view(
    index: &HistoryIndex,
    history: &Arc<Vec<Json>>,
    lead: Vec<Json>,
    range: Range<usize>,
) -> Result<View> {
    view_after(index, history, lead, range.start, range)
}

/// The same, and the calls made from `calls_from` on are closed too, though their messages are
/// not sent.
pub(super) fn view_after(
    index: &HistoryIndex,
    history: &Arc<Vec<Json>>,
    lead: Vec<Json>,
    calls_from: usize,
    range: Range<usize>,
) -> Result<View> {
    let is_open = index.open_calls(calls_from..range.end).next().is_some();
    if !is_open && index.orphans(range.clone()).next().is_none() {
        return Ok(View::stretch(lead, Arc::clone(history), range));
    }
    let mut items = Vec::with_capacity(range.len() + 1);
    let mut owed = Vec::new();
    for (at, item) in history.iter().enumerate().take(range.end).skip(calls_from) {
        // Providers want all results of a message together, before anyone else speaks.
        if index.role(at) != Some(Role::Tool) {
            items.append(&mut owed);
        }
        if at >= range.start {
            items.extend(without_orphans(index, at, item)?);
        }
        owed.extend(missing_results(index, at, item)?);
    }
    items.append(&mut owed);
    Ok(View::standing_for(lead, items, range))
}

/// A made-up result for each call of the message that has none.
fn missing_results(index: &HistoryIndex, at: usize, item: &Json) -> Result<Vec<Json>> {
    let mut open = index.open_calls(at..at + 1).peekable();
    if open.peek().is_none() {
        return Ok(Vec::new());
    }
    let message = Message::from_json(item)?;
    let calls = open.filter_map(|place| match message.parts.get(place.part) {
        Some(Part::ToolCall(call)) => Some(call),
        _ => None,
    });
    calls
        .map(|call| Message::tool(ToolResult { synthetic: true, ..ToolResult::failed(call, NOT_FINISHED) }).to_json())
        .collect()
}

/// The message without results that lack their call; nothing if nothing else is in it.
fn without_orphans(index: &HistoryIndex, at: usize, item: &Json) -> Result<Option<Json>> {
    let orphans: Vec<usize> = index.orphans(at..at + 1).map(|place| place.part).collect();
    if orphans.is_empty() {
        return Ok(Some(item.clone()));
    }
    let mut message = Message::from_json(item)?;
    let mut part = 0..;
    message.parts.retain(|_| part.next().is_none_or(|part| !orphans.contains(&part)));
    if message.parts.is_empty() { Ok(None) } else { message.to_json().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{history, shape_of};
    use super::*;

    /// Both in the notation of [`history`]; a made-up result is written `s`.
    fn check(given: &str, expected: &str) {
        let items = Arc::new(history(given));
        let mut index = HistoryIndex::default();
        index.update(&items).unwrap();
        let view = view(&index, &items, Vec::new(), 0..items.len()).unwrap();
        assert_eq!(shape_of(&view), expected, "{given}");
        assert_eq!(view.shares(&items), given == expected, "{given}");
        assert_eq!(view.range(), 0..items.len());
    }

    #[test]
    fn what_is_closed_is_shared() {
        check("", "");
        check("ua", "ua");
        check("ucrucrau", "ucrucrau");
    }

    #[test]
    fn open_calls_are_closed_behind_the_results_that_are_there() {
        check("uc", "ucs");
        check("ud", "udss");
        check("udru", "udrsu");
        check("ucua", "ucsua");
        check("uccr", "ucscr");
        check("cucr", "csucr");
    }

    #[test]
    fn results_without_a_call_are_left_out() {
        check("r", "");
        check("ura", "ua");
        check("ucrra", "ucra");
        check("urc", "ucs");
    }

    #[test]
    fn what_stands_beside_an_orphan_is_kept() {
        let text = r#"{"role":"user","parts":[{"tool_result":{"call":"x","name":"t","content":1}},{"text":"hi"}]}"#;
        let items = Arc::new(vec![Json::parse(text).unwrap()]);
        let mut index = HistoryIndex::default();
        index.update(&items).unwrap();
        let view = view(&index, &items, Vec::new(), 0..1).unwrap();
        let sent: Vec<_> = view.items().map(Json::as_str).collect();
        assert_eq!(sent, [r#"{"role":"user","parts":[{"text":"hi"}]}"#]);
    }

    #[test]
    fn a_made_up_result_is_marked() {
        let items = Arc::new(history("c"));
        let mut index = HistoryIndex::default();
        index.update(&items).unwrap();
        let view = view(&index, &items, Vec::new(), 0..1).unwrap();
        let text = r#"{"role":"tool","parts":[{"tool_result":{"call":"call_0","name":"tool","content":"the call was not finished","error":true,"synthetic":true}}]}"#;
        assert_eq!(view.items().next_back().unwrap().as_str(), text);
    }
}
