//! `rekindle schema`: the JSON Schemas of the files people write.

use clap::Args;
use rekindle::Error;
use rekindle_definitions::{schema, schema_names};
use serde_json::{Value, json};

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::settings;
use crate::ui::style;
use crate::ui::table::{Cell, Table};

/// Which schema.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  rekindle schema agent > agent.schema.json\n\nFor editors, begin a YAML file with: # yaml-language-server: $schema=./agent.schema.json"
)]
pub struct Arguments {
    /// Whose: agent, plan, graph, script or config; lists them without one
    name: Option<String>,
}

const CONFIG: &str = "config";

impl Arguments {
    /// Prints it.
    pub async fn run(self, app: &App) -> Outcome {
        match self.name {
            Some(name) => app.ui.json(&find(&name)?)?,
            None => list(app)?,
        }
        Ok(Exit::Ok)
    }
}

fn find(name: &str) -> Result<Value, Error> {
    if name == CONFIG {
        return Ok(settings::schema());
    }
    let known = schema_names();
    let found = known.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, name)| schema(name)).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).chain([CONFIG]).collect();
        Error::not_found(format!("there is no schema `{name}`")).hint(format!("there are {}", names.join(", ")))
    })
}

fn list(app: &App) -> std::io::Result<()> {
    let all: Vec<_> = schema_names().into_iter().map(|(name, _)| name).chain([CONFIG]).collect();
    if app.ui.is_json() {
        return app.ui.json(&all.iter().map(|name| json!({"name": name, "for": about(name)})).collect::<Vec<_>>());
    }
    let mut table = Table::new(&["NAME", "FOR"]);
    for name in all {
        table.row([Cell::styled(name, style::NAME), Cell::new(about(name))]);
    }
    table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))
}

fn about(name: &str) -> &'static str {
    match name {
        "agent" => "files of agents: a model, what it is told, its tools",
        "plan" => "files of plans: steps and what they depend on",
        "graph" => "files of graphs: nodes, edges, memory",
        "script" => "what a scripted model answers",
        CONFIG => "rekindle.toml",
        _ => "",
    }
}
