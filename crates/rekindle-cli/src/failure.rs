//! What went wrong, as people and programs are told.

use std::error::Error as _;
use std::io;

use rekindle::{Error, SessionKey};
use rekindle_definitions::Faults;
use serde_json::json;

use crate::exit::Exit;
use crate::ui::stream::Stream;
use crate::ui::{Ui, style};

/// What a command comes to.
pub type Outcome = Result<Exit, Failure>;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// An error of Rekindle.
    Error(Error),
    /// Files that are not right.
    Faults(Faults),
    /// Nobody reads the output any more.
    Closed,
}

impl Failure {
    /// Says what went wrong, and gives the exit status.
    pub fn tell(&self, ui: &Ui) -> Exit {
        match self {
            Self::Closed => Exit::Ok,
            Self::Error(error) => {
                if ui.is_json() {
                    ui.error_json(&describe(error))
                } else {
                    tell_error(ui, error)
                }
                Exit::of_error(error.kind())
            }
            Self::Faults(faults) => {
                if ui.is_json() {
                    ui.error_json(&describe_faults(faults))
                } else {
                    tell_faults(ui, faults)
                }
                Exit::Usage
            }
        }
    }
}

/// `error[RK0003]: …`, where, why and what to do.
fn tell_error(ui: &Ui, error: &Error) {
    let (red, bold, dim, reset) = (style::ERROR, style::BOLD, style::DIM, style::RESET);
    ui.note(format!("{red}error[{}]{reset}{bold}: {}{reset}", error.code(), clean(error.message())));
    if let Some(session) = error.session() {
        let place = error.position().map(|position| format!(" at {position}")).unwrap_or_default();
        ui.note(format!("  {dim}-->{reset} session {}{place}", clean(session.id.as_str())));
    }
    for cause in causes(error) {
        ui.note(format!("  {dim}because:{reset} {}", clean(&cause)));
    }
    ui.hint(error.next_step());
    ui.note(format!("{dim}more: rekindle explain {}{reset}", error.code()));
}

fn tell_faults(ui: &Ui, faults: &Faults) {
    for (number, fault) in faults.iter().enumerate() {
        if number > 0 {
            ui.note("");
        }
        let text = fault.render();
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let first = first.strip_prefix("error").unwrap_or(first);
        ui.note(format!("{}error{}{}{first}{}", style::ERROR, style::RESET, style::BOLD, style::RESET));
        if !rest.is_empty() {
            ui.note(rest);
        }
    }
}

/// Why, from the nearest cause to the first one. A cause that only repeats the one it wraps, or only
/// says that there is one, is left out.
fn causes(error: &Error) -> Vec<String> {
    let chain = std::iter::successors(error.source(), |cause| (*cause).source());
    let mut causes: Vec<String> = chain.map(ToString::to_string).collect();
    causes.dedup();
    if causes.len() > 1 {
        causes.retain(|cause| cause != "db error");
    }
    causes
}

/// The same for programs.
pub fn describe(error: &Error) -> serde_json::Value {
    json!({"error": {
        "code": error.code(),
        "message": error.message(),
        "operation": error.operation(),
        "session": error.session().map(|session| session.id.to_string()),
        "position": error.position().map(ToString::to_string),
        "causes": causes(error),
        "hint": error.next_step(),
    }})
}

/// Tells what went wrong with one session of many: as an item of the list, or at once.
pub fn of_one(ui: &Ui, list: &mut Option<Stream>, session: &SessionKey, error: Error) -> io::Result<()> {
    match list {
        Some(list) => list.item(&json!({"session": session, "outcome": "failed", "error": describe(&error)["error"]})),
        None => {
            Failure::from(error.on(session)).tell(ui);
            Ok(())
        }
    }
}

/// Tells of a session that a command over all sessions left out; of some not even the name is known.
pub fn of_left_out(ui: &Ui, list: &mut Option<Stream>, session: Option<&SessionKey>, error: Error) -> io::Result<()> {
    match (session, list) {
        (Some(session), list) => of_one(ui, list, session, error),
        (None, Some(list)) => list.item(&json!({"outcome": "failed", "error": describe(&error)["error"]})),
        (None, None) => {
            Failure::from(error).tell(ui);
            Ok(())
        }
    }
}

fn describe_faults(faults: &Faults) -> serde_json::Value {
    let faults: Vec<_> = faults
        .iter()
        .map(|fault| {
            json!({
                "message": fault.message, "file": fault.file, "line": fault.line, "column": fault.column,
                "path": fault.path, "hint": fault.hint,
            })
        })
        .collect();
    json!({"error": {"code": "RK0001", "message": "a file is not right", "faults": faults}})
}

/// The same for a command line that cannot be read.
pub fn describe_usage(mistake: &clap::Error) -> serde_json::Value {
    let text = mistake.to_string();
    let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let message = message.strip_prefix("error: ").unwrap_or(message).trim_end();
    json!({"error": {"code": "RK0001", "message": message, "hint": rest.trim()}})
}

/// Text from elsewhere without what a terminal would obey.
fn clean(text: &str) -> String {
    crate::ui::printable(text)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // What comes from files keeps its places.
        match error.source().and_then(|source| source.downcast_ref::<Faults>()) {
            Some(faults) => Self::Faults(faults.clone()),
            None => Self::Error(error),
        }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

impl From<io::Error> for Failure {
    /// Writing to standard output failed.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(
                Error::new(rekindle::ErrorKind::PersistFailed, "the output cannot be written").because(error),
            ),
        }
    }
}
