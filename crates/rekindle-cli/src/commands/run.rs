//! `rekindle run`: runs an agent, a plan or a graph from a file.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Args;
use rekindle::core::Seq;
use rekindle::{Engine, Error, ResumeOptions, SessionHeader, SessionId, operations};
use rekindle_definitions::{Built, Definition, Kind, RunInput};
use serde_json::{Map, Value};

use crate::app::{Access, App};
use crate::failure::{Failure, Outcome};
use crate::run::{self, BuildArguments, Chosen, Remembered, RunArguments};
use crate::ui::{fit, style};
use crate::words::next;

/// The largest input read from a file or a pipe.
const MAX_INPUT: u64 = 16 << 20;

/// What to run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rekindle run agent.yaml \"What is new in Lisbon?\"
  rekindle run plan.yaml --input region=eu --input limit=20
  git diff | rekindle run reviewer.yaml -
  rekindle run agent.yaml --continue @ \"And tomorrow?\"

Ctrl-C pauses safely and prints the line that resumes it.")]
pub struct Arguments {
    /// The agent, plan or graph: YAML, TOML or JSON
    file: PathBuf,
    /// What it is asked; - reads it from standard input
    text: Option<String>,
    /// A value of a plan's context or a graph's memory; JSON, or else text
    #[arg(long, short, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// The same from a file with a JSON object; - for standard input
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// The id of the new session, instead of a generated one
    #[arg(long, value_name = "ID", conflicts_with = "continue_")]
    session: Option<String>,
    /// Goes on in an existing session with one more turn
    #[arg(long = "continue", value_name = "SESSION")]
    continue_: Option<String>,
    /// The title of the session, for people
    #[arg(long, conflicts_with = "continue_")]
    title: Option<String>,
    /// A tag of the session, for filters; may be said more than once
    #[arg(long, conflicts_with = "continue_")]
    tag: Vec<String>,
    /// Another model for every agent in the file, e.g. openai/gpt-5
    #[arg(long)]
    model: Option<String>,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    build: BuildArguments,
}

impl Arguments {
    /// Runs it.
    pub async fn run(self, app: &App) -> Outcome {
        let definition = run::named(app, &self.file)?;
        let input = self.input()?;
        run::check_input(&input, &app.settings.excluded())?;
        let model = self.model.clone().or_else(|| app.settings.model().map(str::to_owned));
        let options = self.run.add_to(ResumeOptions::new(app.author()), &app.settings.excluded(), &app.ui)?;
        let remembered = Remembered::new(&definition, model, self.run.secrets())?;
        let chosen = Chosen::new(app, definition.clone(), remembered.model.clone(), &remembered.secrets)?;
        let built = run::built(app, &chosen, &self.build, None).await?;
        self.check(&built, &input)?;
        let engine = app.engine(Access::Create)?;
        let session = self.session(app, &engine, &definition, &input, &remembered).await?;
        self.header(app, &built, session.key().id.as_str());
        let handle = match built.start(&session, input, options).await {
            Ok(handle) => handle,
            Err(error) => {
                self.take_back(&engine, &session).await;
                built.shutdown().await;
                return Err(next::explained(app, error).into());
            }
        };
        let watched = run::follow(app, handle, run::Calls::default(), self.build.events).await;
        built.shutdown().await;
        run::tell(app, &watched.map_err(|error| next::cut_off(app, error))?, self.build.events)
    }

    /// Nothing is made for a run that could not begin.
    fn check(&self, built: &Built, input: &RunInput) -> Result<(), Failure> {
        let mut all = input.clone();
        for assignment in &self.run.set {
            let (key, value) = run::assigned(assignment, "--set KEY=VALUE")?;
            if built.kind() == Kind::Graph {
                all.values.insert(key.to_owned(), Value::from(value));
            }
        }
        let file = next::quoted(&self.file.display().to_string());
        let hint = match built.kind() {
            Kind::Agent => format!("say it: rekindle run {file} \"…\""),
            _ => format!("name each: rekindle run {file} --input NAME=VALUE"),
        };
        Ok(built.check(&all).map_err(|error| error.hint(hint))?)
    }

