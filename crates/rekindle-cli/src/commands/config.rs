//! `rekindle config`: the effective configuration and where each value comes from.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::settings::KEYS;
use crate::ui::style;
use crate::ui::table::{Cell, Table};

/// What to do with the configuration.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle config show\n  REKINDLE_RUN_DURABILITY=sync rekindle config show\n  rekindle -c lease=5s config show"
)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Prints every key, its value and where that comes from
    #[command(after_help = "Example:\n  rekindle config show --json")]
    Show,
    /// Prints the configuration files that are read
    #[command(after_help = "Example:\n  rekindle config path")]
    Path,
    /// Prints every key with its variable of the environment and what it is for
    #[command(after_help = "Example:\n  rekindle config keys")]
    Keys,
}

impl Arguments {
    /// Shows it.
    pub async fn run(self, app: &App) -> Outcome {
        match self.what.unwrap_or(What::Show) {
            What::Show => show(app),
            What::Path => path(app),
            What::Keys => keys(app),
        }
    }
}

fn show(app: &App) -> Outcome {
    let effective = app.settings.effective();
    if app.ui.is_json() {
        app.ui.json(&effective)?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]).elastic(1);
    for entry in &effective {
        let value = match &entry.value {
            Value::String(text) if text.is_empty() => "–".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let style = if entry.origin == "default" { style::DIM } else { anstyle::Style::new() };
        table.row([
            Cell::styled(&entry.key, style::NAME),
            Cell::styled(value, style),
            Cell::styled(&entry.origin, style),
        ]);
    }
    for line in table.lines(app.ui.table_width()) {
        app.ui.line(line)?;
    }
    for name in app.settings.strange_variables() {
        app.ui.remark(format!("{}note:{} ${name} is no key of the configuration", style::WARN, style::RESET));
    }
    Ok(Exit::Ok)
}

fn path(app: &App) -> Outcome {
    let files: Vec<_> = app.settings.files().iter().map(|path| path.display().to_string()).collect();
    if app.ui.is_json() {
        app.ui.json(&files)?;
        return Ok(Exit::Ok);
    }
    for file in &files {
        app.ui.line(file)?;
    }
    if files.is_empty() {
        app.ui.remark("there is no rekindle.toml here, above or in the user's configuration");
        app.ui.hint("`rekindle init` writes one");
    }
    Ok(Exit::Ok)
}

fn keys(app: &App) -> Outcome {
    if app.ui.is_json() {
        let keys = KEYS.iter().map(
            |key| json!({"key": key.name, "variable": key.variable(), "default": key.default, "about": key.about}),
        );
        app.ui.json(&keys.collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["KEY", "VARIABLE", "DEFAULT", "FOR"]);
    for key in KEYS {
        table.row([
            Cell::styled(key.name, style::NAME),
            Cell::new(key.variable()),
            Cell::new(key.default),
            Cell::new(key.about),
        ]);
    }
    for line in table.lines(app.ui.table_width()) {
        app.ui.line(line)?;
    }
    Ok(Exit::Ok)
}
