//! Sessions that other programs stored.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rekindle::{Engine, Error, ErrorKind};
use rekindle_import::{Existing, ImportOptions, ImportReport, Note};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::table::{Cell, Table};
use crate::ui::{printable, style};

/// How many notes of a kind are shown.
const SHOWN: usize = 20;

/// Which form, and how.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Other programs' stores")]
pub struct Foreign {
    /// The form of the store: json-sessions, checkpoint-table or session-directory
    #[arg(long, value_enum, value_name = "FORM", hide_possible_values = true)]
    pub from: Option<Form>,
    /// Says what would be imported, and writes nothing
    #[arg(long, requires = "from")]
    dry_run: bool,
    /// What is done with a session whose id is taken: refuse or skip
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Taken::Refuse, requires = "from", hide_possible_values = true)]
    existing: Taken,
}

/// The forms of other programs' stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Folders of JSON: sessions/ID/manifest.json
    JsonSessions,
    /// A SQLite table `checkpoints`
    CheckpointTable,
    /// Directories of graph runs: sessions/ID/state.json
    SessionDirectory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Taken {
    /// Nothing is imported
    Refuse,
    /// That one is left out
    Skip,
}

impl Foreign {
    /// Imports them.
    pub async fn run(&self, app: &App, form: Form, paths: &[PathBuf]) -> Outcome {
        let engine = self.engine(app)?;
        let mut options = ImportOptions::new();
        options.dry_run = self.dry_run;
        options.existing = if self.existing == Taken::Skip { Existing::Skip } else { Existing::Refuse };
        let mut all = ImportReport { dry_run: self.dry_run, ..ImportReport::default() };
        for path in paths {
            let report = import(&engine, form, path, options.clone()).await.map_err(explained)?;
            all.sessions.extend(report.sessions);
            all.skipped.extend(report.skipped);
            all.warnings.extend(report.warnings);
            all.redacted.extend(report.redacted);
        }
        match app.ui.is_json() {
            true => app.ui.json(&all)?,
            false => tell(app, &all)?,
        }
        Ok(Exit::Ok)
    }

    /// A dry run makes no store.
    fn engine(&self, app: &App) -> Result<Engine, Error> {
        if !self.dry_run {
            return app.engine(Access::Create);
        }
        match app.engine(Access::Existing) {
            Err(error) if *error.kind() == ErrorKind::NotFound => app.engine_at("memory:", Access::Create),
            engine => engine,
        }
    }
}

async fn import(engine: &Engine, form: Form, path: &Path, options: ImportOptions) -> Result<ImportReport, Error> {
    match form {
        Form::JsonSessions => rekindle_import::json_sessions(engine, path, options).await,
        Form::CheckpointTable => rekindle_import::checkpoint_table(engine, path, options).await,
        Form::SessionDirectory => rekindle_import::session_directory(engine, path, options).await,
    }
}

fn explained(error: Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            error.hint("leave it as it is with --existing skip, or import into another --namespace")
        }
        _ => error,
    }
}

fn tell(app: &App, report: &ImportReport) -> std::io::Result<()> {
    if !report.sessions.is_empty() {
        let mut table = Table::new(&["SESSION", "STATUS", "CHECKPOINTS"]).elastic(0);
        for imported in &report.sessions {
            let status = imported.status.to_string();
            table.row([
                Cell::styled(imported.session.id.as_str(), style::NAME),
                Cell::styled(format!("{} {status}", style::sign_of_status(&status)), style::of_status(&status)),
                Cell::new(imported.checkpoints.len().to_string()),
            ]);
        }
        table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
    }
    tell_notes(app, "left out", &report.skipped)?;
    tell_notes(app, "not quite as it was", &report.warnings)?;
    let redacted = report.redacted.iter().map(|value| Note {
        place: format!("{}, key {}", value.session.id, value.key),
        reason: format!("taken out of {}; give it again at the resume", value.place),
    });
    tell_notes(app, "secrets", &redacted.collect::<Vec<_>>())?;
    for anew in report.sessions.iter().filter(|imported| imported.done_anew) {
        app.ui.remark(format!(
            "an earlier import of {} was stopped; it was done anew",
            printable(anew.session.id.as_str())
        ));
    }
    let sessions = crate::ui::time::counted(report.sessions.len() as u64, "session");
    match report.dry_run {
        true => app.ui.remark(format!("{}{sessions} to import; nothing was written{}", style::WARN, style::RESET)),
        false => app.ui.remark(format!("{sessions} imported")),
    }
    Ok(())
}

fn tell_notes(app: &App, title: &'static str, notes: &[Note]) -> std::io::Result<()> {
    if notes.is_empty() {
        return Ok(());
    }
    app.ui.line(format!("\n{}{title}{}", style::BOLD, style::RESET))?;
    let mut table = Table::new(&["WHERE", "WHY"]);
    for note in notes.iter().take(SHOWN) {
        table.row([Cell::new(&note.place), Cell::new(&note.reason)]);
    }
    table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
    if notes.len() > SHOWN {
        app.ui.remark(format!("and {} more; --json has them all", notes.len() - SHOWN));
    }
    Ok(())
}
