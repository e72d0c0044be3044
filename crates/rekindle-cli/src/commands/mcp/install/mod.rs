//! `rekindle mcp --install`: what a client's configuration needs so that it starts this server.

mod client;
mod json;
mod jsonc;
mod toml;

use std::path::PathBuf;

use rekindle::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::files;
use crate::ui::{printable, style};
pub use client::Client;

/// The name clients know the server by.
const NAME: &str = "rekindle";

/// How a client starts this server.
#[derive(Debug, PartialEq, Eq)]
pub struct Launch {
    pub command: String,
    pub arguments: Vec<String>,
}

/// What the server is started with beside its store and its configuration.
pub struct Said<'a> {
    pub files: &'a [PathBuf],
    pub options: Vec<String>,
}

/// Prints or writes the entry of a client; without one, says which there are.
pub fn run(app: &App, client: Option<Client>, said: &Said<'_>, write: bool) -> Outcome {
    let Some(client) = client else {
        return list(app, write);
    };
    let launch = launch(app, said)?;
    let home = std::env::home_dir();
    let path = client.path(home.as_deref())?;
    if write {
        return put(app, client, &launch, path);
    }
    let entry = client.entry(&launch)?;
    if app.ui.is_json() {
        let file = path.display().to_string();
        app.ui.json(&json!({ "client": client.name(), "file": file, "entry": entry }))?;
        return Ok(Exit::Ok);
    }
    app.ui.remark(format!("for {}, in {}:", client.title(), printable(&path.display().to_string())));
    app.ui.line(entry)?;
    Ok(Exit::Ok)
}

/// Which clients there are, and where their configuration is.
fn list(app: &App, write: bool) -> Outcome {
    if write {
        return Err(Error::invalid("--write needs to know the client")
            .hint("name it, e.g. rekindle mcp --install cursor --write")
            .into());
    }
    let home = std::env::home_dir();
    let rows = Client::ALL.map(|client| {
        let path = client.path(home.as_deref()).map(|path| path.display().to_string()).unwrap_or_default();
        (client, path)
    });
    if app.ui.is_json() {
        let all = rows.iter().map(|(client, path)| json!({ "client": client.name(), "file": path }));
        app.ui.json(&json!({ "clients": all.collect::<Vec<Value>>() }))?;
        return Ok(Exit::Ok);
    }
    let width = rows.iter().map(|(client, _)| client.name().len()).max().unwrap_or(0);
    for (client, path) in &rows {
        let (name, reset, dim) = (style::NAME, style::RESET, style::DIM);
        let gap = " ".repeat(width - client.name().len());
        app.ui.line(format!(
            "{name}{}{reset}{gap}  {:<15} {dim}{}{reset}",
            client.name(),
            client.title(),
            printable(path)
        ))?;
    }
    Ok(Exit::Ok)
}

/// Puts the entry into the client's configuration and says so.
fn put(app: &App, client: Client, launch: &Launch, path: PathBuf) -> Outcome {
    let before = read(&path)?;
    let after = client.merged(before.as_deref().unwrap_or(""), launch).map_err(|error| {
        let message = format!("{} was left as it is: {}", path.display(), error.message());
        Error::new(ErrorKind::Invalid, message)
            .hint(format!("add by hand what `rekindle mcp --install {}` prints", client.name()))
    })?;
    let changed = before.as_deref() != Some(&after);
    if changed {
        files::replace(&path, after.as_bytes())?;
    }
    if app.ui.is_json() {
        let file = path.display().to_string();
        app.ui.json(&json!({ "client": client.name(), "file": file, "changed": changed }))?;
    } else {
        let path = printable(&path.display().to_string());
        app.ui.line(if changed { format!("written: {path}") } else { format!("already in {path}") })?;
        app.ui.remark(format!("start {} again to use it", client.title()));
    }
    Ok(Exit::Ok)
}

/// This program with what it was told, in a way that does not depend on where it is started.
fn launch(app: &App, said: &Said<'_>) -> Result<Launch, Failure> {
    let command = std::env::current_exe()
        .map_err(|error| Error::new(ErrorKind::Unsupported, "the path of this program is not known").because(error))?;
    let mut arguments = vec!["mcp".to_owned(), "--store".to_owned(), absolute_store(&app.settings.store_url())?];
    if let Some(config) = app.settings.files().last() {
        arguments.extend(["--config".to_owned(), absolute(config)?]);
    }
    if let Some(namespace) = app.settings.namespace() {
        arguments.extend(["--namespace".to_owned(), namespace.to_owned()]);
    }
    for file in said.files {
        crate::run::load(file)?;
        arguments.extend(["--agent".to_owned(), absolute(file)?]);
    }
    arguments.extend(said.options.iter().cloned());
    Ok(Launch { command: absolute(&command)?, arguments })
}

fn absolute(path: &std::path::Path) -> Result<String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::invalid(format!("the path {} is not UTF-8", path.display())))
}

/// A store whose path does not depend on where the program is started. A password stays out.
fn absolute_store(url: &str) -> Result<String> {
    match url.split_once(':') {
        Some((scheme @ ("sqlite" | "file" | "objects"), path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            Ok(format!("{scheme}:{}", absolute(std::path::Path::new(path))?))
        }
        _ if rekindle_store::shown_url(url) != url => Err(Error::invalid("the URL of the store holds a secret")
            .hint("leave it out of the URL and set store_password, see docs/configuration.md")),
        _ => Ok(url.to_owned()),
    }
}

/// The file as it is; nothing if there is none yet.
fn read(path: &std::path::Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            Err(Error::invalid(format!("{} cannot be read, so it was left as it is", path.display())).because(error))
        }
    }
}
