//! `rekindle enqueue`: has workers run a file, or go on with a session.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rekindle::core::QueueName;
use rekindle::core::queue::{JobState, KeyLimit, When};
use rekindle::operations::{self, Enqueue, EnqueuedJob, JobInput};
use rekindle::{Engine, Error, Message, MessageId, SessionHeader, SessionId, SessionKey, Timestamp};
use rekindle_definitions::{Definition, RunInput};
use serde_json::Value;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::run::{self, DEFINITION, Remembered};
use crate::ui::{duration, fit, printable, style, time};
use crate::words::{next, value};

/// What to enqueue.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rekindle enqueue agent.yaml \"What is new in Lisbon?\" --session trip-42
  rekindle enqueue plan.yaml --input region=eu --queue nightly --in 2h
  rekindle enqueue trip-42 \"And tomorrow?\"     # its next turn
  rekindle enqueue trip-42                     # goes on after a pause or a failure

With --session, saying it again counts once. `rekindle worker` runs what is in the queues.")]
pub struct Arguments {
    /// A file to run in a new session, or a session to go on with
    #[arg(value_name = "FILE|SESSION")]
    target: String,
    /// What it is asked; - reads it from standard input
    text: Option<String>,
    /// A value of a plan's context or a graph's memory; JSON, or else text
    #[arg(long, short, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// The id of the new session, instead of a generated one
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The queue
    #[arg(long, short = 'Q', value_name = "QUEUE", default_value = "default")]
    queue: String,
    /// Higher goes first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Shares a limit with the other jobs of the same key, e.g. a customer
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How many jobs of that key may run at once, over all workers
    #[arg(long, value_name = "N", default_value_t = 1, requires = "key")]
    key_limit: u32,
    /// Not before this time has passed, e.g. 5m
    #[arg(long = "in", value_name = "TIME", value_parser = duration::parse, conflicts_with = "at")]
    after: Option<Duration>,
    /// Not before this time, in UTC, e.g. 2026-11-15T18:00
    #[arg(long, value_name = "WHEN", value_parser = time::parse)]
    at: Option<Timestamp>,
    /// The id of what it is asked; the same one again counts once
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The title of the session, for people
    #[arg(long)]
    title: Option<String>,
    /// A tag of the session, for filters; may be said more than once
    #[arg(long)]
    tag: Vec<String>,
    /// Another model for every agent in the file, e.g. openai/gpt-5
    #[arg(long)]
    model: Option<String>,
}

impl Arguments {
    /// Enqueues it.
    pub async fn run(self, app: &App) -> Outcome {
        let input = self.input()?;
        run::check_input(&input, &app.settings.excluded())?;
        let (engine, mut job) = match self.is_file() {
            true => {
                let definition = run::named(app, Path::new(&self.target))?;
                let given = definition.job_input(input.clone()).map_err(|error| error.during("enqueue"))?;
                let engine = app.queueing_engine()?;
                let header = self.header(app, &engine, &definition, &input)?;
                (engine, Enqueue::new(header, app.author()).input(given))
            }
            false => {
                self.check_session()?;
                let engine = app.engine(Access::Existing)?;
                let session = app.session(&engine, &self.target).await?;
                let mut job = Enqueue::existing(session.clone(), app.author());
                job.input = more(app, &engine, &session, input).await?;
                (engine, job)
            }
        };
        job.message = self.id.as_ref().map(MessageId::new).transpose()?;
        job.queue = QueueName::new(&self.queue)?;
        job.priority = self.priority;
        job.key = self.key.clone().map(|key| KeyLimit { key, most: self.key_limit });
        job.when = match (self.after, self.at) {
            (Some(after), _) => When::In(after),
            (None, Some(at)) => When::At(at),
            (None, None) => When::Now,
        };
        let done = operations::enqueue(&engine, &job).await?;
        tell(app, &done)?;
        Ok(Exit::Ok)
    }

