//! `rekindle verify`: reads and checks every byte of sessions.

mod accept;
mod receipt;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use rekindle::core::high_water;
use rekindle::core::high_water::GoneSession;
use rekindle::core::{Damage, DamageKind, Defect, Head};
use rekindle::operations::{self, Verified};
use rekindle::{BranchId, Engine, Error, ErrorKind, SessionKey};
use serde::Deserialize;
use serde_json::{Map, json};

use super::each::{Each, gone, unless_deleted};
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{self, Outcome};
use crate::ui::live::Live;
use crate::ui::stream::Stream;
use crate::ui::table::{Cell, Table};
use crate::ui::{printable, style, time};
use crate::words::next;

/// The largest file of heads.
const MAX_SEEN: u64 = 1 << 30;
/// Number of places of damage kept to be shown; all are counted.
const SHOWN: usize = 1_000;
/// The kind of damage that marks show, as it is written.
const ROLLED_BACK: &str = "rolled_back";
/// The kind of a session that only an earlier verification saw.
const GONE: &str = "gone";

/// Which sessions.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle verify @\n  rekindle verify --all --json > heads.json\n  rekindle verify --all --seen heads.json\n  rekindle verify @ --accept --reason \"restored from Monday's backup\"\n\nEnds with 7 if anything is damaged, was set back to an older state or is gone, as the marks beside the\nstore (or those of --seen) show. --accept takes such a state for the right one and puts that on record:\ncalls whose records are gone may have happened, and a resume makes them again."
)]
pub struct Arguments {
    /// The sessions
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
    /// All sessions of the namespace
    #[arg(long, conflicts_with = "sessions")]
    all: bool,
    /// What an earlier `verify --json` printed: all of that must still be there
    #[arg(long, value_name = "FILE")]
    seen: Option<PathBuf>,
    /// Take an older state for the right one, or that a session is gone
    #[arg(long, conflicts_with = "seen", requires = "reason")]
    accept: bool,
    /// Why it is accepted, for the record
    #[arg(long, value_name = "TEXT", requires = "accept")]
    reason: Option<String>,
    /// Check the receipts of `sessions rm --receipt`, and what is left of the sessions they name
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sessions", "all", "seen", "accept"])]
    receipt: Option<PathBuf>,
}

type Heads = BTreeMap<BranchId, Head>;

/// What was found in all sessions.
#[derive(Debug, Default)]
struct Sum {
    sessions: u64,
    damaged: u64,
    records: u64,
    bytes: u64,
    torn: u64,
    found: Vec<(Option<SessionKey>, String, String, String)>,
    more: u64,
    /// What is wrong with the store outside its sessions.
    defects: Vec<Defect>,
    gone: BTreeSet<SessionKey>,
}

impl Arguments {
    /// Verifies them.
    pub async fn run(self, app: &App) -> Outcome {
        if let Some(file) = &self.receipt {
            return receipt::run(app, file).await;
        }
        if self.sessions.is_empty() && !self.all {
            let hint = "name one (`rekindle verify @`), or say --all";
            return Err(Error::invalid("nothing says which session to verify").hint(hint).into());
        }
        let mut seen = self.seen.as_deref().map(read_seen).transpose()?.unwrap_or_default();
        let engine = app.engine(Access::Existing)?;
        if self.accept {
            return accept::run(app, &engine, &self.sessions, self.reason.as_deref()).await;
        }
        let mut sum = Sum::default();
        if self.all {
            sum.defects(operations::check(&engine).await?);
        }
        let mut each = match self.all {
            true => Each::all(&engine).await?,
            false => Each::named(app, &engine, &self.sessions).await?,
        };
        let mut stream = if app.ui.is_json() { Some(Stream::begin("sessions")?) } else { None };
        let mut live = Live::new(app.ui.clone());
        while let Some(session) = each.next(&engine).await? {
            each.show(&mut live, "verifying", &session);
            let heads = seen.remove(&session).unwrap_or_default();
            let verified = verify(&engine, &session, &heads).await?;
            let Some(verified) = verified else { continue };
            sum.add(&session, &verified);
            if let Some(stream) = &mut stream {
                match &verified {
                    Ok(verified) => stream.item(verified)?,
                    Err(error) => stream.item(&json!({
                        "session": session, "sound": false, "error": failure::describe(error)["error"],
                    }))?,
                }
            }
        }
        live.clear();
        if self.all {
            seen.retain(|session, _| session.namespace == *engine.namespace());
            sum.gone(gone(app, &engine).await, seen);
        }
        match stream {
            Some(stream) => sum.end(stream)?,
            None => sum.tell(app)?,
        }
        let reachable = tell_of_places(app, &engine);
        Ok(match (sum.is_sound(), reachable) {
            (true, true) => Exit::Ok,
            (true, false) => Exit::Unreachable,
            (false, _) => Exit::Integrity,
        })
    }
}

