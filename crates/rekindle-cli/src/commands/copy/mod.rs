//! `rekindle copy`: sessions from one store to another, as they are.

mod progress;
mod sum;

use clap::{Args, ValueEnum};
use rekindle::core::{CopyOptions, CopyReport, Diverged};
use rekindle::{Engine, Error, ErrorKind, Namespace, SessionKey, SessionQuery, operations};
use tokio::task::JoinSet;

use self::progress::Progress;
use self::sum::Sum;
use super::each::{Each, left_out, unless_deleted};
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{self, Failure, Outcome};
use crate::ui::stream::Stream;

/// What to copy, and where to.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle copy --to file:./backup\n  rekindle copy --from sqlite:./old.db --to postgres://db/agents --jobs 8\n  rekindle copy trip-42 --to file:./backup --verify\n\nIt can be stopped and repeated: what is there already is not sent again, and an older copy is brought up to\ndate. Sessions are copied as they are, so encrypted ones need no key. Of a session that runs, what is durable\nis copied. Leases and jobs of workers stay where they are. A store cannot list its namespaces: name them."
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
    /// All sessions of these namespaces, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "sessions")]
    namespaces: Vec<String>,
    /// What is done if another history of the same id is there: refuse, skip, rename or replace
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Existing::Refuse, hide_possible_values = true)]
    existing: Existing,
    /// Reads every copy back
    #[arg(long)]
    verify: bool,
    /// How many sessions are copied at once
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Only says what would be copied
    #[arg(long)]
    dry_run: bool,
    /// Copy also what is neither signed nor encrypted, although keys are set, and put that on record
    #[arg(long)]
    accept_unprotected: bool,
    /// Why that is accepted, for the record
    #[arg(long, value_name = "TEXT", requires = "accept_unprotected")]
    reason: Option<String>,
}

/// What is done with another history of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Existing {
    /// It is an error, and the other sessions are copied.
    Refuse,
    /// It stays, and this one is not copied.
    Skip,
    /// It stays, and this one gets another id.
    Rename,
    /// It is removed first.
    Replace,
}

/// What came of a session; nothing if it was deleted since it was listed.
type Came = (SessionKey, Result<Option<CopyReport>, Error>);

impl Arguments {
    /// Copies.
    pub async fn run(self, app: &App) -> Outcome {
        let from_url = self.from.clone().unwrap_or_else(|| app.settings.store_url());
        if place_of(&from_url) == place_of(&self.to) {
            return Err(Error::invalid("both stores are the same").hint("name another one with --to").into());
        }
        let from = app.engine_at(&from_url, Access::Existing)?;
        let mut all = self.sources(app, &from).await?;
        let to = self.target(app).await?;
        let stream = if app.ui.is_json() { Some(Stream::begin("sessions")?) } else { None };
        let total = all.iter().map(|(_, each)| each.total()).sum();
        let mut copying = Copying {
            app,
            stream,
            sum: Sum::new(self.dry_run),
            progress: Progress::new(app, total),
            running: JoinSet::new(),
        };
        for (from, each) in &mut all {
            while let Some(session) = each.next(from).await? {
                copying.room_for_one(usize::from(self.jobs)).await?;
                copying.start(from, &to, session, self.options(app));
            }
        }
        copying.finish().await?;
        copying.progress.clear();
        if self.sessions.is_empty() {
            for (from, _) in &all {
                copying.left_out(from).await?;
            }
        }
        copying.sum.tell(app, copying.stream, &self.to)?;
        Ok(copying.sum.exit.unwrap_or(Exit::Ok))
    }

    /// The sessions, by namespace.
    async fn sources(&self, app: &App, from: &Engine) -> Result<Vec<(Engine, Each)>, Failure> {
        if !self.sessions.is_empty() {
            return Ok(vec![(from.clone(), Each::named(app, from, &self.sessions).await?)]);
        }
        let mut all = Vec::new();
        for name in &self.namespaces {
            let engine = from.clone().in_namespace(Namespace::new(name.clone())?);
            let each = Each::all(&engine).await?;
            all.push((engine, each));
        }
        if all.is_empty() {
            all.push((from.clone(), Each::all(from).await?));
        }
        Ok(all)
    }

