//! `rekindle explain`: what an error code means and what to do about it.

use clap::Args;
use rekindle::Error;
use rekindle::core::{CATALOG, CatalogEntry};
use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::style;
use crate::ui::table::{Cell, Table};

/// Which code.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rekindle explain RK0009")]
pub struct Arguments {
    /// The code, e.g. RK0009; all of them without one
    code: Option<String>,
}

impl Arguments {
    /// Explains it.
    pub async fn run(self, app: &App) -> Outcome {
        match self.code {
            Some(code) => explain(app, &code),
            None => list(app),
        }
    }
}

fn explain(app: &App, code: &str) -> Outcome {
    let wanted = code.to_uppercase();
    let entry = CATALOG.iter().find(|entry| entry.code == wanted || entry.name.eq_ignore_ascii_case(code));
    let entry = entry.ok_or_else(|| {
        Error::not_found(format!("there is no error `{code}`")).hint("`rekindle explain` lists them all")
    })?;
    if app.ui.is_json() {
        app.ui.json(&as_json(entry))?;
    } else {
        let (bold, reset) = (style::BOLD, style::RESET);
        app.ui.line(format!("{bold}{} {}{reset}", entry.code, entry.name))?;
        app.ui.line(format!("\nWhat it means: {}.", entry.meaning))?;
        app.ui.line(format!("What to do: {}.", entry.remedy))?;
    }
    Ok(Exit::Ok)
}

fn list(app: &App) -> Outcome {
    if app.ui.is_json() {
        app.ui.json(&CATALOG.iter().map(as_json).collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["CODE", "NAME", "MEANING"]);
    for entry in CATALOG {
        table.row([Cell::styled(entry.code, style::NAME), Cell::new(entry.name), Cell::new(entry.meaning)]);
    }
    for line in table.lines(app.ui.table_width()) {
        app.ui.line(line)?;
    }
    Ok(Exit::Ok)
}

fn as_json(entry: &CatalogEntry) -> serde_json::Value {
    json!({"code": entry.code, "name": entry.name, "meaning": entry.meaning, "remedy": entry.remedy})
}
