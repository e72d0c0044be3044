//! `rekindle export`: a session as one portable file.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::Args;
use rekindle::core::{DamageKind, file_name};
use rekindle::operations::{self, Moved};
use rekindle::{Engine, Error, ErrorKind, SessionKey};
use rekindle_store::private::Modes;
use serde::Serialize;
use serde_json::{Map, json};

use super::each::{Each, left_out, unless_deleted};
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{self, Failure, Outcome};
use crate::files::{NewFile, unwritable};
use crate::ui::live::Live;
use crate::ui::stream::Stream;
use crate::ui::{printable, style, time};

/// What the names of exported files end with.
const EXTENSION: &str = "rekindle.jsonl";

/// What to export, and where to.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle export @ -o trip.rekindle.jsonl\n  rekindle export trip-42 | gzip > trip.gz\n  rekindle export --all -o backup/\n\nThe file has the whole history with all branches, in plain text even if the store is encrypted.\n`rekindle import` reads it."
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION", required_unless_present = "all")]
    session: Option<String>,
    /// All sessions of the namespace, each as a file of its own
    #[arg(long, conflicts_with = "session", requires = "output")]
    all: bool,
    /// The file, or with --all the directory; standard output without it
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replaces files that are there
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Item {
    #[serde(flatten)]
    moved: Moved,
    file: String,
    bytes: u64,
}

impl Arguments {
    /// Exports.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let output = self.output.as_deref().filter(|path| *path != Path::new("-"));
        let Some(text) = &self.session else {
            let folder = output.ok_or_else(|| {
                Error::invalid("many sessions do not fit one output").hint("name a directory: -o DIR")
            })?;
            return self.every(app, &engine, folder).await;
        };
        let session = app.session(&engine, text).await?;
        match output {
            Some(path) => {
                let item = self.one(&engine, &session, path).await?;
                match app.ui.is_json() {
                    true => app.ui.json(&item)?,
                    false => tell(app, &item)?,
                }
                warn_of_plain_text(app, &engine);
            }
            None => self.to_output(app, &engine, &session).await?,
        }
        Ok(if is_rolled_back(app, &engine, &session).await? { Exit::Integrity } else { Exit::Ok })
    }

    async fn one(&self, engine: &Engine, session: &SessionKey, path: &Path) -> Result<Item, Error> {
        let mut file = NewFile::begin(path, self.force)?;
        let moved = operations::export(engine, session, &mut file.writer()).await?;
        Ok(Item { moved, file: path.display().to_string(), bytes: file.finish()? })
    }

    async fn to_output(&self, app: &App, engine: &Engine, session: &SessionKey) -> Result<(), Failure> {
        let name = format!("{}.{EXTENSION}", file_name(session.id.as_str()));
        let hint = format!("name a file: -o {name}");
        if app.ui.is_json() {
            return Err(Error::invalid("the export itself goes to standard output, so --json has no place")
                .hint(hint)
                .into());
        }
        if io::stdout().is_terminal() && self.output.is_none() {
            return Err(Error::invalid("an export is not for a terminal").hint(hint).into());
        }
        let exported = operations::export(engine, session, &mut io::BufWriter::new(io::stdout())).await;
        match exported {
            Ok(_) => Ok(()),
            Err(error) if is_closed(&error) => Err(Failure::Closed),
            Err(error) => Err(error.into()),
        }
    }

    async fn every(&self, app: &App, engine: &Engine, folder: &Path) -> Outcome {
        Modes::PRIVATE.create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
        let mut stream = if app.ui.is_json() { Some(Stream::begin("sessions")?) } else { None };
        let (mut live, mut each) = (Live::new(app.ui.clone()), Each::all(engine).await?);
        let (mut number, mut bytes, mut failed) = (0, 0, None);
        while let Some(session) = each.next(engine).await? {
            each.show(&mut live, "exporting", &session);
            let path = folder.join(format!("{}.{EXTENSION}", file_name(session.id.as_str())));
            let error = match self.one(engine, &session, &path).await {
                Ok(item) => {
                    if is_rolled_back(app, engine, &session).await? {
                        failed = Some(Exit::Integrity);
                    }
                    (number, bytes) = (number + 1, bytes + item.bytes);
                    stream.iter_mut().try_for_each(|stream| stream.item(&item))?;
                    continue;
                }
                Err(error) => error,
            };
            match unless_deleted(engine, &session, error).await? {
                None => {}
                Some(error) if is_about_session(&error) => {
                    live.clear();
                    failed.get_or_insert(Exit::of_error(error.kind()));
                    failure::of_one(&app.ui, &mut stream, &session, error)?;
                }
                Some(error) => return Err(error.into()),
            }
        }
        live.clear();
        for (session, error) in left_out(app, engine).await? {
            failed = Some(Exit::Integrity);
            failure::of_left_out(&app.ui, &mut stream, session.as_ref(), error)?;
        }
        tell_all(app, stream, folder, number, bytes)?;
        warn_of_plain_text(app, engine);
        Ok(failed.unwrap_or(Exit::Ok))
    }
}

/// Tells people of damage around the records that were exported. Returns whether the session was set back to an older
/// state.
async fn is_rolled_back(app: &App, engine: &Engine, session: &SessionKey) -> Result<bool, Error> {
    let info = match engine.journal().open(session).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let note = |text: &str| {
        let (warn, reset, name) = (style::WARN, style::RESET, printable(session.id.as_str()));
        app.ui.remark(format!("{warn}note:{reset} {name}: {}", printable(text)));
    };
    // Its records are all there: only what surrounds them had to be read from elsewhere.
    info.damage.iter().filter(|damage| damage.kind == DamageKind::Index).for_each(|damage| note(&damage.detail));
    let missing: Vec<_> = info.damage.into_iter().filter(|damage| damage.kind == DamageKind::RolledBack).collect();
    if !missing.is_empty() {
        note(rekindle::core::high_water::rolled_back(session, &missing).message());
    }
    Ok(!missing.is_empty())
}

fn tell_all(app: &App, stream: Option<Stream>, folder: &Path, number: u64, bytes: u64) -> io::Result<()> {
    if let Some(stream) = stream {
        return stream.end(json!({"exported": number, "bytes": bytes}).as_object().unwrap_or(&Map::new()));
    }
    let (folder, sessions) = (printable(&folder.display().to_string()), time::counted(number, "session"));
    app.ui.line(format!("exported {sessions} to {folder}, {}", time::bytes(bytes)))
}

fn tell(app: &App, item: &Item) -> io::Result<()> {
    let session = printable(item.moved.session.id.as_str());
    let (name, reset, file) = (style::NAME, style::RESET, printable(&item.file));
    app.ui.line(format!("exported {name}{session}{reset} to {file}, {}", time::bytes(item.bytes)))
}

fn warn_of_plain_text(app: &App, engine: &Engine) {
    if engine.journal().codec().encrypts() {
        app.ui.remark(format!("{}note:{} the store is encrypted, an export is not", style::WARN, style::RESET));
    }
}

/// Whether one session cannot be exported while others can.
fn is_about_session(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionTooNew { .. } | ErrorKind::KeyMissing { .. })
}

/// Whether nobody reads the output any more.
fn is_closed(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::BrokenPipe)
}
