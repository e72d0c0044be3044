//! `rekindle archive`: sessions out of the store into object storage, and back.

mod list;
mod restore;

use std::time::Duration;

use clap::{Args, Subcommand};
use rekindle::operations::{self, ArchiveOptions, ArchivePlan, Archived};
use rekindle::{Engine, Error, ErrorKind, SessionKey, Status};
use rekindle_store::{Bucket, StoreOptions};
use serde_json::{Map, json};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{self, Failure, Outcome};
use crate::reference;
use crate::ui::live::Live;
use crate::ui::stream::Stream;
use crate::ui::{duration, printable, style, time};

/// What to archive, and where to; or what to do with archives.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Examples:\n  rekindle archive trip-42 --to s3://bucket/agents\n  rekindle archive --inactive 30d --status succeeded --to objects:./archive\n  rekindle archive list --from s3://bucket/agents\n  rekindle archive restore trip-42 --from s3://bucket/agents\n\nA session leaves the store only when its archive was written and read back. What runs, waits or is unfinished\nstays. It can be stopped and repeated. An encrypted session stays encrypted in its archive."
)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    archive: Archive,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lists the archives of the namespace
    List(list::Arguments),
    /// Brings a session back from its archive
    Restore(restore::Arguments),
}

/// What to archive.
#[derive(Debug, Args)]
#[group(skip)]
struct Archive {
    /// The sessions, by their whole ids
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
    /// Where archives are: s3://…, gs://…, az://… or objects:./dir; the key `archive` without this
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// All sessions in which nothing happened for this time, e.g. 30d
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "sessions")]
    inactive: Option<Duration>,
    /// Only those of this status; may be said more than once
    #[arg(long, value_name = "STATUS", requires = "inactive")]
    status: Vec<Status>,
    /// Replaces an archive of the same session that has another content
    #[arg(long)]
    replace: bool,
    /// Leaves the sessions in the store
    #[arg(long)]
    keep: bool,
    /// Only says what would be archived
    #[arg(long)]
    dry_run: bool,
}

impl Arguments {
    /// Does it.
    pub async fn run(self, app: &App) -> Outcome {
        match self.what {
            Some(What::List(arguments)) => arguments.run(app).await,
            Some(What::Restore(arguments)) => arguments.run(app).await,
            None => self.archive.run(app).await,
        }
    }
}

/// The place of archives a person names, or else the configuration.
fn place(app: &App, url: Option<&str>, flag: &str, access: Access) -> Result<Bucket, Error> {
    let url = url.map(str::to_owned).or_else(|| app.settings.archive_url()).ok_or_else(|| {
        let hint = format!("say {flag} s3://bucket/prefix or {flag} objects:./dir, or set the key `archive`");
        Error::invalid("nothing says where archives are").hint(hint)
    })?;
    Bucket::open(&url, &app.settings.bucket_options(&url, access == Access::Create))
}

/// What came of all sessions.
#[derive(Debug, Default)]
struct Sum {
    archived: u64,
    bytes: u64,
    freed: u64,
    failed: Option<Exit>,
    failures: u64,
}

impl Archive {
    async fn run(self, app: &App) -> Outcome {
        if self.sessions.is_empty() && self.inactive.is_none() {
            let hint = "name sessions (`rekindle archive trip-42 --to URL`), or say --inactive 30d";
            return Err(Error::invalid("nothing says which sessions to archive").hint(hint).into());
        }
        let engine = app.engine(Access::Existing)?;
        let empty;
        let place = match place(
            app,
            self.to.as_deref(),
            "--to",
            if self.dry_run { Access::Existing } else { Access::Create },
        ) {
            // A dry run makes no directory: one that is not there is as good as an empty one.
            Err(error) if self.dry_run && *error.kind() == ErrorKind::NotFound => {
                empty = tempfile::tempdir()?;
                Bucket::open(&format!("objects:{}", empty.path().display()), &StoreOptions::new())?
            }
            other => other?,
        };
        let plan = self.plan(&engine, &place).await?;
        let mut sum = Sum::default();
        let mut stream = if app.ui.is_json() { Some(Stream::begin("sessions")?) } else { None };
        let mut live = Live::new(app.ui.clone());
        for (number, session) in plan.archive.iter().enumerate() {
            live.show(&[format!(
                "archiving {} of {}: {}",
                number + 1,
                plan.archive.len(),
                printable(session.id.as_str())
            )]);
            let came = self.one(&engine, &place, session).await;
            live.clear();
            self.tell_one(app, &mut stream, &mut sum, session, came)?;
        }
        self.finish(app, stream, &plan, &sum)?;
        Ok(sum.failed.unwrap_or(Exit::Ok))
    }

