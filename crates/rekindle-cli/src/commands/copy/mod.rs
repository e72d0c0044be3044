//! `rekindle copy`: sessions from one store to another, checked on arrival.

mod pipe;

use std::collections::BTreeMap;

use clap::Args;
use rekindle::operations::{self, Moved};
use rekindle::{BranchId, BranchInfo, Engine, Error, ErrorKind, Head, ImportOptions, SessionInfo, SessionKey};
use serde::Serialize;
use serde_json::{Map, json};

use super::each::Each;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{self, Outcome};
use crate::ui::live::Live;
use crate::ui::stream::Stream;
use crate::ui::{printable, style, time};

/// What to copy, and where to.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle copy --to file:./backup\n  rekindle copy --from sqlite:./old.db --to sqlite:./new.db trip-42\n\nIt can be stopped and repeated: what is there already is not copied again. Each session is read back and\nchecked."
)]
pub struct Arguments {
    /// The sessions; all of the namespace without any
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
    /// The store they are in; the usual one without this
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// The store they go to; made if it is not there
    #[arg(long, value_name = "URL")]
    to: String,
    /// Deletes what is there under the same id with another history, and copies anew
    #[arg(long)]
    replace: bool,
}

/// What came of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Came {
    /// It is new there.
    Copied,
    /// A part of it was there, and the rest came.
    Completed,
    /// It was there before.
    There,
    /// What was there was deleted first.
    Replaced,
}

#[derive(Serialize)]
struct Item<'a> {
    session: &'a SessionKey,
    outcome: Came,
    frames: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Sum {
    copied: u64,
    there: u64,
    failed: u64,
    bytes: u64,
    exit: Option<Exit>,
}

type Heads = BTreeMap<BranchId, Head>;

