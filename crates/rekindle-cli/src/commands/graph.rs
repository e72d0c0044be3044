//! `rekindle graph`: a drawing of a graph, with the path of a session if one is named.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use rekindle::Error;
use rekindle::graph::{GraphSpec, GraphState, Trail};
use rekindle::operations;
use rekindle_definitions::Definition;
use serde_json::json;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::files::NewFile;
use crate::run::{self, Remembered};
use crate::ui::style;

/// Arguments of `rekindle graph`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle graph review.yaml\n  rekindle graph @ --svg -o path.svg\n  rekindle graph draft@~1 --file review.yaml\n\nMermaid is text that many editors and pages draw. With a session, the nodes it has been at are marked, with the\norder it came to them, and those where it stands or failed."
)]
pub struct Arguments {
    /// A file with a graph, or a session of one, or a moment of it
    #[arg(value_name = "FILE|SESSION")]
    what: String,
    /// Draw a Mermaid flowchart, as text; this is the default
    #[arg(long, conflicts_with = "svg")]
    mermaid: bool,
    /// Draw a picture, as SVG
    #[arg(long)]
    svg: bool,
    /// The file of the session, instead of the one it remembers
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write to a file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

impl Arguments {
    /// Draws it.
    pub async fn run(self, app: &App) -> Outcome {
        let path = Path::new(&self.what);
        let (name, drawing) = match path.is_file() && self.file.is_none() {
            true => {
                let definition = Definition::load(path)?;
                let graph = graph_of(&definition)?;
                (graph.name.clone(), self.draw(graph, None))
            }
            false => self.of_session(app).await?,
        };
        let format = if self.svg { "svg" } else { "mermaid" };
        match self.output.as_deref().filter(|path| *path != Path::new("-")) {
            Some(output) => {
                let mut file = NewFile::begin_readable(output, self.force)?;
                let written = file.writer().write_all(drawing.as_bytes());
                written.map_err(|error| crate::files::unwritable(output, error))?;
                let bytes = file.finish()?;
                let shown = output.display().to_string();
                match app.ui.is_json() {
                    true => app.ui.json(&json!({"graph": name, "format": format, "file": shown, "bytes": bytes}))?,
                    false => app.ui.line(format!("wrote {}{shown}{}", style::NAME, style::RESET))?,
                }
            }
            None if app.ui.is_json() => app.ui.json(&json!({"graph": name, "format": format, "drawing": drawing}))?,
            None => app.ui.line(drawing.trim_end())?,
        }
        Ok(Exit::Ok)
    }

    async fn of_session(&self, app: &App) -> Result<(String, String), Failure> {
        let engine = app.engine(Access::Existing).map_err(|error| self.nothing(error))?;
        let moment = app.moment(&engine, &self.what).await.map_err(|failure| match failure {
            Failure::Error(error) => self.nothing(error).into(),
            failure => failure,
        })?;
        let seen = operations::inspect(&engine, &moment.session, &moment.at).await?;
        let info = engine.journal().open(&moment.session).await?;
        let definition = match &self.file {
            Some(file) => Definition::load(file)?,
            None => run::recorded(app, &info, Remembered::in_header(&info).as_ref())?,
        };
        let graph = graph_of(&definition).map_err(|error| error.on(&moment.session))?;
        let state = GraphState::of(&seen.state).map_err(|error| error.on(&moment.session))?;
        Ok((graph.name.clone(), self.draw(graph, Some(&state))))
    }

    /// The error of a word that is neither a file nor a session.
    fn nothing(&self, error: Error) -> Error {
        let looks_like_a_file = Path::new(&self.what).extension().is_some() || self.what.contains('/');
        match *error.kind() == rekindle::ErrorKind::NotFound && looks_like_a_file {
            true => Error::not_found(format!("there is no file {}", self.what)).hint("check the path"),
            false => error,
        }
    }

    fn draw(&self, graph: &GraphSpec, state: Option<&GraphState>) -> String {
        match (self.svg, state) {
            (true, Some(state)) => state.to_svg(graph),
            (true, None) => graph.to_svg(&Trail::default()),
            (false, Some(state)) => state.to_mermaid(graph),
            (false, None) => graph.to_mermaid(&Trail::default()),
        }
    }
}

fn graph_of(definition: &Definition) -> Result<&GraphSpec, Error> {
    definition.graph().ok_or_else(|| {
        let message = format!(
            "`{}` is {} {}, and only graphs are drawn",
            definition.name(),
            article(definition),
            definition.kind().as_str()
        );
        Error::invalid(message).hint("`rekindle log SESSION` draws the history of any session")
    })
}

fn article(definition: &Definition) -> &'static str {
    if definition.kind().as_str().starts_with('a') { "an" } else { "a" }
}