    async fn plan(&self, engine: &Engine, place: &Bucket) -> Result<ArchivePlan, Failure> {
        if let Some(threshold) = self.inactive {
            return Ok(operations::plan_archive(engine, engine.namespace(), threshold, &self.status).await?);
        }
        let mut archive = Vec::new();
        for text in &self.sessions {
            let session = self.named(engine, place, text).await?;
            if !archive.contains(&session) {
                archive.push(session);
            }
        }
        Ok(ArchivePlan { archive, protected: Vec::new() })
    }

    /// The session with that id, in the store or archived already by a try that stopped.
    async fn named(&self, engine: &Engine, place: &Bucket, text: &str) -> Result<SessionKey, Error> {
        let missing = match reference::exact_session(engine, text).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => error,
            other => return other,
        };
        let (session, options) = (engine.key(text)?, ArchiveOptions { dry_run: true, ..ArchiveOptions::default() });
        match operations::archive(engine, place, &session, &options).await {
            Ok(_) => Ok(session),
            Err(error) if *error.kind() == ErrorKind::NotFound => Err(missing),
            Err(error) => Err(error),
        }
    }

    async fn one(&self, engine: &Engine, place: &Bucket, session: &SessionKey) -> Result<Archived, Error> {
        let options = ArchiveOptions { replace: self.replace, keep: self.keep, dry_run: self.dry_run };
        operations::archive(engine, place, session, &options).await
    }

    fn tell_one(
        &self,
        app: &App,
        stream: &mut Option<Stream>,
        sum: &mut Sum,
        session: &SessionKey,
        came: Result<Archived, Error>,
    ) -> Result<(), Failure> {
        let archived = match came {
            Ok(archived) => archived,
            Err(error) if is_about_session(&error) => {
                sum.failures += 1;
                sum.failed.get_or_insert(Exit::of_error(error.kind()));
                return Ok(failure::of_one(&app.ui, stream, session, with_choice(error))?);
            }
            Err(error) => return Err(error.into()),
        };
        sum.archived += 1;
        let bytes = archived.archive.as_ref().map_or(0, |archive| archive.bytes);
        (sum.bytes, sum.freed) = (sum.bytes + bytes, sum.freed + archived.freed.bytes);
        if let Some(stream) = stream {
            return Ok(stream.item(&archived)?);
        }
        let (name, reset, id) = (style::NAME, style::RESET, printable(session.id.as_str()));
        if archived.before {
            return Ok(app.ui.line(format!("{name}{id}{reset} was archived before"))?);
        }
        Ok(app.ui.line(match self.dry_run {
            true => format!("would archive {name}{id}{reset}"),
            false if self.keep => {
                format!("archived {name}{id}{reset}, {}; it stays in the store too", time::bytes(bytes))
            }
            false => format!("archived {name}{id}{reset}, {}", time::bytes(bytes)),
        })?)
    }

    fn finish(&self, app: &App, stream: Option<Stream>, plan: &ArchivePlan, sum: &Sum) -> std::io::Result<()> {
        if let Some(stream) = stream {
            let fields = json!({
                "dry_run": self.dry_run, "archived": sum.archived, "failed": sum.failures, "bytes": sum.bytes,
                "freed": sum.freed, "protected": plan.protected,
            });
            return stream.end(fields.as_object().unwrap_or(&Map::new()));
        }
        for (session, why) in &plan.protected {
            app.ui.remark(format!("{} stays: {why}", printable(session.id.as_str())));
        }
        if sum.archived + sum.failures == 0 {
            app.ui.remark("no session is that old and can be archived");
        }
        if sum.freed > 0 {
            app.ui.remark(format!("{} freed in the store", time::bytes(sum.freed)));
        }
        Ok(())
    }
}

fn with_choice(error: Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            error.hint("look at it first: `rekindle archive restore SESSION --as NAME`; --replace writes over it")
        }
        _ => error,
    }
}

/// Whether one session cannot be archived while others can.
fn is_about_session(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Corrupt
            | Kind::VersionTooNew { .. }
            | Kind::KeyMissing { .. }
            | Kind::AlreadyExists
            | Kind::Protected
            | Kind::Stale
            | Kind::Limit { .. }
            | Kind::NotFound
    )
}
