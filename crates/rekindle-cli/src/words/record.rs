//! A record on one line.

use rekindle::Json;
use rekindle::core::Record;
use rekindle::core::record::{EffectIntent, EffectOutcome, WaitOpened};

use super::{conversation, name_of, number, value};
use crate::ui::fit;

/// How much of one value a line shows.
const PART: usize = 160;

/// What a record says besides its kind, on one line without colours.
pub fn summary(record: &Record) -> String {
    let text = match record {
        Record::LogAppend(append) => format!("{}: {}", append.log, items(&append.items)),
        Record::LogAppendOutcomes(append) => {
            let effects: Vec<_> = append.effects.iter().take(8).map(|effect| effect.as_str()).collect();
            format!("{}: outcome of {}", append.log, effects.join(", "))
        }
        Record::LogSplice(splice) => {
            let removed = usize::try_from(splice.remove).unwrap_or(usize::MAX);
            format!("{}: {} from {} replaced: {}", splice.log, number(removed, "item"), splice.at, items(&splice.items))
        }
        Record::RegisterSet(set) => format!("{} = {}", set.key, value::short(&set.value, PART)),
        Record::RegisterUnset(unset) => unset.key.to_string(),
        Record::EffectIntent(intent) => intended(intent),
        Record::EffectOutcome(outcome) => ended(outcome),
        Record::EffectPartial(partial) => format!("{}: {}", partial.effect, value::short(&partial.value, PART)),
        Record::Checkpoint(mark) => {
            format!("{} {} step {} {}", mark.id, name_of(&mark.kind), mark.step, mark.description)
        }
        Record::RunStarted(started) => match &started.continues {
            Some(before) => format!("{} ({}), goes on from {before}", started.run, started.executor),
            None => format!("{} ({})", started.run, started.executor),
        },
        Record::RunState(state) => format!("{}: {}", state.run, name_of(&state.state)),
        Record::RunEnded(ended) => {
            let code = ended.code.as_deref().map(|code| format!(" [{code}]")).unwrap_or_default();
            format!("{}: {}{code} {}", ended.run, name_of(&ended.outcome), ended.reason)
        }
        Record::WaitOpened(opened) => asked(opened),
        Record::WaitDecision(decision) => {
            format!("{}: {} by {} {}", decision.wait, name_of(&decision.decision), decision.author, decision.reason)
        }
        Record::WaitClosed(closed) => format!("{}: {}", closed.wait, name_of(&closed.reason)),
        Record::HistoryLost(lost) => lost.to_string(),
        Record::Edit(edit) => format!("by {}: {}", edit.author, edit.reason),
        other => body(other),
    };
    fit(&text, 4 * PART)
}

fn items(items: &[Json]) -> String {
    let mut told: Vec<_> = items.iter().take(4).map(|item| conversation::one_line(item, PART)).collect();
    if items.len() > 4 {
        told.push(format!("and {} more", items.len() - 4));
    }
    told.join(" | ")
}

fn intended(intent: &EffectIntent) -> String {
    let arguments =
        intent.arguments.as_ref().map(|value| format!(" {}", value::short(value, PART))).unwrap_or_default();
    let attempt = if intent.attempt > 1 { format!(", attempt {}", intent.attempt) } else { String::new() };
    format!("{}: {} {}{attempt}{arguments}", intent.effect, name_of(&intent.kind), intent.name)
}

fn ended(outcome: &EffectOutcome) -> String {
    let what = match (&outcome.error, &outcome.value) {
        (Some(error), _) => format!(" {error}"),
        (None, Some(value)) => format!(" {}", conversation::one_line(value, PART)),
        (None, None) => String::new(),
    };
    format!("{}: {}{what}", outcome.effect, name_of(&outcome.status))
}

fn asked(opened: &WaitOpened) -> String {
    format!("{}: {} {}", opened.wait, name_of(&opened.kind), opened.prompt)
}

/// The stored form without the kind in front.
fn body(record: &Record) -> String {
    let text = serde_json::to_string(record).unwrap_or_default();
    let inner = text.split_once(':').map_or("", |(_, body)| body);
    inner.strip_suffix('}').unwrap_or(inner).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_well() {
        let check = |json: &str, expected: &str| {
            assert_eq!(summary(&serde_json::from_str(json).unwrap()), expected);
        };
        check(r#"{"register_set":{"key":"memory/a","value":{"b":1}}}"#, r#"memory/a = {"b":1}"#);
        check(
            r#"{"run_ended":{"run":"r","outcome":"failed","reason":"no credit","code":"RK0017"}}"#,
            "r: failed [RK0017] no credit",
        );
        check(r#"{"inbox_taken":{"through":3}}"#, r#"{"through":3}"#);
        check(r#"{"shiny":[1]}"#, "[1]");
        let splice =
            r#"{"log_splice":{"log":"messages","at":1,"remove":1,"items":[{"role":"user","parts":[{"text":"hi"}]}]}}"#;
        check(splice, "messages: 1 item from 1 replaced: user: hi");
    }
}
