//! A conversation as people read it: who, what was said, which tools were called and what they
//! answered.

use rekindle::Json;
use rekindle::message::{Message, Part, Role};

use super::value;
use crate::ui::{fit, printable, style};

/// The whole of it, and whether something was cut.
pub fn lines(items: &[Json], columns: usize, full: bool) -> (Vec<String>, bool) {
    let mut cut = false;
    let mut lines = Vec::new();
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            lines.push(String::new());
        }
        match Message::from_json(item) {
            Ok(message) => cut |= tell(&message, number, columns, full, &mut lines),
            Err(_) => {
                let (shown, was_cut) = value::cut(item.as_str(), full);
                lines.push(format!("{}{number}{}", style::DIM, style::RESET));
                lines.extend(shown.iter().map(|line| format!("  {line}")));
                cut |= was_cut;
            }
        }
    }
    (lines, cut)
}

/// One item of a log on one line, without colours.
pub fn one_line(item: &Json, columns: usize) -> String {
    let Ok(message) = Message::from_json(item) else { return value::short(item, columns) };
    let said: Vec<String> = message.parts.iter().map(|part| said(part, columns)).collect();
    fit(&format!("{}: {}", who(&message), said.join(" ")), columns)
}

/// Who speaks.
pub fn who(message: &Message) -> String {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    match &message.author {
        Some(author) => format!("{role} ({})", printable(author)),
        None => role.to_owned(),
    }
}

/// A part on one line.
pub fn said(part: &Part, columns: usize) -> String {
    match part {
        Part::Text(text) => fit(text, columns),
        Part::Reasoning(reasoning) => format!("(thinks: {})", fit(&reasoning.text, columns)),
        Part::Image(reference) | Part::File(reference) => format!("[{}]", fit(&reference.uri, columns)),
        Part::ToolCall(call) => format!("→ {} {}", call.name, value::short(&call.arguments, columns)),
        Part::ToolResult(result) => {
            let sign = if result.error { "✗" } else { "←" };
            let made_up = if result.synthetic { " (made up)" } else { "" };
            format!("{sign} {}{made_up} {}", result.name, value::short(&result.content, columns))
        }
        Part::Unknown(kind, body) => format!("[{kind}] {}", value::short(body, columns)),
        _ => "[something this version does not know]".to_owned(),
    }
}

/// A message over several lines; whether something was cut.
fn tell(message: &Message, number: usize, columns: usize, full: bool, lines: &mut Vec<String>) -> bool {
    let (dim, reset) = (style::DIM, style::RESET);
    lines.push(format!("{}{}{reset} {dim}{number}{reset}", style::NAME, who(message)));
    let mut cut = false;
    for part in &message.parts {
        let (shown, was_cut) = match part {
            Part::Text(text) => value::cut(text, full),
            other if full => value::cut(&said(other, usize::MAX / 8), true),
            other => {
                let line = said(other, columns.saturating_mul(4));
                (vec![fit(&line, columns.saturating_sub(2))], crate::ui::width(&line) > columns.saturating_sub(2))
            }
        };
        lines.extend(shown.iter().map(|line| format!("  {line}")));
        cut |= was_cut;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use rekindle::message::{ToolCall, ToolResult};

    fn conversation() -> Vec<Json> {
        let call = ToolCall::new("c1", "weather", Json::parse(r#"{"city":"Oslo"}"#).unwrap());
        let result = ToolResult::failed(&call, "no network");
        let messages = [
            Message { author: Some("maria".into()), ..Message::user("how is\nthe weather?") },
            Message::new(Role::Assistant, vec![Part::Text("let me see".into()), Part::ToolCall(call)]),
            Message::tool(result),
        ];
        messages.iter().map(|message| message.to_json().unwrap()).collect()
    }

    #[test]
    fn a_conversation_reads_well() {
        let (lines, cut) = lines(&conversation(), 80, false);
        let plain: Vec<_> = lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        let expected = [
            "user (maria) 0",
            "  how is",
            "  the weather?",
            "",
            "assistant 1",
            "  let me see",
            r#"  → weather {"city":"Oslo"}"#,
            "",
            "tool 2",
            r#"  ✗ weather "no network""#,
        ];
        assert_eq!((plain.as_slice(), cut), (expected.map(str::to_owned).as_slice(), false));
    }

    #[test]
    fn a_message_fits_on_a_line() {
        let items = conversation();
        assert_eq!(one_line(&items[0], 80), "user (maria): how is the weather?");
        assert_eq!(one_line(&items[1], 80), r#"assistant: let me see → weather {"city":"Oslo"}"#);
        assert_eq!(one_line(&items[0], 12), "user (maria…");
        assert_eq!(one_line(&Json::parse(r#"{"not": "a message"}"#).unwrap(), 80), r#"{"not": "a message"}"#);
    }
}