impl Arguments {
    /// Copies.
    pub async fn run(self, app: &App) -> Outcome {
        let from_url = self.from.clone().unwrap_or_else(|| app.settings.store_url());
        if place_of(&from_url) == place_of(&self.to) {
            return Err(Error::invalid("both stores are the same").hint("name another one with --to").into());
        }
        let from = app.engine_at(&from_url, Access::Existing)?;
        let mut each = match self.sessions.is_empty() {
            true => Each::all(&from).await?,
            false => Each::named(app, &from, &self.sessions).await?,
        };
        let to = app.engine_at(&self.to, Access::Create)?;
        let mut stream = if app.ui.is_json() { Some(Stream::begin("sessions")?) } else { None };
        let (mut live, mut sum) = (Live::new(app.ui.clone()), Sum::default());
        while let Some(session) = each.next(&from).await? {
            each.show(&mut live, "copying", &session);
            match self.copy(&from, &to, &session).await {
                Ok(item) => {
                    sum.add(&item);
                    stream.iter_mut().try_for_each(|stream| stream.item(&item))?;
                }
                // It was deleted since it was listed.
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                Err(error) if is_about_session(&error) => {
                    live.clear();
                    sum.failed += 1;
                    sum.exit.get_or_insert(Exit::of_error(error.kind()));
                    failure::of_one(&app.ui, &mut stream, &session, error)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        live.clear();
        match stream {
            Some(stream) => sum.end(stream)?,
            None => sum.tell(app, &self.to)?,
        }
        Ok(sum.exit.unwrap_or(Exit::Ok))
    }

    async fn copy<'a>(&self, from: &Engine, to: &Engine, session: &'a SessionKey) -> Result<Item<'a>, Error> {
        let source = from.journal().open(session).await?;
        let wanted = heads(&source);
        let existing = match to.journal().open(session).await {
            Ok(info) => Some(info),
            Err(error) if *error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let outcome = match &existing {
            None => Came::Copied,
            Some(info) if heads(info) == wanted && info.header.incarnation == source.header.incarnation => {
                return Ok(Item { session, outcome: Came::There, frames: 0, bytes: 0 });
            }
            Some(_) if self.replace => Came::Replaced,
            Some(info) if went_on(info, &wanted) => return Err(differs(&source, Some(info))),
            Some(_) => Came::Completed,
        };
        // Nothing of a damaged session arrives.
        sound(from, session, &Heads::new(), "is damaged, so it was not copied").await?;
        if outcome == Came::Replaced {
            operations::clear_session(to, session, false).await?;
        }
        let (moved, bytes) = match pipe::copy(from, to, session, ImportOptions::default()).await {
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => return Err(differs(&source, existing.as_ref())),
            other => other?,
        };
        check(to, session, &moved, &wanted).await?;
        Ok(Item { session, outcome, frames: moved.frames, bytes })
    }
}

/// Where a store is, however it is written: to replace a session by itself would be to lose it.
fn place_of(url: &str) -> String {
    let Some((scheme @ ("sqlite" | "file"), path)) = url.split_once(':') else { return url.to_owned() };
    let path = path.strip_prefix("//").unwrap_or(path);
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    format!("{scheme}:{}", place.display())
}

/// Reads the copy back.
async fn check(to: &Engine, session: &SessionKey, moved: &Moved, wanted: &Heads) -> Result<(), Error> {
    let seen = if moved.same_hashes { wanted.clone() } else { Heads::new() };
    sound(to, session, &seen, "did not arrive as it was").await
}

async fn sound(engine: &Engine, session: &SessionKey, seen: &Heads, what: &str) -> Result<(), Error> {
    let verified = operations::verify(engine, session, seen).await?;
    match verified.report.damage.into_iter().next() {
        Some(damage) if !verified.sound => Err(Error::corrupt(format!("the session {what}: {}", damage.detail))
            .during("copy")
            .on(session)
            .at(damage.position())
            .hint("`rekindle verify SESSION` lists all damage")),
        _ => Ok(()),
    }
}

fn heads(info: &SessionInfo) -> Heads {
    info.branches.iter().map(|branch| (branch.branch.clone(), branch.head)).collect()
}

/// Whether somebody has gone on with what is there.
fn went_on(there: &SessionInfo, wanted: &Heads) -> bool {
    let behind = |branch: &BranchInfo| wanted.get(&branch.branch).is_some_and(|head| branch.head.seq <= head.seq);
    !there.branches.iter().all(behind)
}

/// What is there is neither the same nor the beginning of it.
fn differs(source: &SessionInfo, existing: Option<&SessionInfo>) -> Error {
    let mut message = "there is another history of that id already".to_owned();
    let other = |branch: &BranchId| existing.and_then(|info| info.branch(branch).ok());
    let differing = source.branches.iter().find_map(|branch| {
        other(&branch.branch).filter(|there| there.head != branch.head).map(|there| (branch, there))
    });
    if let Some((here, there)) = differing {
        let how = match there.head.seq.cmp(&here.head.seq) {
            std::cmp::Ordering::Less => "an older copy is there already",
            std::cmp::Ordering::Equal => "another history is there already",
            std::cmp::Ordering::Greater => "a longer history is there already",
        };
        message = format!(
            "{how}: its branch {} ends at record {}, the one to copy at {}",
            here.branch, there.head.seq, here.head.seq
        );
    }
    Error::new(ErrorKind::AlreadyExists, message).during("copy").hint("--replace deletes what is there and copies anew")
}

/// Whether one session cannot be copied while others can.
fn is_about_session(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Corrupt
            | Kind::VersionTooNew { .. }
            | Kind::KeyMissing { .. }
            | Kind::AlreadyExists
            | Kind::Protected
            | Kind::AlreadyRunning { .. }
    )
}

impl Sum {
    fn add(&mut self, item: &Item<'_>) {
        match item.outcome {
            Came::There => self.there += 1,
            _ => self.copied += 1,
        }
        self.bytes += item.bytes;
    }

    fn end(&self, stream: Stream) -> std::io::Result<()> {
        let fields = json!({"copied": self.copied, "there": self.there, "failed": self.failed, "bytes": self.bytes});
        stream.end(fields.as_object().unwrap_or(&Map::new()))
    }

    fn tell(&self, app: &App, to: &str) -> std::io::Result<()> {
        let mut line = format!("copied {} to {}", time::counted(self.copied, "session"), printable(to));
        if self.copied > 0 {
            line.push_str(&format!(", {}, checked", time::bytes(self.bytes)));
        }
        if self.there > 0 {
            let were = if self.there == 1 { "was" } else { "were" };
            line.push_str(&format!("; {} {were} there already", time::count(self.there)));
        }
        if self.failed > 0 {
            line.push_str(&format!("; {}{} failed{}", style::BAD, time::count(self.failed), style::RESET));
        }
        app.ui.line(line)
    }
}
