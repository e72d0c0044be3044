//! Expected results of commands over a damaged store, compared with what they gave.

use crate::moving::frames;
use crate::processes::lines;
use crate::support::Said;

use super::prepared::{Copied, Prepared};

/// The expected result of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It ends with 0, everything is there, and nothing is said. A run is done.
    Sound,
    /// The same, with a note.
    Notes,
    /// It ends with 7 and says this.
    Finds(&'static str),
    /// It ends with 3 and says this.
    Gone(&'static str),
    /// A copy ends with 0 and is as damaged as the original, as `verify` says of it.
    Carries,
    /// It ends with 0, or a run waits again, although something is not as it was. Only what the documentation says
    /// cannot be noticed; the table names the sentence.
    Unnoticed,
}
use Told::{Carries, Finds, Gone, Notes, Sound, Unnoticed};

/// The expected results of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub verify: Told,
    pub verify_all: Told,
    pub export: Told,
    pub export_all: Told,
    pub copy: Told,
    pub resume: Told,
    /// True if the call before is made a second time.
    pub repeats: bool,
}

/// A cell of the table; nothing where the damage cannot be done.
pub type Cell = Option<Expected>;

/// `verify` names the kind of damage, everything else refuses with a code.
const fn refused(kind: &'static str, code: &'static str) -> Expected {
    Expected {
        verify: Finds(kind),
        verify_all: Finds(kind),
        export: Finds(code),
        export_all: Finds(code),
        copy: Finds(code),
        resume: Finds(code),
        repeats: false,
    }
}

/// The same for what a session is refused for by most.
const fn damaged(kind: &'static str) -> Cell {
    Some(refused(kind, "RK0011"))
}

/// The session is not found, and whatever works through all says why.
const fn gone(one: &'static str, all: Told) -> Cell {
    let lost = Gone(one);
    Some(Expected {
        verify: lost,
        verify_all: all,
        export: lost,
        export_all: all,
        copy: all,
        resume: lost,
        repeats: false,
    })
}

const WHOLE: Expected = Expected {
    verify: Sound,
    verify_all: Sound,
    export: Sound,
    export_all: Sound,
    copy: Sound,
    resume: Sound,
    repeats: false,
};

/// It decides nothing: everything goes on as if it had not happened.
pub const NOTHING: Cell = Some(WHOLE);
/// It cannot be done there.
pub const NONE: Cell = None;
/// Bytes of frames were changed.
pub const CHECKSUM: Cell = damaged("checksum");
/// A frame is of another session.
pub const CHAIN: Cell = damaged("chain");
/// Frames or branches are missing.
pub const MISSING: Cell = damaged("missing");
/// The header is not that of the session.
pub const HEADER: Cell = damaged("header");
/// A branch does not begin as one that somebody with the key forked.
pub const FORGED: Cell = damaged("head");
/// The index does not fit the frames.
pub const INDEX: Cell = damaged("index");
/// The session cannot be opened.
pub const CLOSED: Cell = damaged("RK0011");
/// Only verification compares it; nothing else goes by it.
pub const COMPARED: Cell = Some(Expected { verify: Finds("index"), verify_all: Finds("index"), ..WHOLE });
/// The session is read from the copy of its index.
pub const FROM_COPY: Cell = Some(Expected {
    verify: Finds("session.copy"),
    verify_all: Finds("session.copy"),
    export: Notes,
    export_all: Notes,
    ..WHOLE
});
/// The data key cannot be read, or does not open.
pub const KEY_DAMAGED: Cell = Some(Expected { copy: Finds("RK0011"), ..refused("key", "RK0013") });
/// The same, where only who has the main key can tell: a copy needs no key.
pub const KEY_LOST: Cell = Some(Expected { copy: Carries, ..refused("key", "RK0013") });
/// Marks show that the session is older than it was. It can be exported, which says so.
pub const SET_BACK: Cell = Some(Expected {
    export: Finds("older state"),
    export_all: Finds("older state"),
    copy: Finds("RK0011"),
    ..refused("rolled_back", "RK0027")
});
/// Marks show that the session was there.
pub const MISSED: Cell = gone("was there", Finds("was there"));
/// Records are left of a session that is not found.
pub const HEADLESS: Cell = gone("there is no session", Finds("its row is gone"));
/// Nothing shows that there was a session.
pub const FORGOTTEN: Cell = gone("there is no session", Unnoticed);
/// The session is found by its name and not listed.
pub const UNLISTED: Cell =
    Some(Expected { verify_all: Finds("s "), export_all: Finds("left out"), copy: Finds("left out"), ..WHOLE });