    /// Removes a session that was made for a run that could not begin, so that its id is free again.
    async fn take_back(&self, engine: &Engine, session: &rekindle::Session) {
        let made_here = self.continue_.is_none();
        let info = engine.journal().open(session.key()).await;
        if made_here && info.is_ok_and(|info| info.branches.iter().all(|branch| branch.head.seq == Seq(0))) {
            // That it stays is no harm.
            let _ = operations::clear_session(engine, session.key(), false).await;
        }
    }

    /// The session the run goes into.
    async fn session(
        &self,
        app: &App,
        engine: &Engine,
        definition: &Definition,
        input: &RunInput,
        remembered: &Remembered,
    ) -> Result<rekindle::Session, Failure> {
        if let Some(named) = &self.continue_ {
            let key = app.session(engine, named).await?;
            return Ok(engine.open_session(key.id.as_str()).await?);
        }
        let journal = engine.journal();
        let key = match &self.session {
            Some(id) if id.starts_with(['-', '@']) => {
                let message = format!("`{id}` could not be named later: it begins like an option or like `@`");
                return Err(Error::invalid(message).hint("choose another id").into());
            }
            Some(id) => engine.key(id)?,
            None => engine.key(SessionId::generate(journal.ids(), journal.clock().now()).as_str())?,
        };
        let values = || input.values.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        let said = input.text.clone().unwrap_or_else(values);
        let title = self.title.clone().or_else(|| Some(fit(&said, 80)));
        let mut header = SessionHeader::new(key);
        header.agent = Some(definition.name().to_owned());
        header.title = title.filter(|title| !title.is_empty());
        header.tags.clone_from(&self.tag);
        run::mask(&mut header);
        header.metadata.insert("definition".to_owned(), remembered.to_json()?);
        let created = operations::begin(engine, header).await.map_err(|error| match error.kind() {
            rekindle::ErrorKind::AlreadyExists => error.hint("go on in it with --continue, or choose another id"),
            _ => error,
        });
        Ok(created?)
    }

    fn header(&self, app: &App, built: &Built, session: &str) {
        let models = built.model_names().join(", ");
        let models = if models.is_empty() { String::new() } else { format!(" · {models}") };
        let (name, dim, reset) = (style::BOLD, style::DIM, style::RESET);
        app.ui.remark(format!("{name}{}{reset} {dim}{}{models} · {session}{reset}", built.name(), built.kind()));
    }

    /// What it is asked and given.
    fn input(&self) -> Result<RunInput, Failure> {
        let text = match self.text.as_deref() {
            Some("-") => Some(read_limited(std::io::stdin(), "standard input")?),
            text => text.map(str::to_owned),
        };
        let mut values = match &self.input_file {
            Some(path) => object_from(path)?,
            None => Map::new(),
        };
        for assignment in &self.input {
            let (key, value) = run::assigned(assignment, "--input KEY=VALUE")?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            values.insert(key.to_owned(), value);
        }
        Ok(RunInput { text, values })
    }
}

fn object_from(path: &std::path::Path) -> Result<Map<String, Value>, Failure> {
    let name = path.display().to_string();
    let text = match name.as_str() {
        "-" => read_limited(std::io::stdin(), "standard input")?,
        _ => {
            let file = std::fs::File::open(path)
                .map_err(|error| Error::not_found(format!("the input file {name} cannot be read")).because(error))?;
            read_limited(file, &name)?
        }
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(values)) => Ok(values),
        Ok(_) => Err(Error::invalid(format!("{name} is not a JSON object")).into()),
        Err(error) => Err(Error::invalid(format!("{name} is not JSON")).because(error).into()),
    }
}

fn read_limited(reader: impl std::io::Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = reader.take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::invalid(format!("{name} cannot be read")).because(error))?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(Error::limit(format!("bytes of {name}"), bytes.len() as u64, MAX_INPUT).into());
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(format!("{name} is not UTF-8")).into())
}
