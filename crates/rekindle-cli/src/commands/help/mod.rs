//! `rekindle help`: commands, and topics that belong to no single one.

use clap::Args;
use rekindle::Error;
use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::settings::KEYS;
use crate::ui::style;
use crate::ui::table::{Cell, Table};

/// What about.
#[derive(Debug, Args)]
#[command(
    after_help = "Topics: exit-codes, references, files, environment\n\nExamples:\n  rekindle help fork\n  rekindle help exit-codes\n  rekindle help --agent"
)]
pub struct Arguments {
    /// A command or a topic
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
    /// A short guide for programs and AI agents that call this one
    #[arg(long, conflicts_with = "topic")]
    agent: bool,
}

/// The topics, with what each is about.
const TOPICS: [(&str, &str); 4] = [
    ("exit-codes", "how the program ends, for scripts"),
    ("references", "how to name sessions and moments of them"),
    ("files", "the files you write and those that are written"),
    ("environment", "the variables that are read"),
];

impl Arguments {
    /// Helps.
    pub async fn run(self, app: &App) -> Outcome {
        let names: Vec<&str> = self.topic.iter().map(String::as_str).collect();
        let (topic, text) = match names.as_slice() {
            [] if self.agent => ("agent".to_owned(), include_str!("agent.txt").to_owned()),
            [] => ("rekindle".to_owned(), whole()),
            ["exit-codes"] => return exit_codes(app),
            ["environment"] => ("environment".to_owned(), environment()),
            ["references"] => ("references".to_owned(), include_str!("references.txt").to_owned()),
            ["files"] => ("files".to_owned(), include_str!("files.txt").to_owned()),
            names => (names.join(" "), command(names)?),
        };
        if app.ui.is_json() {
            let text = anstream::adapter::strip_str(&text).to_string();
            app.ui.json(&json!({"topic": topic, "text": text}))?;
        } else {
            app.ui.line(text.trim_end())?;
        }
        Ok(Exit::Ok)
    }
}

/// The usual help, and the topics.
fn whole() -> String {
    let mut text = crate::cli::command().render_help().ansi().to_string();
    text.push_str(&format!("\n{}Topics{} (rekindle help TOPIC)\n", style::BOLD, style::RESET));
    for (name, about) in TOPICS {
        text.push_str(&format!("  {}{name:<12}{} {about}\n", style::NAME, style::RESET));
    }
    text
}

fn command(names: &[&str]) -> Result<String, Error> {
    let mut command = crate::cli::command();
    command.build();
    for (depth, name) in names.iter().enumerate() {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| unknown(&command, &names[..=depth]))?;
    }
    Ok(command.render_help().ansi().to_string())
}

fn unknown(within: &clap::Command, names: &[&str]) -> Error {
    let name = names.last().copied().unwrap_or_default();
    let topics = TOPICS.iter().map(|(name, _)| *name).filter(|_| names.len() == 1);
    let known = within.get_subcommands().map(clap::Command::get_name).chain(topics);
    let nearest = known.max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    let error = Error::not_found(format!("there is no help on `{}`", names.join(" ")));
    match nearest.filter(|known| strsim::jaro_winkler(known, name) > 0.8) {
        Some(nearest) => error.hint(format!("did you mean `rekindle help {nearest}`?")),
        None => error.hint("`rekindle help` lists commands and topics"),
    }
}

fn exit_codes(app: &App) -> Outcome {
    if app.ui.is_json() {
        let codes = Exit::ALL.iter().map(|(exit, about)| json!({"code": exit.code(), "means": about}));
        app.ui.json(&codes.collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["CODE", "MEANS"]);
    for (exit, about) in Exit::ALL {
        table.row([Cell::styled(exit.code().to_string(), style::NAME), Cell::new(about)]);
    }
    for line in table.lines(app.ui.table_width()) {
        app.ui.line(line)?;
    }
    app.ui.line("\nErrors have codes of their own: `rekindle explain` lists them.")?;
    Ok(Exit::Ok)
}

fn environment() -> String {
    let mut text = include_str!("environment.txt").to_owned();
    for key in KEYS {
        text.push_str(&format!("  {}{}{}\n      {}\n", style::NAME, key.variable(), style::RESET, key.about));
    }
    text
}
