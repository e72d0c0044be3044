//! A run as it is watched: a line for each call that ended, and below them what is under way.

use std::collections::HashSet;
use std::time::Instant;

use rekindle::core::Record;
use rekindle::core::record::{CheckpointTrigger, EffectKind, LogAppend, OutcomeStatus, WaitKind, WaitOpened};
use rekindle::message::{Message, Role};
use rekindle::{Event, LiveEvent, LiveKind};
use serde_json::json;

use super::calls::{Call, Calls, Ended};
use crate::ui::live::Live;
use crate::ui::{Ui, fit, style, time};

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// How many lines of an answer under way are shown.
const ANSWER_LINES: usize = 4;

/// The end of an outage of the store.
const BACK: &str = "the store is back";

/// A run as it is watched.
pub struct View {
    ui: Ui,
    live: Live,
    /// Whether events are written as lines of JSON instead.
    events: bool,
    calls: Calls,
    answer: String,
    began: Instant,
    frame: usize,
    /// Whether anything changed since the last drawing.
    said: HashSet<String>,
    stopping: bool,
}

impl View {
    /// Of a run that begins.
    pub fn new(ui: Ui, calls: Calls, events: bool) -> Self {
        Self {
            live: Live::new(ui.clone()),
            ui,
            events,
            calls,
            answer: String::new(),
            began: Instant::now(),
            frame: 0,
            said: HashSet::new(),
            stopping: false,
        }
    }

    /// The run did something.
    pub fn take(&mut self, event: Event) {
        if self.events {
            // Whoever reads them may have gone; the run goes on.
            let _ = self.ui.json_line(&as_json(&event));
        }
        match event {
            Event::Recorded { record, .. } => self.recorded(&record),
            Event::Live(LiveEvent { kind, .. }) => self.said(kind),
            _ => {}
        }
    }

    /// A signal asks it to stop.
    pub fn stopping(&mut self, name: &str, again: bool) {
        self.stopping = true;
        let text = match again {
            false => format!("{name}: pausing; calls under way may end (again to stop them at once)"),
            true => format!("{name}: stopping calls under way; what they did will be in doubt"),
        };
        self.keep(&format!("{}{text}{}", style::WARN, style::RESET));
    }

    /// Draws what is under way.
    pub fn draw(&mut self) {
        if !self.ui.is_watched() {
            return;
        }
        self.frame += 1;
        let width = self.ui.width().saturating_sub(1);
        let spinner = SPINNER[self.frame % SPINNER.len()];
        let mut lines: Vec<String> = self.calls.open().map(|call| under_way(call, spinner, width)).collect();
        let shown: Vec<&str> = self.answer.trim_end().lines().collect();
        for line in &shown[shown.len().saturating_sub(ANSWER_LINES)..] {
            lines.push(format!("{}  {}{}", style::DIM, fit(line, width.saturating_sub(2)), style::RESET));
        }
        lines.push(self.footer(spinner));
        self.live.show(&lines);
    }

    /// Takes away what is under way.
    pub fn clear(&mut self) {
        self.live.clear();
    }

    fn footer(&self, spinner: &str) -> String {
        let used = &self.calls.used;
        let mut parts = vec![if self.stopping { "pausing" } else { "running" }.to_owned()];
        parts.push(time::span(self.began.elapsed()));
        parts.push(time::counted(self.calls.ended as u64, "call"));
        if used.input_tokens > 0 || used.output_tokens > 0 {
            parts.push(format!("{} → {} tokens", time::count(used.input_tokens), time::count(used.output_tokens)));
        }
        if used.cost_micros > 0 {
            parts.push(time::cost(used.cost_micros));
        }
        let keys = if self.stopping { "Ctrl-C stops calls at once" } else { "Ctrl-C pauses" };
        format!("{}{spinner} {} · {keys}{}", style::DIM, parts.join(" · "), style::RESET)
    }

    fn recorded(&mut self, record: &Record) {
        match record {
            Record::EffectIntent(intent) => self.calls.begin(intent),
            Record::EffectOutcome(outcome) => {
                let ended = self.calls.end(outcome);
                if ended.call.kind == EffectKind::Model {
                    self.answer.clear();
                }
                self.keep(&line_of(&ended, self.ui.width()));
            }
            // What was sent is told when the turn takes it.
            Record::LogAppend(append) if !append.log.as_str().starts_with("inbox/") => self.messages(append),
            Record::WaitOpened(wait) => self.keep(&waiting(wait)),
            Record::HistoryLost(lost) if lost.branch.is_inbox() => self.warn(&format!("{lost}; going on without it")),
            Record::HistoryLost(lost) => {
                self.warn(&format!("{lost}; calls that may have been begun there are in doubt"));
            }
            Record::Checkpoint(mark) if mark.trigger != CheckpointTrigger::Auto => {
                let text = format!("◆ checkpoint {} {}", mark.id, mark.description);
                self.keep(&format!("{}{}{}", style::DIM, fit(&text, self.ui.width()), style::RESET));
            }
            _ => {}
        }
    }

    /// What people said, as it goes into the conversation.
    fn messages(&mut self, append: &LogAppend) {
        // What stands in an inbox goes into the conversation later.
        if !append.log.as_str().starts_with("messages") {
            return;
        }
        for message in append.items.iter().filter_map(|item| Message::from_json(item).ok()) {
            let text = message.text();
            if message.role == Role::User && !text.is_empty() {
                let line = fit(&text, self.ui.width().saturating_sub(2));
                self.keep(&format!("{}> {line}{}", style::DIM, style::RESET));
            }
        }
    }

