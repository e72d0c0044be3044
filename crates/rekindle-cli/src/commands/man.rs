//! `rekindle man`: the manual pages.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_mangen::Man;
use rekindle::Error;
use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::files::unwritable;
use crate::ui::printable;

/// Where to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle man ~/.local/share/man/man1\n  rekindle man | man -l -")]
pub struct Arguments {
    /// The directory for the pages of all commands; without it the main page goes to standard output
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Arguments {
    /// Writes them.
    pub async fn run(self, app: &App) -> Outcome {
        let mut command = crate::cli::command();
        command.build();
        match &self.directory {
            Some(directory) => {
                let files = write_all(&command, directory)?;
                match app.ui.is_json() {
                    true => app.ui.json(&files)?,
                    false => app.ui.line(format!(
                        "wrote {} pages to {}",
                        files.len(),
                        printable(&directory.display().to_string())
                    ))?,
                }
            }
            None => {
                let text = String::from_utf8_lossy(&page(command)?).into_owned();
                match app.ui.is_json() {
                    true => app.ui.json(&json!({"name": "rekindle.1", "text": text}))?,
                    false => app.ui.line(text.trim_end())?,
                }
            }
        }
        Ok(Exit::Ok)
    }
}

fn page(command: clap::Command) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let rendered = Man::new(command).render(&mut text);
    rendered.map_err(|error| Error::invalid("the page cannot be rendered").because(error))?;
    Ok(text)
}

/// The pages of a command and all commands in it; their files.
fn write_all(command: &clap::Command, directory: &Path) -> Result<Vec<String>, Error> {
    std::fs::create_dir_all(directory).map_err(|error| unwritable(directory, error))?;
    let mut files = Vec::new();
    let mut left = vec![(command.get_name().to_owned(), command.clone())];
    while let Some((name, command)) = left.pop() {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            left.push((format!("{name}-{}", inner.get_name()), inner.clone()));
        }
        let path = directory.join(format!("{name}.1"));
        let text = page(command.display_name(&name))?;
        std::fs::write(&path, text).map_err(|error| unwritable(&path, error))?;
        files.push(path.display().to_string());
    }
    files.sort();
    Ok(files)
}
