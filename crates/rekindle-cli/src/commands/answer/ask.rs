//! Asking the person at the terminal.

use rekindle::core::record::WaitKind;
use rekindle::operations::{Answer, WaitView};
use rekindle::{Error, Json, Result};
use serde_json::Value;

use crate::app::App;
use crate::ui::{printable, style};
use crate::words::{name_of, value};

/// Shows what is asked and takes the answer; nothing if there is none.
pub fn ask(app: &App, open: &WaitView) -> Result<Option<Answer>> {
    let opened = &open.opened;
    app.ui.note(format!(
        "{}{}{} {}",
        style::NAME,
        printable(opened.wait.as_str()),
        style::RESET,
        name_of(&opened.kind)
    ));
    app.ui.note(printable(&opened.prompt));
    if let Some(arguments) = super::arguments_of(open) {
        let (lines, _) = value::lines(&arguments.to_value()?, true);
        lines.iter().for_each(|line| app.ui.note(format!("  {line}")));
    }
    match opened.kind {
        WaitKind::Approval => approval(app, open),
        WaitKind::Question | WaitKind::Signal => question(app, open),
        WaitKind::Timer => Err(Error::invalid("it waits for a time only, which nobody has to answer")),
    }
}

/// Yes to what was just shown, no, or other arguments.
fn approval(app: &App, open: &WaitView) -> Result<Option<Answer>> {
    let wait = open.opened.wait.clone();
    let answer = app.ui.ask("Approve? [y]es, [n]o, [e]dit the arguments, [q]uit:");
    match answer.as_deref() {
        Some("y" | "Y" | "yes") => Ok(Some(Answer::approve(wait, open.approve_digest, app.identity()))),
        Some("n" | "N" | "no") => {
            let reason = app.ui.ask("Why not?").unwrap_or_default();
            Ok(Some(Answer::reject(wait, app.identity(), reason)))
        }
        Some("e" | "edit") => {
            let Some(text) = app.ui.ask("Arguments, as JSON:").filter(|text| !text.is_empty()) else { return Ok(None) };
            let arguments = value::json(&text, "arguments")?;
            Ok(Some(Answer::approve(wait, open.approve_digest, app.identity()).with_arguments(arguments)))
        }
        _ => Ok(None),
    }
}

fn question(app: &App, open: &WaitView) -> Result<Option<Answer>> {
    let choices = choices(open.opened.schema.as_ref());
    for (number, choice) in choices.iter().enumerate() {
        app.ui.note(format!("  {}{}{} {}", style::NAME, number + 1, style::RESET, printable(&choice.to_string())));
    }
    let question = if choices.is_empty() { "Answer:" } else { "Answer, or its number:" };
    let Some(text) = app.ui.ask(question).filter(|text| !text.is_empty()) else { return Ok(None) };
    let value = picked(&choices, &text).unwrap_or_else(|| value::typed_for(&text, open.opened.schema.as_ref()));
    Ok(Some(Answer::value(open.opened.wait.clone(), value, app.identity())))
}

/// The answers a schema lists.
fn choices(schema: Option<&Json>) -> Vec<Value> {
    let schema = schema.and_then(|schema| schema.to_value().ok()).unwrap_or_default();
    schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The choice of that number, unless the number is an answer itself.
fn picked(choices: &[Value], text: &str) -> Option<Json> {
    let itself = choices
        .iter()
        .any(|choice| *choice == text || serde_json::from_str(text).is_ok_and(|typed: Value| typed == *choice));
    let number: usize = text.parse().ok().filter(|_| !itself)?;
    choices.get(number.checked_sub(1)?).map(|choice| Json::from(choice.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_is_picked_by_its_number() {
        let named = [json!("train"), json!("plane")];
        assert_eq!(picked(&named, "2"), Some(Json::from("plane")));
        assert_eq!(picked(&named, "3"), None);
        assert_eq!(picked(&named, "0"), None);
        assert_eq!(picked(&named, "train"), None);
        assert_eq!(picked(&[json!(2), json!(1)], "2"), None, "2 is an answer itself");
        let schema = Json::parse(r#"{"enum":["a",1]}"#).unwrap();
        assert_eq!(choices(Some(&schema)), [json!("a"), json!(1)]);
        assert!(choices(None).is_empty());
    }
}