    /// A dry run makes no store.
    async fn target(&self, app: &App) -> Result<Engine, Error> {
        if !self.dry_run {
            return reached(app.engine_at(&self.to, Access::Create)).await;
        }
        match reached(app.engine_at(&self.to, Access::Existing)).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => app.engine_at("memory:", Access::Create),
            other => other,
        }
    }

    fn options(&self, app: &App) -> CopyOptions {
        let diverged = match self.existing {
            Existing::Refuse => Diverged::Refuse,
            Existing::Skip => Diverged::Skip,
            Existing::Rename => Diverged::Rename,
            Existing::Replace => Diverged::Replace,
        };
        CopyOptions {
            diverged,
            verify: self.verify,
            dry_run: self.dry_run,
            rename: None,
            accept_unprotected: self.accept_unprotected,
            author: Some(app.author()),
            reason: self.reason.clone().unwrap_or_default(),
            place: Some(place_of(&self.to).to_string()),
        }
    }
}

/// A store that has answered: what it lacks as a whole must not pass for a session that is gone.
async fn reached(engine: Result<Engine, Error>) -> Result<Engine, Error> {
    let engine = engine?;
    operations::list(&engine, &SessionQuery::new(engine.namespace().clone()).with_limit(1)).await?;
    Ok(engine)
}

/// Copies under way.
struct Copying<'a> {
    app: &'a App,
    stream: Option<Stream>,
    sum: Sum,
    progress: Progress,
    running: JoinSet<Came>,
}

impl Copying<'_> {
    fn start(&mut self, from: &Engine, to: &Engine, session: SessionKey, options: CopyOptions) {
        let (from, to, bytes) = (from.clone(), to.clone(), self.progress.bytes());
        self.running.spawn(async move {
            let hear = |arrived| bytes.add(arrived);
            let came = match operations::copy(&from, &to, &session, &options, &hear).await {
                Ok(report) => Ok(Some(report)),
                Err(error) => match unless_deleted(&from, &session, error).await {
                    Ok(None) => Ok(None),
                    Ok(Some(error)) | Err(error) => Err(error),
                },
            };
            (session, came)
        });
    }

    /// Tells which sessions of the source were not listed.
    async fn left_out(&mut self, from: &Engine) -> Result<(), Failure> {
        for (session, error) in left_out(self.app, from).await? {
            self.sum.fail(&error);
            failure::of_left_out(&self.app.ui, &mut self.stream, session.as_ref(), error)?;
        }
        Ok(())
    }

    async fn room_for_one(&mut self, jobs: usize) -> Result<(), Failure> {
        while self.running.len() >= jobs {
            self.one_more().await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Failure> {
        while !self.running.is_empty() {
            self.one_more().await?;
        }
        Ok(())
    }

    /// Waits until a copy has ended, and says how far it is meanwhile.
    async fn one_more(&mut self) -> Result<(), Failure> {
        let ended = loop {
            tokio::select! {
                ended = self.running.join_next() => break ended,
                () = tokio::time::sleep(progress::INTERVAL) => self.progress.show(),
            }
        };
        let Some(ended) = ended else { return Ok(()) };
        let (session, came) = ended.map_err(|error| Error::new(ErrorKind::Closed, "a copy stopped").because(error))?;
        self.progress.ended(&session);
        match came {
            Ok(None) => {}
            Ok(Some(report)) => {
                self.sum.add(&report);
                self.stream.iter_mut().try_for_each(|stream| stream.item(&report))?;
            }
            Err(error) if is_about_session(&error) => {
                self.progress.clear();
                self.sum.fail(&error);
                failure::of_one(&self.app.ui, &mut self.stream, &session, with_choice(error))?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn with_choice(error: Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => error.hint(
            "--existing skip leaves it as it is, --existing rename copies under another id, --existing replace removes it first",
        ),
        _ => error,
    }
}

/// Where a store is, however it is written: to replace a session by itself would be to lose it.
fn place_of(url: &str) -> String {
    let Some((scheme @ ("sqlite" | "file" | "objects"), path)) = url.split_once(':') else { return url.to_owned() };
    let path = path.strip_prefix("//").unwrap_or(path);
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    format!("{scheme}:{}", place.display())
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
            | Kind::Conflict { .. }
            | Kind::Stale
            | Kind::Limit { .. }
            | Kind::Unsupported
            | Kind::AlreadyRunning { .. }
    )
}
