//! Puts the messages of a view into an order that providers accept. A view may begin with an answer
//! of the model, since what came before it was left out, and the result of a tool may come late,
//! with others speaking in between. Pure: no provider's shape, no network.

use std::collections::{HashMap, HashSet};

use rekindle::message::{Message, Part, Role, ToolResult};
use serde_json::Value;

/// Stands for what was left out at the beginning.
pub(crate) const LEFT_OUT: &str = "(earlier conversation left out)";
/// Stands for the result of a call that has none.
const NOT_FINISHED: &str = "the call was not finished";

/// The messages as a provider takes them:
///
/// * each result stands directly behind the message with its call, in the order of the calls;
/// * a call without a result gets one that says so;
/// * a result without a call becomes text of the user, where it stood;
/// * an id that several calls have, since some servers count from 0 in every answer, stays with the
///   first of them, and the others get one of their own;
/// * after the system messages a user speaks first.
pub(crate) fn arranged(messages: Vec<Message>) -> Vec<Message> {
    let mut arranged = with_results_behind_calls(messages);
    let first = arranged.iter().position(|message| message.role != Role::System);
    if let Some(first) = first.filter(|first| arranged[*first].role == Role::Assistant) {
        arranged.insert(first, Message::user(LEFT_OUT));
    }
    arranged
}

/// A message and the results of its calls, by the number of the call.
struct Entry {
    message: Message,
    results: HashMap<usize, ToolResult>,
}

/// The calls that have no result yet, by id: entry and number, in order.
type Waiting = HashMap<String, Vec<(usize, usize)>>;

fn with_results_behind_calls(messages: Vec<Message>) -> Vec<Message> {
    let mut entries: Vec<Entry> = Vec::with_capacity(messages.len());
    let mut waiting = Waiting::new();
    for mut message in messages {
        for part in std::mem::take(&mut message.parts) {
            match part {
                Part::ToolResult(result) => match answered(&mut waiting, &result.call) {
                    Some((entry, number)) => drop(entries[entry].results.insert(number, result)),
                    None => entries.push(Entry::of(Message::user(as_text(&result)))),
                },
                part => message.parts.push(part),
            }
        }
        // Nothing is left of a message that brought results alone.
        if message.role == Role::Tool {
            continue;
        }
        for (number, call) in message.calls().enumerate() {
            waiting.entry(call.id.clone()).or_default().push((entries.len(), number));
        }
        entries.push(Entry::of(message));
    }
    let mut used = HashSet::new();
    entries.into_iter().flat_map(|entry| entry.into_messages(&mut used)).collect()
}

/// The call that a result with this id answers: of the newest message that waits, the first call.
fn answered(waiting: &mut Waiting, id: &str) -> Option<(usize, usize)> {
    let calls = waiting.get_mut(id)?;
    let newest = calls.last()?.0;
    let first = calls.iter().position(|(entry, _)| *entry == newest)?;
    Some(calls.remove(first))
}

impl Entry {
    fn of(message: Message) -> Self {
        Self { message, results: HashMap::new() }
    }

    /// The message and behind it the results; `used` are the ids of the calls so far.
    fn into_messages(self, used: &mut HashSet<String>) -> Vec<Message> {
        let Self { mut message, mut results } = self;
        let mut behind = Vec::new();
        let calls = message.parts.iter_mut().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        });
        for (number, call) in calls.enumerate() {
            call.id = unused(std::mem::take(&mut call.id), used);
            let result = match results.remove(&number) {
                Some(result) => ToolResult { call: call.id.clone(), ..result },
                None => ToolResult { synthetic: true, ..ToolResult::failed(call, NOT_FINISHED) },
            };
            behind.push(Message::tool(result));
        }
        behind.insert(0, message);
        behind
    }
}

/// `id`, or one made of it if another call has it.
fn unused(id: String, used: &mut HashSet<String>) -> String {
    let others = (2_u32..).map(|number| format!("{id}_{number}"));
    let free = std::iter::once(id.clone()).chain(others).find(|id| !used.contains(id));
    let free = free.unwrap_or(id);
    used.insert(free.clone());
    free
}

fn as_text(result: &ToolResult) -> String {
    let content = match result.content.to_value() {
        Ok(Value::String(text)) => text,
        _ => result.content.as_str().to_owned(),
    };
    format!("(result of the tool `{}`) {content}", result.name)
}

#[cfg(test)]
mod tests {
    use rekindle::Json;
    use rekindle::message::ToolCall;

