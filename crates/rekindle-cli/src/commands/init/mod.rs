//! `rekindle init`: a configuration and a first agent, plan or graph that runs at once.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rekindle::{Error, ErrorKind};
use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::files::NewFile;
use crate::ui::{printable, style};
use crate::words::next::quoted;

/// What to begin with, and where.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle init\n  rekindle init ./review --kind graph\n\nWhat it writes works offline, without any key."
)]
pub struct Arguments {
    /// The directory; this one without it
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    directory: PathBuf,
    /// What to write: agent, plan or graph
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Kind::Agent, hide_possible_values = true)]
    kind: Kind,
    /// Replaces files that are there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Agent,
    Plan,
    Graph,
}

const CONFIG: (&str, &str) = ("rekindle.toml", include_str!("files/rekindle.toml"));

impl Kind {
    /// The files; the first one is the one to run.
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Agent => &[
                ("agent.yaml", include_str!("files/agent.yaml")),
                ("agent.script.yaml", include_str!("files/agent.script.yaml")),
            ],
            Self::Plan => &[("plan.yaml", include_str!("files/plan.yaml"))],
            Self::Graph => &[("graph.yaml", include_str!("files/graph.yaml"))],
        }
    }

    /// What to run next.
    fn next(self) -> &'static [&'static str] {
        match self {
            Self::Agent => &["rekindle run agent.yaml \"What should I pack for Lisbon?\"", "rekindle sessions show @"],
            Self::Plan => &["rekindle run plan.yaml", "rekindle sessions show @"],
            Self::Graph => &["rekindle run graph.yaml --input topic=owls", "rekindle waits"],
        }
    }
}

impl Arguments {
    /// Writes them.
    pub async fn run(self, app: &App) -> Outcome {
        let mut files = vec![];
        // A configuration that is there is as good as this one.
        if self.force || !self.directory.join(CONFIG.0).exists() {
            files.push(CONFIG);
        }
        files.extend(self.kind.files());
        self.check(&files)?;
        std::fs::create_dir_all(&self.directory).map_err(|error| crate::files::unwritable(&self.directory, error))?;
        let mut written = Vec::new();
        for (name, text) in files {
            let path = self.directory.join(name);
            write(&path, text, self.force)?;
            // That it cannot be recorded matters to those who change these files, and they are told then.
            let _ = app.settings.trust().add(&path, rekindle::core::Hash::of(text.as_bytes()));
            written.push(path.strip_prefix(".").unwrap_or(&path).display().to_string());
        }
        self.tell(app, &written)?;
        Ok(Exit::Ok)
    }

    /// All or nothing: a file in the way is found before any is written.
    fn check(&self, files: &[(&str, &str)]) -> Result<(), Error> {
        let there = files.iter().filter(|(name, _)| self.directory.join(name).symlink_metadata().is_ok());
        let there: Vec<_> = there.map(|(name, _)| *name).collect();
        if self.force || there.is_empty() {
            return Ok(());
        }
        let place = if self.directory == Path::new(".") {
            "here".to_owned()
        } else {
            format!("in {}", self.directory.display())
        };
        Err(Error::new(ErrorKind::AlreadyExists, format!("{} {place} already", are_there(&there)))
            .hint("choose another directory (`rekindle init DIR`), or say --force to replace them"))
    }

    fn tell(&self, app: &App, written: &[String]) -> std::io::Result<()> {
        let mut next: Vec<String> = self.kind.next().iter().map(|line| (*line).to_owned()).collect();
        if self.directory != Path::new(".") {
            next.insert(0, format!("cd {}", quoted(&self.directory.display().to_string())));
        }
        if app.ui.is_json() {
            return app.ui.json(&json!({"files": written, "next": next}));
        }
        for file in written {
            app.ui.line(format!("wrote {}{}{}", style::NAME, printable(file), style::RESET))?;
        }
        app.ui.remark("\ntry it:");
        next.iter().for_each(|line| app.ui.remark(format!("  {}", printable(line))));
        Ok(())
    }
}

fn are_there(names: &[&str]) -> String {
    match names {
        [one] => format!("{one} is"),
        [rest @ .., last] => format!("{} and {last} are", rest.join(", ")),
        [] => String::new(),
    }
}

/// As readable as files usually are: these hold no secrets.
fn write(path: &Path, text: &str, force: bool) -> Result<(), Error> {
    use std::io::Write as _;
    let mut file = NewFile::begin_readable(path, force)?;
    file.writer().write_all(text.as_bytes()).map_err(|error| crate::files::unwritable(path, error))?;
    file.finish().map(drop)
}