    fn said(&mut self, kind: LiveKind) {
        match kind {
            LiveKind::Text(text) => self.answer.push_str(&text),
            LiveKind::PartialFound(text) => {
                let line = fit(&text, self.ui.width().saturating_sub(30));
                self.keep(&format!("{}before it was cut off it had said: {line}{}", style::DIM, style::RESET));
            }
            LiveKind::Progress { effect, value } => self.calls.progress(&effect, fit(value.as_str(), 60)),
            LiveKind::StoreAway { error } => {
                // The next outage is told again.
                self.said.remove(BACK);
                self.warn(&format!("the store is away, trying again: {error}"));
            }
            LiveKind::Degraded { error } => self.warn(&format!("the store failed, the run goes on: {error}")),
            LiveKind::StoreBack => {
                self.said.retain(|text| !text.starts_with("the store"));
                self.warn(BACK);
            }
            LiveKind::Notice(text) => self.warn(&text),
            _ => {}
        }
    }

    /// Something somebody should see, once.
    fn warn(&mut self, text: &str) {
        if self.said.insert(text.to_owned()) {
            self.keep(&format!("{}! {}{}", style::WARN, crate::ui::printable(text), style::RESET));
        }
    }

    fn keep(&mut self, line: &str) {
        if !self.ui.is_json() && !self.ui.is_quiet() && !self.events {
            self.live.keep(line);
        }
    }
}

/// A call that ended, on one line.
fn line_of(ended: &Ended, width: usize) -> String {
    let call = &ended.call;
    let (sign, colour) = match ended.status {
        OutcomeStatus::Ok => ("✓", style::GOOD),
        OutcomeStatus::ToolError => ("✗", style::BAD),
        OutcomeStatus::InfraError => ("↻", style::WARN),
        OutcomeStatus::Cancelled => ("⊘", style::WARN),
        OutcomeStatus::InDoubt => ("?", style::WARN),
    };
    let amounts = amounts(ended);
    let indent = if call.kind == EffectKind::Model { "" } else { "├─ " };
    let name = named(call);
    let what = ended.error.as_deref().unwrap_or(&call.given);
    let room = width.saturating_sub(indent.len() + 4 + crate::ui::width(&name) + amounts.chars().count() + 4);
    let what = fit(what, room.max(8));
    let (dim, reset) = (style::DIM, style::RESET);
    format!("{dim}{indent}{reset}{colour}{sign}{reset} {name} {dim}{what}{reset}  {dim}{amounts}{reset}")
        .trim_end()
        .to_owned()
}

fn amounts(ended: &Ended) -> String {
    let mut parts = Vec::new();
    let used = ended.usage;
    if used.input_tokens > 0 || used.output_tokens > 0 {
        parts.push(format!("{} → {} tokens", time::count(used.input_tokens), time::count(used.output_tokens)));
    }
    if used.cost_micros > 0 {
        parts.push(time::cost(used.cost_micros));
    }
    if ended.synthetic {
        parts.push("closed".to_owned());
    } else if ended.call.found {
        parts.push("had happened before".to_owned());
    } else {
        parts.push(time::span(std::time::Duration::from_micros(ended.micros)));
    }
    if ended.call.attempt > 1 && !ended.call.found {
        parts.push(format!("try {}", ended.call.attempt));
    }
    parts.join(" · ")
}

/// `model gpt-5`, `search`, `fetch › download`.
fn named(call: &Call) -> String {
    let bold = |text: &str| format!("{}{}{}", style::BOLD, crate::ui::printable(text), style::RESET);
    match (&call.place, call.kind) {
        (Some(place), _) if *place != call.name => format!("{} › {}", bold(place), crate::ui::printable(&call.name)),
        _ => bold(&call.name),
    }
}

fn under_way(call: &Call, spinner: &str, width: usize) -> String {
    let what = call.progress.as_deref().unwrap_or(&call.given);
    let text = format!("{} {}", call.place.as_deref().map_or(String::new(), |place| format!("{place} ›")), call.name);
    let text = fit(&format!("{} {what}", text.trim()), width.saturating_sub(6));
    format!("{}├─ {}{spinner} {text}", style::DIM, style::RESET)
}

fn waiting(wait: &WaitOpened) -> String {
    let what = match wait.kind {
        WaitKind::Approval => "waits for approval",
        WaitKind::Question => "waits for an answer",
        WaitKind::Signal => "waits for the signal",
        WaitKind::Timer => "waits for a time",
    };
    let arguments = wait.arguments.as_ref().map(|arguments| fit(arguments.as_str(), 200)).unwrap_or_default();
    let prompt = fit(&wait.prompt, 200);
    let (warn, reset, dim) = (style::WARN, style::RESET, style::DIM);
    format!("{warn}? {what}:{reset} {prompt} {dim}{arguments}{reset}")
}

/// An event for programs.
fn as_json(event: &Event) -> serde_json::Value {
    match event {
        Event::Recorded { position, at, record } => {
            json!({"event": "record", "position": position.to_string(), "at": at, "record": record})
        }
        Event::Live(LiveEvent { run, after, kind }) => {
            let (name, value) = match kind {
                LiveKind::Text(text) => ("text", json!(text)),
                LiveKind::Reasoning(text) => ("reasoning", json!(text)),
                LiveKind::PartialFound(text) => ("partial_found", json!(text)),
                LiveKind::Progress { effect, value } => ("progress", json!({"effect": effect, "value": value})),
                LiveKind::Degraded { error } => ("degraded", json!(error)),
                LiveKind::StoreAway { error } => ("store_away", json!(error)),
                LiveKind::StoreBack => ("store_back", json!(null)),
                LiveKind::Notice(text) => ("notice", json!(text)),
                _ => ("other", json!(null)),
            };
            json!({"event": name, "run": run, "after": after, "value": value})
        }
        _ => json!({"event": "other"}),
    }
}