    use super::*;

    fn call(id: char) -> ToolCall {
        ToolCall::new(id, "tool", Json::null())
    }

    /// `u`, `a` and `s` speak; `c(xy)` calls with the ids x and y; a digit or letter after `r` is a
    /// result for that id.
    fn messages(shape: &str) -> Vec<Message> {
        let mut letters = shape.chars();
        let mut all = Vec::new();
        while let Some(letter) = letters.next() {
            all.push(match letter {
                'u' => Message::user("u"),
                'a' => Message::assistant("a"),
                's' => Message::system("s"),
                'r' => Message::tool(ToolResult::new(&call(letters.next().unwrap()), Json::from("done"))),
                _ => {
                    let ids = letters.by_ref().skip(1).take_while(|id| *id != ')');
                    Message::new(Role::Assistant, ids.map(|id| Part::ToolCall(call(id))).collect())
                }
            });
        }
        all
    }

    /// The same notation; `n` is a made-up result, `o` a result that became text, `l` the message that
    /// was put in.
    fn shape(messages: &[Message]) -> String {
        let part = |part: &Part| match part {
            Part::ToolResult(result) if result.synthetic => format!("n{}", result.call),
            Part::ToolResult(result) => format!("r{}", result.call),
            Part::ToolCall(call) => call.id.clone(),
            Part::Text(text) if text == LEFT_OUT => "l".to_owned(),
            Part::Text(text) if text.starts_with('(') => "o".to_owned(),
            Part::Text(text) => text.clone(),
            _ => "?".to_owned(),
        };
        let message = |message: &Message| {
            let parts: String = message.parts.iter().map(part).collect();
            if message.calls().next().is_some() { format!("c({parts})") } else { parts }
        };
        messages.iter().map(message).collect()
    }

    fn check(given: &str, expected: &str) {
        assert_eq!(shape(&arranged(messages(given))), expected, "{given}");
        // What is in order stays in order.
        assert_eq!(shape(&arranged(arranged(messages(given)))), expected, "{given} twice");
    }

    #[test]
    fn what_is_in_order_stays() {
        check("", "");
        check("su", "su");
        check("suauc(1)r1a", "suauc(1)r1a");
        check("uc(12)r1r2au", "uc(12)r1r2au");
    }

    #[test]
    fn late_results_move_to_their_calls() {
        check("uc(1)ur1a", "uc(1)r1ua");
        check("uc(12)r2uar1", "uc(12)r1r2ua");
        check("uc(1)c(2)r1r2", "uc(1)r1c(2)r2");
    }

    #[test]
    fn an_id_used_twice_becomes_two() {
        check("uc(1)r1c(1)r1c(1)r1", "uc(1)r1c(1_2)r1_2c(1_3)r1_3");
        check("uc(11)r1r1", "uc(11_2)r1r1_2");
    }

    #[test]
    fn a_result_belongs_to_the_newest_call_that_waits() {
        let mut both = messages("uc(1)c(1)r1");
        both.push(Message::tool(ToolResult::new(&call('1'), Json::from("late"))));
        let arranged = arranged(both);
        let contents: Vec<_> =
            arranged.iter().flat_map(Message::results).map(|result| result.content.as_str()).collect();
        assert_eq!((shape(&arranged).as_str(), contents), ("uc(1)r1c(1_2)r1_2", vec!["\"late\"", "\"done\""]));
    }

    #[test]
    fn open_calls_are_closed() {
        check("uc(1)u", "uc(1)n1u");
        check("uc(12)ur2", "uc(12)n1r2u");
    }

    #[test]
    fn results_without_a_call_become_text() {
        check("ur1a", "uoa");
        check("r1c(1)", "oc(1)n1");
        check("uc(1)r1r1", "uc(1)r1o");
        let text = arranged(messages("ur1"))[1].text();
        assert_eq!(text, "(result of the tool `tool`) done");
    }

    #[test]
    fn a_user_speaks_first() {
        check("au", "lau");
        check("sau", "slau");
        check("c(1)r1", "lc(1)r1");
        check("r1a", "oa");
    }

    #[test]
    fn what_stands_beside_a_result_is_kept() {
        let mut both = messages("uc(1)");
        both.push(Message::new(
            Role::User,
            vec![Part::Text("x".into()), Part::ToolResult(ToolResult::new(&call('1'), Json::null()))],
        ));
        assert_eq!(shape(&arranged(both)), "uc(1)r1x");
    }
}
