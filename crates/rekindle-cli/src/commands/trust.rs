//! `rekindle trust`: which files that are found may use programs, secrets and servers.

use std::path::{Path, PathBuf};

use clap::Args;
use rekindle::core::Hash;
use rekindle::{Error, Result};
use rekindle_definitions::{Definition, Document, Format, SourceFile};
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::settings::{Form, Settings};
use crate::trust;
use crate::ui::{printable, style};
use crate::words::next::quoted;

/// The files to trust.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rekindle trust                        the rekindle.toml that is found here
  rekindle trust agent.yaml             an agent, with the files it refers to
  rekindle trust --list
  rekindle trust --revoke agent.yaml

A file is trusted by its path and its content: after a change it is asked for again. Files that are
named on the command line need no trust, and `rekindle run FILE` trusts FILE.")]
pub struct Arguments {
    /// Configurations, agents, plans or graphs; without any, the rekindle.toml that is found here
    #[arg(value_name = "FILE", conflicts_with = "list")]
    files: Vec<PathBuf>,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// List what is trusted
    #[arg(long)]
    list: bool,
    /// Trust no content of these files any more
    #[arg(long, conflicts_with = "list", requires = "files")]
    revoke: bool,
}

/// A file and what it may do.
#[derive(Debug, Serialize)]
struct Shown {
    file: PathBuf,
    /// One line each.
    powers: Vec<String>,
    /// The content of each file that belongs to it.
    #[serde(skip)]
    sources: Vec<SourceFile>,
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct Listed {
    file: PathBuf,
    content: String,
    /// True if the file is as it was trusted.
    current: bool,
}

impl Arguments {
    /// Trusts, lists or revokes.
    pub async fn run(self, app: &App) -> Outcome {
        if self.list {
            return list(app);
        }
        if self.revoke {
            return revoke(app, &self.files);
        }
        let files = match self.files.is_empty() {
            true => vec![Settings::nearest().ok_or_else(|| {
                Error::not_found("no rekindle.toml is found here").hint("name what to trust: rekindle trust FILE")
            })?],
            false => self.files.clone(),
        };
        let shown: Vec<Shown> = files.iter().map(|file| look(file)).collect::<Result<_, Failure>>()?;
        if !app.ui.is_json() {
            shown.iter().for_each(|shown| tell(app, shown));
        }
        if !self.yes && !agreed(app, &files)? {
            app.ui.remark("nothing was trusted");
            return Ok(Exit::Failed);
        }
        let trust = app.settings.trust();
        for file in shown.iter().flat_map(|shown| &shown.sources) {
            trust.add(&file.path, file.hash)?;
        }
        match app.ui.is_json() {
            true => app.ui.json(&shown)?,
            false => shown.iter().try_for_each(|shown| app.ui.line(format!("trusted {}", named(&shown.file))))?,
        }
        Ok(Exit::Ok)
    }
}

/// A file as it is now, and what it may do.
fn look(file: &Path) -> Result<Shown, Failure> {
    let found = trust::read(file).map_err(|error| crate::files::unreadable(file, error))?;
    let hash = Hash::of(&found.bytes);
    let name = file.display().to_string();
    if Format::of_path(file)? == Format::Toml {
        let document = Document::parse_bytes(&name, &found.bytes, Format::Toml)?;
        match document.decode::<Form>("") {
            Ok(form) => {
                let powers = trust::of_configuration(&form, document.value(), file);
                let sources = vec![SourceFile { path: file.to_owned(), hash }];
                return Ok(Shown { file: trust::key(file), powers, sources });
            }
            // By its name it can be nothing else.
            Err(faults) if file.file_name().is_some_and(|name| name == "rekindle.toml") => return Err(faults.into()),
            Err(_) => {}
        }
    }
    let definition = Definition::load(file)?;
    Ok(Shown { file: trust::key(file), powers: definition.powers(), sources: definition.sources().to_vec() })
}

fn tell(app: &App, shown: &Shown) {
    app.ui.note(named(&shown.file));
    if shown.powers.is_empty() {
        app.ui.note("  uses no program, no secret and no server of its own");
    }
    shown.powers.iter().for_each(|power| app.ui.note(format!("  {}", printable(power))));
    for other in shown.sources.iter().skip(1) {
        app.ui.note(format!("  {}with {}{}", style::DIM, named(&trust::key(&other.path)), style::RESET));
    }
}

fn agreed(app: &App, files: &[PathBuf]) -> Result<bool> {
    if app.ui.can_ask() {
        return Ok(app.ui.confirm("Trust it as it is now?"));
    }
    let words: Vec<String> = files.iter().map(|file| quoted(&file.display().to_string())).collect();
    Err(Error::invalid("trusting a file needs a yes, and there is nobody to ask")
        .hint(format!("`rekindle trust {} --yes`", words.join(" "))))
}

fn list(app: &App) -> Outcome {
    let now = |path: &Path| trust::read(path).ok().map(|found| Hash::of(&found.bytes).to_string());
    let listed = app.settings.trust().ledger().list().into_iter().map(|entry| {
        let current = now(&entry.path).as_ref() == Some(&entry.content);
        Listed { file: entry.path, content: entry.content, current }
    });
    let listed: Vec<Listed> = listed.collect();
    if app.ui.is_json() {
        app.ui.json(&listed)?;
        return Ok(Exit::Ok);
    }
    for entry in &listed {
        let note = if entry.current { "" } else { "  (as it was; it is not so now)" };
        let short = entry.content.get(..12).unwrap_or_default();
        app.ui.line(format!("{}{short}{} {}{note}", style::DIM, style::RESET, named(&entry.file)))?;
    }
    if listed.is_empty() {
        app.ui.remark("nothing is trusted");
    }
    Ok(Exit::Ok)
}

fn revoke(app: &App, files: &[PathBuf]) -> Outcome {
    for file in files {
        let contents = app.settings.trust().ledger().revoke(file)?;
        if contents == 0 {
            let message = format!("{} was not trusted", trust::key(file).display());
            return Err(Error::not_found(message).hint("see what is: rekindle trust --list").into());
        }
        app.ui.line(format!("not trusted any more: {}", named(&trust::key(file))))?;
    }
    Ok(Exit::Ok)
}

fn named(file: &Path) -> String {
    format!("{}{}{}", style::NAME, printable(&file.display().to_string()), style::RESET)
}