/// What verification found, or why the session cannot be verified. Nothing if it was deleted.
async fn verify(engine: &Engine, session: &SessionKey, seen: &Heads) -> Result<Option<Result<Verified, Error>>, Error> {
    match operations::verify(engine, session, seen).await {
        Ok(verified) => Ok(Some(Ok(verified))),
        Err(error) => match unless_deleted(engine, session, error).await? {
            None => Ok(None),
            Some(error) if is_about_session(&error) => Ok(Some(Err(error))),
            Some(error) => Err(error),
        },
    }
}

/// Returns whether one session cannot be verified while others can.
fn is_about_session(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionTooNew { .. } | ErrorKind::KeyMissing { .. })
}

/// Says which marks could not be compared. Whether the anchor could.
fn tell_of_places(app: &App, engine: &Engine) -> bool {
    let places = engine.journal().store().high_water().map(|marks| marks.places()).unwrap_or_default();
    let (warn, reset) = (style::WARN, style::RESET);
    for place in &places {
        if let Some(trouble) = &place.trouble {
            let name = printable(&place.place);
            app.ui.remark(format!("{warn}note:{reset} not compared with the marks in {name}: {trouble}"));
        }
    }
    !places.iter().any(|place| place.anchor && place.trouble.is_some())
}

impl Sum {
    fn is_sound(&self) -> bool {
        self.damaged == 0 && self.defects.is_empty()
    }

    fn defects(&mut self, defects: Vec<Defect>) {
        for Defect { session, place, detail, .. } in &defects {
            self.note(session.clone(), place.clone(), "store".to_owned(), detail.clone());
        }
        self.defects = defects;
    }

    /// Sessions that were there, by marks and by an earlier verification.
    fn gone(&mut self, marked: Vec<GoneSession>, seen: BTreeMap<SessionKey, Heads>) {
        let marked = marked.into_iter().map(|gone| (gone.session, gone.heads, ROLLED_BACK));
        let seen = seen.into_iter().map(|(session, heads)| (session, heads, GONE));
        for (session, heads, kind) in marked.chain(seen) {
            if self.gone.insert(session.clone()) {
                self.damaged += 1;
                let at =
                    heads.get(&BranchId::main()).map_or_else(|| "–".to_owned(), |head| format!("main:{}", head.seq));
                self.note(Some(session.clone()), at, kind.to_owned(), high_water::gone(&session, &heads));
            }
        }
    }

    fn add(&mut self, session: &SessionKey, verified: &Result<Verified, Error>) {
        self.sessions += 1;
        match verified {
            Ok(verified) => {
                self.records += verified.report.records;
                self.bytes += verified.report.bytes;
                self.damaged += u64::from(!verified.sound);
                verified.report.damage.iter().for_each(|damage| self.damage(session, damage));
            }
            Err(error) => {
                self.damaged += 1;
                let at = error.position().map_or_else(|| "–".to_owned(), ToString::to_string);
                self.note(Some(session.clone()), at, error.code().to_owned(), error.message().to_owned());
            }
        }
    }