    /// Whether a file is meant: it is there, or it could not be a session's id.
    fn is_file(&self) -> bool {
        let path = PathBuf::from(&self.target);
        let extension = path.extension().and_then(|extension| extension.to_str());
        let named = matches!(extension, Some("yaml" | "yml" | "toml" | "json"));
        path.is_file() || named || self.target.contains('/') || self.session.is_some()
    }

    /// What only a new session can be given.
    fn check_session(&self) -> Result<(), Error> {
        let said =
            [("--title", self.title.is_some()), ("--tag", !self.tag.is_empty()), ("--model", self.model.is_some())];
        match said.iter().find(|(_, said)| *said) {
            Some((flag, _)) => Err(Error::invalid(format!("{flag} is for a new session, and this one is there"))
                .hint("leave it out, or name a file to run in a new session")),
            None => Ok(()),
        }
    }

    fn header(
        &self,
        app: &App,
        engine: &Engine,
        definition: &Definition,
        input: &RunInput,
    ) -> Result<SessionHeader, Failure> {
        let journal = engine.journal();
        let key = match &self.session {
            Some(id) if id.starts_with(['-', '@']) => {
                let message = format!("`{id}` could not be named later: it begins like an option or like `@`");
                return Err(Error::invalid(message).hint("choose another id").into());
            }
            Some(id) => engine.key(id)?,
            None => engine.key(SessionId::generate(journal.ids(), journal.clock().now()).as_str())?,
        };
        let model = self.model.clone().or_else(|| app.settings.model().map(str::to_owned));
        run::named_model(app, model.as_deref());
        let remembered = Remembered::new(definition, model, Default::default())?;
        let values = || input.values.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        let title = self.title.clone().unwrap_or_else(|| fit(&input.text.clone().unwrap_or_else(values), 80));
        let mut header = SessionHeader::new(key);
        header.agent = Some(definition.name().to_owned());
        header.title = Some(title).filter(|title| !title.is_empty());
        header.tags.clone_from(&self.tag);
        run::mask(&mut header);
        header.metadata.insert(DEFINITION.to_owned(), remembered.to_json()?);
        Ok(header)
    }

    fn input(&self) -> Result<RunInput, Failure> {
        let text = match self.text.as_deref() {
            Some(text) => Some(value::text_or_input(text)?),
            None => None,
        };
        let mut input = RunInput { text, ..RunInput::default() };
        for assignment in &self.input {
            let (key, value) = run::assigned(assignment, "--input KEY=VALUE")?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            input.values.insert(key.to_owned(), value);
        }
        Ok(input)
    }
}

/// What more a session is given; nothing if it only goes on.
async fn more(app: &App, engine: &Engine, session: &SessionKey, input: RunInput) -> Result<Option<JobInput>, Failure> {
    if input == RunInput::default() {
        return Ok(None);
    }
    let remembered = Remembered::of(engine, session).await;
    let info = engine.journal().open(session).await?;
    match run::recorded(app, &info, remembered.as_ref().ok()) {
        Ok(definition) => Ok(Some(definition.job_input(input)?)),
        // Without its file, a session that takes text is an agent's.
        other => match (input.text, input.values.is_empty()) {
            (Some(text), true) => Ok(Some(JobInput::Message(Message::user(text)))),
            _ => Err(other.err().unwrap_or_else(|| Error::not_found("the file of the session is not there").into())),
        },
    }
}

fn tell(app: &App, done: &EnqueuedJob) -> std::io::Result<()> {
    if app.ui.is_json() {
        return app.ui.json(done);
    }
    let job = &done.job.job;
    let (name, dim, reset) = (style::NAME, style::DIM, style::RESET);
    let again = if done.repeated { ", as before" } else { "" };
    let (id, queue) = (printable(job.session.id.as_str()), printable(job.queue.as_str()));
    app.ui.line(format!("enqueued: {name}{id}{reset} in {name}{queue}{reset}{again}"))?;
    if let Some(at) = job.ready_at.filter(|_| done.job.state == JobState::Scheduled) {
        app.ui.remark(format!("{dim}not before {} UTC{reset}", time::short(at)));
    }
    next::tell(app, &next::line(app, ["worker"]));
    Ok(())
}
