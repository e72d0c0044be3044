//! What came of all sessions, in one line or for programs.

use rekindle::Error;
use rekindle::core::{CopyOutcome, CopyReport};
use rekindle_store::shown_url;
use serde_json::{Map, json};

use crate::app::App;
use crate::exit::Exit;
use crate::ui::stream::Stream;
use crate::ui::{printable, style, time};

/// What came of all sessions.
#[derive(Debug, Default)]
pub struct Sum {
    dry_run: bool,
    copied: u64,
    updated: u64,
    there: u64,
    skipped: u64,
    replaced: u64,
    renamed: u64,
    failed: u64,
    running: u64,
    unchecked: u64,
    records: u64,
    bytes: u64,
    /// How the program ends, if not well.
    pub exit: Option<Exit>,
}

impl Sum {
    pub fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    pub fn add(&mut self, report: &CopyReport) {
        let counted = match report.outcome {
            CopyOutcome::Copied => &mut self.copied,
            CopyOutcome::Updated => &mut self.updated,
            CopyOutcome::There => &mut self.there,
            CopyOutcome::Skipped => &mut self.skipped,
            CopyOutcome::Replaced => &mut self.replaced,
        };
        *counted += 1;
        self.renamed += u64::from(report.renamed.is_some());
        self.running += u64::from(report.running);
        self.unchecked += u64::from(report.unchecked > 0);
        self.records += report.records;
        self.bytes += report.bytes;
    }

    pub fn fail(&mut self, error: &Error) {
        self.failed += 1;
        self.exit.get_or_insert(Exit::of_error(error.kind()));
    }

    pub fn tell(&self, app: &App, stream: Option<Stream>, to: &str) -> std::io::Result<()> {
        if let Some(stream) = stream {
            return stream.end(self.fields().as_object().unwrap_or(&Map::new()));
        }
        app.ui.line(self.line(&printable(&shown_url(to))))?;
        let note = |number: u64, one: &str, many: &str| {
            if number > 0 {
                let (warn, reset) = (style::WARN, style::RESET);
                let words = if number == 1 { one } else { many };
                app.ui.remark(format!("{warn}note:{reset} {} {words}", time::count(number)));
            }
        };
        note(
            self.running,
            "session runs: what was durable when its copy began was copied",
            "sessions run: what was durable when their copies began was copied",
        );
        note(
            self.unchecked,
            "session is keyed with a key that is not set here: its links were checked, its hashes not",
            "sessions are keyed with keys that are not set here: their links were checked, their hashes not",
        );
        Ok(())
    }

    fn fields(&self) -> serde_json::Value {
        json!({
            "dry_run": self.dry_run, "copied": self.copied, "updated": self.updated, "there": self.there,
            "skipped": self.skipped, "replaced": self.replaced, "renamed": self.renamed, "failed": self.failed,
            "running": self.running, "records": self.records, "bytes": self.bytes,
        })
    }

    fn line(&self, to: &str) -> String {
        let new = self.copied + self.updated + self.replaced;
        let mut line = match self.dry_run {
            true => format!("would copy {} to {to}", time::counted(new, "session")),
            false => format!("copied {} to {to}", time::counted(new, "session")),
        };
        if new > 0 && self.dry_run {
            line.push_str(&format!(", {}", time::counted(self.records, "record")));
        } else if new > 0 {
            line.push_str(&format!(", {}", time::bytes(self.bytes)));
        }
        let parts = [
            (self.updated, "brought up to date", "brought up to date"),
            (self.replaced, "replaced", "replaced"),
            (self.renamed, "renamed", "renamed"),
            (self.there, "was there already", "were there already"),
            (self.skipped, "skipped", "skipped"),
        ];
        for (number, one, many) in parts.into_iter().filter(|(number, ..)| *number > 0) {
            line.push_str(&format!("; {} {}", time::count(number), if number == 1 { one } else { many }));
        }
        if self.failed > 0 {
            line.push_str(&format!("; {}{} failed{}", style::BAD, time::count(self.failed), style::RESET));
        }
        line
    }
}