/// An older state, which was once a whole one.
pub const OLDER: Cell = Some(Expected {
    verify: Unnoticed,
    verify_all: Unnoticed,
    export: Unnoticed,
    export_all: Unnoticed,
    copy: Unnoticed,
    resume: Unnoticed,
    repeats: true,
});
/// The same, with all calls on record.
pub const SHORTER: Cell = match OLDER {
    Some(older) => Some(Expected { repeats: false, ..older }),
    None => None,
};
/// A branch that somebody without a key may make up: only who runs it repeats the call.
pub const MADE_UP: Cell = Some(Expected { resume: Unnoticed, repeats: true, ..WHOLE });

/// Compares what a command said with what it was expected to say; what is wrong, if anything.
pub fn compare(column: &str, expected: Told, said: &Said, copied: &Copied, prepared: &Prepared) -> Option<String> {
    let text = format!("{}\n{}", said.out, said.err);
    let wrong =
        |what: &str| Some(format!("{column}: {what}; expected {expected:?}, ended with {}:\n{text}", said.code));
    if matches!(said.code, 101 | 124 | 137 | -1) || text.contains("panicked") {
        return wrong("it panicked, hung or was killed");
    }
    if said.code == 0 && expected != Unnoticed && left_out(column, copied) {
        return wrong("a session was left out");
    }
    let is_right = match expected {
        Sound | Notes => said.code == 0 && says(column, expected, said) && is_whole(column, said, copied, prepared),
        Finds(what) => said.code == 7 && text.contains(what),
        Gone(what) => said.code == 3 && text.contains(what),
        Carries => said.code == 0 && copied.run(&["verify", "--all", "--store", "sqlite:./copy.db"]).code == 7,
        Unnoticed => said.code == if column == "resume" { 4 } else { 0 },
    };
    if is_right { None } else { wrong("it says something else") }
}

/// Returns whether a session is missing in what a command over all sessions wrote.
fn left_out(column: &str, copied: &Copied) -> bool {
    match column {
        "export --all" => std::fs::read_dir(copied.place.path("all")).unwrap().count() < 2,
        "copy" => {
            let copy = rusqlite::Connection::open(copied.place.path("copy.db")).unwrap();
            copy.query_row("SELECT count(*) < 2 FROM sessions", [], |row| row.get(0)).unwrap()
        }
        _ => false,
    }
}

/// Returns whether there is a note exactly if one was expected. An export of an encrypted store always has one.
fn says(column: &str, expected: Told, said: &Said) -> bool {
    let notes = said.err.lines().filter(|line| !line.contains("the store is encrypted, an export is not"));
    column == "resume" || (expected == Notes) == notes.into_iter().any(|line| line.starts_with("note:"))
}

/// Returns whether a command gave all that was there before the damage.
fn is_whole(column: &str, said: &Said, copied: &Copied, prepared: &Prepared) -> bool {
    let exported = |path: &str| {
        let text = std::fs::read_to_string(copied.place.path(path)).unwrap();
        unsigned(&text) == unsigned(&prepared.exported)
    };
    match column {
        "export" => exported("s.jsonl"),
        "export --all" => exported("all/s.rekindle.jsonl"),
        "resume" => said.out.contains("done") && lines(&copied.place.path("ledger.txt")) == ["one", "two"],
        _ => true,
    }
}

/// The frames of an export without its signatures, which cover the time of the export.
fn unsigned(exported: &str) -> Vec<serde_json::Value> {
    let read = |line: String| {
        let mut frame: serde_json::Value = serde_json::from_str(&line).unwrap();
        frame["crc"].take();
        frame["store"]["signature"].take();
        frame
    };
    frames(exported).into_iter().map(read).collect()
}
