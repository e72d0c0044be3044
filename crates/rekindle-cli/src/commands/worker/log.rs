//! What a worker does, as a line for each thing: for people on standard error, as JSON on standard
//! output.

use std::time::Duration;

use rekindle::SessionKey;
use rekindle::core::record::RunOutcome;
use rekindle::worker::{WorkerEvent, WorkerReport};
use serde_json::json;

use crate::app::App;
use crate::owner;
use crate::ui::{Ui, printable, style, time};
use crate::words::{name_of, next};

/// Where it is said.
#[derive(Clone)]
pub struct Log {
    ui: Ui,
    app: App,
}

impl Log {
    pub fn new(app: &App) -> Self {
        Self { ui: app.ui.clone(), app: app.clone() }
    }

    /// Where it is said.
    pub fn ui(&self) -> &Ui {
        &self.ui
    }

    /// Says what happened.
    pub fn tell(&self, event: &WorkerEvent) {
        if self.ui.is_json() {
            // Whoever closed standard output wants to hear nothing.
            let _ = self.ui.json_line(event);
        } else {
            self.remark(event);
        }
    }

    /// Says what happened on standard error: standard output is for others.
    pub fn remark(&self, event: &WorkerEvent) {
        if let Some(line) = self.line(event) {
            self.ui.remark(line);
        }
    }

    /// Says where clients are served, and where their token is if one was made for them.
    pub fn serving(&self, url: &str, token: Option<&std::path::Path>) -> std::io::Result<()> {
        if self.ui.is_json() {
            let mut line = json!({ "event": "serving", "url": url });
            if let Some(path) = token {
                line["token_file"] = path.display().to_string().into();
            }
            return self.ui.json_line(&line);
        }
        self.ui.note(format!("serving {}{url}{}", style::NAME, style::RESET));
        Ok(())
    }

    /// Says that it was asked to stop.
    pub fn stopping(&self, signal: &str, again: bool) {
        let (warn, reset) = (style::WARN, style::RESET);
        self.ui.remark(match again {
            false => {
                format!("{warn}{signal}:{reset} draining: runs pause, other workers go on; again to stop calls too")
            }
            true => format!("{warn}{signal}:{reset} stopping at once: calls under way are in doubt"),
        });
    }

    /// Says what came of it all.
    pub fn end(&self, report: &WorkerReport) -> std::io::Result<()> {
        if self.ui.is_json() {
            let mut line = json!(report);
            line["event"] = json!("report");
            return self.ui.json_line(&line);
        }
        let counts = [
            ("succeeded", report.succeeded),
            ("failed", report.failed),
            ("cancelled", report.cancelled),
            ("waiting", report.waiting),
            ("paused", report.paused),
            ("held", report.held),
            ("given up", report.gave_up),
        ];
        let counts = counts.iter().filter(|(_, number)| *number > 0);
        let counts: Vec<String> = counts.map(|(what, number)| format!("{} {what}", time::count(*number))).collect();
        let runs = if counts.is_empty() { "nothing was run".to_owned() } else { counts.join(", ") };
        self.ui.remark(format!("stopped: {}; {runs}", time::counted(report.claimed, "job")));
        Ok(())
    }

    fn line(&self, event: &WorkerEvent) -> Option<String> {
        let (warn, error, dim, reset) = (style::WARN, style::ERROR, style::DIM, style::RESET);
        Some(match event {
            WorkerEvent::Started { worker, slots } => {
                let named = owner::named(worker.as_str());
                format!("working: {named}, {} at once", time::counted(u64::from(*slots), "job"))
            }
            WorkerEvent::Claimed { session, attempt: 0 | 1 } => format!("{dim}claimed{reset} {}", id(session)),
            WorkerEvent::Claimed { session, attempt } => {
                format!("{dim}claimed{reset} {} {dim}(attempt {attempt}){reset}", id(session))
            }
            WorkerEvent::Ran { session, outcome, reason } => self.ran(session, *outcome, reason),
            WorkerEvent::Done { session } => format!("{dim}done{reset} {}", id(session)),
            WorkerEvent::Waits { session, after: Some(after) } => {
                format!("{dim}waits{reset} {} {dim}for {} at most{reset}", id(session), time::span(*after))
            }
            WorkerEvent::Waits { session, .. } => format!("{dim}waits{reset} {}", id(session)),
            WorkerEvent::GivenBack { session, after, reason } => {
                let (after, reason) = (time::span(*after), printable(reason));
                format!("{warn}given back{reset} {}: {reason} {dim}(again in {after}){reset}", id(session))
            }
            WorkerEvent::Held { session, reason } => {
                let line = next::line(&self.app, ["enqueue", session.id.as_str()]);
                let (reason, line) = (printable(reason), printable(&line));
                format!("{error}held{reset} {}: {reason}; then: {line}", id(session))
            }
            WorkerEvent::GaveUp { session, reason } => {
                format!("{error}gave up{reset} {}: {}", id(session), printable(reason))
            }
            WorkerEvent::Lost { session } => {
                format!("{warn}lost{reset} {}: another worker has it", id(session))
            }
            WorkerEvent::ClockOff { seconds } => {
                let off = time::span(Duration::try_from_secs_f64(seconds.abs()).unwrap_or(Duration::MAX));
                let way = if *seconds < 0.0 { "ahead of" } else { "behind" };
                format!("{warn}note:{reset} this machine's clock is {off} {way} the store's; timers go by the store's")
            }
            WorkerEvent::StoreAway { error: why } => format!("{warn}store:{reset} {}", printable(why)),
            WorkerEvent::Draining { running } => {
                format!("draining: {} under way", time::counted(*running as u64, "job"))
            }
            _ => return None,
        })
    }

    fn ran(&self, session: &SessionKey, outcome: RunOutcome, reason: &str) -> String {
        let (colour, reset) = match outcome {
            RunOutcome::Failed => (style::ERROR, style::RESET),
            RunOutcome::Paused | RunOutcome::Cancelled => (style::WARN, style::RESET),
            _ => (style::DIM, style::RESET),
        };
        let reason = if reason.is_empty() { String::new() } else { format!(": {}", printable(reason)) };
        format!("{colour}{}{reset} {}{reason}", name_of(&outcome), id(session))
    }
}

fn id(session: &SessionKey) -> String {
    format!("{}{}{}", style::NAME, printable(session.id.as_str()), style::RESET)
}
