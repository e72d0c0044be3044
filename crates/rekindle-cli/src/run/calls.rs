//! The calls of a run as they begin and end: a fold of records, for whoever draws them.

use std::collections::HashMap;

use rekindle::core::LogName;
use rekindle::core::record::{EffectIntent, EffectKind, EffectOutcome, OutcomeStatus, Usage};
use rekindle::message::{Message, Part, Role};
use rekindle::{EffectId, Engine, SessionKey, State};

/// How many messages are looked at for what calls under way were given.
const LOOK_BACK: usize = 64;

/// A call under way.
#[derive(Clone, Debug)]
pub struct Call {
    pub kind: EffectKind,
    /// The tool, model or step.
    pub name: String,
    /// The step of a plan or the node of a graph.
    pub place: Option<String>,
    /// What it was given, for people.
    pub given: String,
    pub attempt: u32,
    /// Whether an earlier process began it, and none has tried again since.
    pub found: bool,
    /// What it last said of itself.
    pub progress: Option<String>,
}

/// A call that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub call: Call,
    pub status: OutcomeStatus,
    pub error: Option<String>,
    pub usage: Usage,
    pub micros: u64,
    /// Whether it was made up to close an open call.
    pub synthetic: bool,
}

/// Every call seen so far.
#[derive(Debug, Default)]
pub struct Calls {
    open: HashMap<EffectId, Call>,
    /// The order in which they began.
    order: Vec<EffectId>,
    /// What the model wants its calls to be given, by the provider's id of the call.
    given: HashMap<String, String>,
    /// What was used.
    pub used: Usage,
    /// How many ended well or badly.
    pub ended: usize,
}

impl Calls {
    /// Those that earlier processes left under way.
    pub async fn left_in(engine: &Engine, session: &SessionKey) -> Self {
        // What cannot be read is said by whoever needs it.
        let restored = engine.journal().load(session, None).await;
        restored.map_or_else(|_| Self::default(), |restored| Self::left(&restored.state))
    }

    fn left(state: &State) -> Self {
        let mut calls = Self::default();
        let messages = LogName::new("messages").map(|log| state.log(&log)).unwrap_or_default();
        // Only the last ones: a long conversation is not read for them.
        for message in messages.iter().rev().take(LOOK_BACK).filter_map(|item| Message::from_json(item).ok()) {
            calls.learn(&message);
        }
        for effect in state.open_effects() {
            calls.begin(&effect.intent);
            let waits = state.waits().any(|wait| wait.opened.effect.as_ref() == Some(&effect.intent.effect));
            if let Some(call) = calls.open.get_mut(&effect.intent.effect) {
                // What waits for somebody was not cut off.
                call.found = !waits;
            }
        }
        calls
    }

    /// A call begins.
    pub fn begin(&mut self, intent: &EffectIntent) {
        let given = match &intent.arguments {
            Some(arguments) => arguments.as_str().to_owned(),
            None => self.given.get(call_id(&intent.effect)).cloned().unwrap_or_default(),
        };
        let call = Call {
            kind: intent.kind,
            name: intent.name.clone(),
            place: place(intent),
            given,
            attempt: intent.attempt,
            found: false,
            progress: None,
        };
        if self.open.insert(intent.effect.clone(), call).is_none() {
            self.order.push(intent.effect.clone());
        }
    }

    /// A call says how far it is.
    pub fn progress(&mut self, effect: &str, said: String) {
        let found = self.open.iter_mut().find(|(id, _)| id.as_str() == effect);
        if let Some((_, call)) = found {
            call.progress = Some(said);
        }
    }

    /// A call ended; nothing if it will be tried again.
    pub fn end(&mut self, outcome: &EffectOutcome) -> Ended {
        let message = outcome.value.as_ref().and_then(|value| Message::from_json(value).ok());
        if let Some(message) = message.filter(|message| message.role == Role::Assistant) {
            self.given.clear();
            self.learn(&message);
        }
        // Providers say how many: any number may stand there.
        let (used, more) = (&mut self.used, outcome.usage);
        used.input_tokens = used.input_tokens.saturating_add(more.input_tokens);
        used.output_tokens = used.output_tokens.saturating_add(more.output_tokens);
        used.cost_micros = used.cost_micros.saturating_add(more.cost_micros);
        self.ended += 1;
        let call = match outcome.settles() {
            true => {
                self.order.retain(|id| *id != outcome.effect);
                self.open.remove(&outcome.effect)
            }
            false => self.open.get(&outcome.effect).cloned(),
        };
        let unknown = || Call {
            kind: EffectKind::Tool,
            name: outcome.effect.to_string(),
            place: None,
            given: String::new(),
            attempt: outcome.attempt,
            found: false,
            progress: None,
        };
        Ended {
            call: call.unwrap_or_else(unknown),
            status: outcome.status,
            error: outcome.error.clone(),
            usage: outcome.usage,
            micros: outcome.duration_micros,
            synthetic: outcome.synthetic,
        }
    }

    /// Those under way, in the order they began.
    pub fn open(&self) -> impl Iterator<Item = &Call> {
        self.order.iter().filter_map(|id| self.open.get(id))
    }

    /// What a model's answer says its calls are given.
    fn learn(&mut self, message: &Message) {
        for part in &message.parts {
            if let Part::ToolCall(call) = part {
                self.given.insert(call.id.clone(), call.arguments.as_str().to_owned());
            }
        }
    }
}

/// The provider's id of a call: `t3.0.call_1` and `node:t3.0.call_1` stand for `call_1`.
fn call_id(effect: &EffectId) -> &str {
    let text = effect.as_str();
    let bare = text.find(":t").map_or(text, |colon| &text[colon + 1..]);
    bare.splitn(3, '.').nth(2).unwrap_or(bare)
}

/// The step of a plan or the node of a graph; an agent's steps are only numbers.
fn place(intent: &EffectIntent) -> Option<String> {
    if let Some((node, _)) = intent.effect.as_str().split_once(':') {
        return Some(node.to_owned());
    }
    intent.step.clone().filter(|step| step.parse::<u64>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records, one in a line, as a session may hold them.
    #[test]
    fn fuzzed_calls() {
        let outcome = r#"{"effect_outcome":{"effect":"c1","attempt":1,"status":"ok","duration_micros":5,"usage":{"input_tokens":18446744073709551615,"output_tokens":2,"cost_micros":3}}}"#;
        let seeds = [[outcome, outcome].join("\n")];
        rekindle_fuzz::fuzz!("cli-calls")
            .seeds(seeds)
            .words(["\"status\":\"tool_error\"", "\"value\":{\"role\":\"assistant\"}"])
            .text(|text| {
                let mut calls = Calls::default();
                for line in text.lines() {
                    if let Ok(rekindle::core::Record::EffectOutcome(outcome)) = serde_json::from_str(line) {
                        let _ = calls.end(&outcome);
                    }
                }
                calls.ended > 0
            });
    }
}
