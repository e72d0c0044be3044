//! What the engine says is wrong with an agent, a plan or a graph, at the place in the file.

use std::error::Error as _;

use rekindle::Error;
use rekindle::executor::{SpecFault, SpecFaults};
use serde_json::Value;

use super::tool::Placed;
use crate::definition::Inner;
use crate::document::{child, did_you_mean, quoted};
use crate::fault::{Fault, Faults, Gathered};

/// What is wrong with a plan or a graph.
pub(super) fn of_spec(inner: &Inner, tools: &[Placed], error: &Error) -> Faults {
    let Some(found) = error.source().and_then(|source| source.downcast_ref::<SpecFaults>()) else {
        return of_tools(inner, tools, error);
    };
    let mut faults = Gathered::default();
    found.iter().for_each(|fault| faults.add(located(inner, fault)));
    faults.settle().err().unwrap_or_else(|| of_tools(inner, tools, error))
}

/// What is wrong with the tools, at the one that is named.
pub(super) fn of_tools(inner: &Inner, tools: &[Placed], error: &Error) -> Faults {
    let names = quoted(error.message());
    let named = tools.iter().rev().find(|(_, tool)| names.contains(&tool.spec().name.as_str()));
    let pointer = named.map_or_else(|| child(&inner.pointer, "name"), |(pointer, _)| pointer.clone());
    let schema = child(&pointer, "parameters");
    let about_schema = error.message().contains("JSON Schema") && inner.document.at(&schema).is_some();
    let fault = inner.document.key_fault(if about_schema { &schema } else { &pointer }, error.message());
    match error.next_step() == error.kind().catalog_entry().remedy {
        true => fault.into(),
        false => fault.with_hint(error.next_step()).into(),
    }
}

fn located(inner: &Inner, fault: &SpecFault) -> Fault {
    // Behind the place may stand whose it is.
    let place = fault.place.split(" (").next().unwrap_or_default();
    let mut pointer = inner.pointer.clone();
    for part in place.split(['.', '[']).filter(|part| !part.is_empty()) {
        pointer = child(&pointer, part.trim_end_matches(']'));
    }
    pointer = narrowed(inner, pointer, &fault.why);
    let located = inner.document.fault(&pointer, sentence(fault));
    match missing_name(&fault.why) {
        Some(hint) => located.with_hint(hint),
        None => located,
    }
}

/// What is wrong, with whose it is.
fn sentence(fault: &SpecFault) -> String {
    match fault.place.split_once(" (").map(|(_, owner)| owner.trim_end_matches(')')) {
        Some(owner) => format!("{owner}: {}", fault.why),
        None if fault.why.starts_with("depend on") => format!("{} {}", fault.place, fault.why),
        None if fault.why == "there are none" => format!("there are no {}", fault.place),
        None => fault.why.clone(),
    }
}

/// `did you mean …?`, if a message says what there is instead.
fn missing_name(why: &str) -> Option<String> {
    let (_, known) = why.split_once("there are: ")?;
    did_you_mean(quoted(why).first()?, known.split(", "))
}

/// The value below `pointer` that a message quotes, if there is exactly one; for a circle of steps,
/// what the first of them depends on.
fn narrowed(inner: &Inner, pointer: String, why: &str) -> String {
    let Some(value) = inner.document.at(&pointer) else { return pointer };
    if why.contains("in a circle") {
        let first = quoted(why).into_iter().next();
        let steps = value.as_array().into_iter().flatten();
        let number = steps.enumerate().find(|(_, step)| step.get("id").and_then(Value::as_str) == first);
        return number.map_or(pointer.clone(), |(number, _)| format!("{pointer}/{number}/dependencies"));
    }
    mentioned(inner, &pointer, why, "").unwrap_or(pointer)
}

/// The value below `pointer` that a message quotes, if there is exactly one; `but` is not looked for.
pub(super) fn mentioned(inner: &Inner, pointer: &str, message: &str, but: &str) -> Option<String> {
    let value = inner.document.at(pointer)?;
    quoted(message).into_iter().filter(|word| *word != but && !word.is_empty()).find_map(|word| {
        let mut found = Vec::new();
        search(value, pointer, word, &mut found);
        if let [only] = found.as_slice() { Some(only.clone()) } else { None }
    })
}

/// The texts below `value` that are `word`, or hold it as a reference.
fn search(value: &Value, pointer: &str, word: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text == word || word.starts_with("${") && text.contains(word) => {
            found.push(pointer.to_owned());
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(at, item)| search(item, &format!("{pointer}/{at}"), word, found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| search(field, &child(pointer, name), word, found))
        }
        _ => {}
    }
}
