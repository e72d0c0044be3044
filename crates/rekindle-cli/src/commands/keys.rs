//! `rekindle keys`: the data keys of encrypted sessions.

use clap::{Args, Subcommand};
use rekindle::operations::{self, ArchivePlace, PrunedKeys, RewrappedKeys};
use rekindle::{Engine, Error, ErrorKind};
use rekindle_store::Bucket;

use super::gc::unreadable;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::style;
use crate::words::number;

/// What to do.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle keys rewrap\n  rekindle keys prune --apply")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Wrap the data keys of all sessions with the key that is active now
    #[command(
        after_help = "Example:\n  rekindle keys rewrap\n\nEvery encrypted session has a key of its own, which is stored under the main key. After another\nmain key was made the active one in the configuration, and the one before was put under\n`encryption.old`, this stores the keys of all sessions of the namespace under the new one, those\nof archived sessions among them. No record and no archive is rewritten, and nothing need stop.\nThen the old key can go, unless there are sessions from before they had keys of their own."
    )]
    Rewrap(Rewrap),
    /// Destroy data keys that belong to no session and no archive
    #[command(
        after_help = "Examples:\n  rekindle keys prune\n  rekindle keys prune --archive s3://bucket/agents --apply\n\nSuch keys are left by a process that died while it created or removed a session, and by archives\nthat were deleted by hand. The key of an archived session stays as long as any place it was\narchived to may have it: name these places with --archive; the key `archive` of the configuration\nis one of them."
    )]
    Prune(Prune),
}

#[derive(Debug, Args)]
struct Rewrap {
    /// Include archives in this place, whose keys are not known here; may be given more than once
    #[arg(long, value_name = "URL")]
    archive: Vec<String>,
}

#[derive(Debug, Args)]
struct Prune {
    /// Spare the keys of archives in this place, besides the key `archive`; may be given more than once
    #[arg(long, value_name = "URL")]
    archive: Vec<String>,
    /// Does it; without this only says what would go
    #[arg(long)]
    apply: bool,
}

impl Arguments {
    /// Does it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        if !engine.journal().codec().encrypts() {
            return Err(Error::invalid("no encryption key is configured")
                .hint("set `encryption.key`; see `rekindle config show`")
                .into());
        }
        match self.command {
            Command::Rewrap(arguments) => arguments.run(app, &engine).await,
            Command::Prune(arguments) => arguments.run(app, &engine).await,
        }
    }
}

impl Rewrap {
    async fn run(self, app: &App, engine: &Engine) -> Outcome {
        let places = open(app, &self.archive)?;
        let done = operations::rewrap_keys(engine, engine.namespace(), &as_places(&places)).await?;
        match app.ui.is_json() {
            true => app.ui.json(&done)?,
            false => tell_rewrapped(app, done)?,
        }
        Ok(Exit::Ok)
    }
}

impl Prune {
    async fn run(self, app: &App, engine: &Engine) -> Outcome {
        let places = known_places(app, &self.archive)?;
        let pruned = operations::prune_keys(engine, engine.namespace(), &as_places(&places), !self.apply).await?;
        match app.ui.is_json() {
            true => app.ui.json(&pruned)?,
            false => tell_pruned(app, &pruned)?,
        }
        Ok(Exit::Ok)
    }
}

fn open(app: &App, urls: &[String]) -> Result<Vec<Bucket>, Error> {
    urls.iter().map(|url| Bucket::open(url, &app.settings.bucket_options(url, false))).collect()
}

/// The places of archives that were named, and that of the configuration.
pub(super) fn known_places(app: &App, named: &[String]) -> Result<Vec<Bucket>, Error> {
    let mut places = open(app, named)?;
    if let Some(url) = app.settings.archive_url().filter(|url| !named.contains(url)) {
        match open(app, &[url]) {
            // Nothing was archived there yet, or it is not reached by this path: its keys stay.
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            opened => places.extend(opened?),
        }
    }
    Ok(places)
}

pub(super) fn as_places(buckets: &[Bucket]) -> Vec<&dyn ArchivePlace> {
    buckets.iter().map(|bucket| bucket as &dyn ArchivePlace).collect()
}

fn keys(count: u64) -> String {
    number(usize::try_from(count).unwrap_or(usize::MAX), "data key")
}

fn tell_rewrapped(app: &App, done: RewrappedKeys) -> std::io::Result<()> {
    let (good, reset, changed) = (style::GOOD, style::RESET, keys(done.changed));
    app.ui.line(format!("{good}✓{reset} {changed} wrapped with the active key, {} already", done.current))?;
    if done.unknown > 0 {
        app.ui.note(format!(
            "{} of no session and no known archive kept under an older key: `rekindle keys prune` shows what nobody \
             needs, --archive URL names archives",
            keys(done.unknown)
        ));
    }
    Ok(())
}

fn tell_pruned(app: &App, pruned: &PrunedKeys) -> std::io::Result<()> {
    for session in &pruned.unreadable {
        app.ui.note(unreadable(session));
    }
    match (pruned.dry_run, pruned.orphaned) {
        (_, 0) if !pruned.unreadable.is_empty() => {}
        (_, 0) => app.ui.line("no data key is without a session or an archive")?,
        (true, orphaned) => app.ui.line(format!("would destroy {}", keys(orphaned)))?,
        (false, _) => app.ui.line(format!("destroyed {}", keys(pruned.destroyed)))?,
    }
    if pruned.archived > 0 {
        app.ui.remark(format!("{} of archived sessions kept", keys(pruned.archived)));
    }
    if pruned.dry_run && pruned.orphaned > 0 {
        app.ui.remark(format!("{}nothing was changed; --apply does it{}", style::WARN, style::RESET));
    }
    Ok(())
}