    fn damage(&mut self, session: &SessionKey, damage: &Damage) {
        if damage.kind == DamageKind::Torn {
            self.torn += 1;
            return;
        }
        let at = match damage.last {
            last if last == damage.first => damage.position().to_string(),
            last if last == rekindle::core::Seq::MAX => format!("{}…", damage.position()),
            last => format!("{}…{last}", damage.position()),
        };
        let kind = serde_json::to_value(damage.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
        self.note(Some(session.clone()), at, kind.unwrap_or_default(), damage.detail.clone());
    }

    fn note(&mut self, session: Option<SessionKey>, at: String, kind: String, detail: String) {
        match self.found.len() < SHOWN {
            true => self.found.push((session, at, kind, detail)),
            false => self.more += 1,
        }
    }

    fn end(&self, stream: Stream) -> std::io::Result<()> {
        let fields = json!({
            "sound": self.is_sound(), "verified": self.sessions, "damaged": self.damaged,
            "records": self.records, "bytes": self.bytes, "gone": self.gone, "defects": self.defects,
        });
        stream.end(fields.as_object().unwrap_or(&Map::new()))
    }

    fn tell(&self, app: &App) -> std::io::Result<()> {
        if !self.found.is_empty() {
            let mut table = Table::new(&["SESSION", "AT", "DAMAGE", "DETAIL"]);
            for (session, at, kind, detail) in &self.found {
                let name = session.as_ref().map_or("–", |session| session.id.as_str());
                let name = Cell::styled(name, style::NAME);
                table.row([name, Cell::new(at), Cell::styled(kind, style::BAD), Cell::new(detail)]);
            }
            table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
        }
        if self.more > 0 {
            app.ui.line(format!("and {} more; --json has them all", time::count(self.more)))?;
        }
        let (sign, colour) = if self.is_sound() { ("✓", style::GOOD) } else { ("✗", style::BAD) };
        let result = match (self.damaged, self.defects.len()) {
            (0, 0) => "all sound".to_owned(),
            (0, _) => "the store is damaged".to_owned(),
            (damaged, 0) => format!("{} damaged", time::count(damaged)),
            (damaged, _) => format!("{} damaged, and so is the store", time::count(damaged)),
        };
        app.ui.line(format!(
            "{colour}{sign}{} {}, {}, {}: {result}",
            style::RESET,
            time::counted(self.sessions, "session"),
            time::counted(self.records, "record"),
            time::bytes(self.bytes),
        ))?;
        if self.torn > 0 {
            app.ui.remark(format!(
                "{} cut off; nothing that was acknowledged is missing",
                time::counted(self.torn, "unfinished write")
            ));
        }
        let first = |wanted: fn(&str) -> bool| self.found.iter().find(|(_, _, kind, _)| wanted(kind));
        if let Some((Some(session), ..)) = first(|kind| kind == ROLLED_BACK) {
            let accept = next::line(app, ["verify", session.id.as_str(), "--accept", "--reason", "TEXT"]);
            app.ui.hint(format!("put the newer state back, or accept this one with `{accept}`"));
        }
        if let Some(defect) = self.defects.first() {
            app.ui.hint(&defect.hint);
        }
        if let Some((Some(session), ..)) = first(|kind| ![ROLLED_BACK, GONE, "store"].contains(&kind)) {
            let checkpoints = next::line(app, ["sessions", "checkpoints", session.id.as_str()]);
            app.ui.hint(format!("`{checkpoints}` lists what can be gone back to; `rekindle fork` goes on from there"));
        }
        Ok(())
    }
}

/// The heads in what an earlier verification printed.
fn read_seen(path: &Path) -> Result<BTreeMap<SessionKey, Heads>, Error> {
    #[derive(Deserialize)]
    struct Document {
        sessions: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        session: SessionKey,
        #[serde(default)]
        heads: Heads,
    }
    let text = crate::files::read_text(path, MAX_SEEN)?;
    let document: Document = serde_json::from_str(&text).map_err(|error| {
        Error::invalid(format!("{} is not what `verify --json` prints: {error}", path.display()))
            .hint("make it with: rekindle verify --all --json > heads.json")
    })?;
    Ok(document.sessions.into_iter().map(|item| (item.session, item.heads)).collect())
}
