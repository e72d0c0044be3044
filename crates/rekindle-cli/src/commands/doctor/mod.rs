//! `rekindle doctor`: checks that everything is in order, and says what to do where it is not.

mod privacy;
mod providers;
mod store;
mod surroundings;

use clap::Args;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{printable, style};

/// What to check.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle doctor\n  rekindle doctor --online --json\n  rekindle doctor --repair\n\nEnds with 1 if anything is ✗. Keys are only looked for; they are never printed."
)]
pub struct Arguments {
    /// Also tries to reach the providers whose keys are set
    #[arg(long)]
    online: bool,
    /// Finish removals that were begun and stopped
    #[arg(long)]
    repair: bool,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    /// In order.
    Good,
    /// Somebody should look.
    Warning,
    /// Does not work.
    Bad,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    health: Health,
    says: String,
    #[serde(rename = "do")]
    to_do: Option<String>,
}

impl Check {
    fn good(name: &'static str, says: impl Into<String>) -> Self {
        Self { name, health: Health::Good, says: says.into(), to_do: None }
    }

    fn warning(name: &'static str, says: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { name, health: Health::Warning, says: says.into(), to_do: Some(to_do.into()) }
    }

    fn bad(name: &'static str, says: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { name, health: Health::Bad, says: says.into(), to_do: Some(to_do.into()) }
    }
}

impl Arguments {
    /// Checks.
    pub async fn run(self, app: &App) -> Outcome {
        let mut checks = vec![surroundings::version(), surroundings::configuration(app), surroundings::clock()];
        checks.extend(surroundings::refused(app));
        // Without the configuration, another store would be looked at.
        if app.settings.refused().is_empty() {
            checks.extend(store::checks(app, self.repair).await);
            checks.extend(privacy::checks(app));
            checks.extend(surroundings::disk(app));
        }
        checks.extend(providers::checks(self.online).await);
        checks.push(surroundings::terminal(app));
        match app.ui.is_json() {
            true => app.ui.json(&checks)?,
            false => checks.iter().try_for_each(|check| tell(app, check))?,
        }
        let is_bad = checks.iter().any(|check| check.health == Health::Bad);
        Ok(if is_bad { Exit::Failed } else { Exit::Ok })
    }
}

fn tell(app: &App, check: &Check) -> std::io::Result<()> {
    let (sign, colour) = match check.health {
        Health::Good => ("✓", style::GOOD),
        Health::Warning => ("!", style::WARN),
        Health::Bad => ("✗", style::BAD),
    };
    let (reset, dim) = (style::RESET, style::DIM);
    app.ui.line(format!("{colour}{sign}{reset} {:<14} {}", check.name, printable(&check.says)))?;
    match &check.to_do {
        Some(to_do) => app.ui.line(format!("  {:<14} {dim}→{reset} {}", "", printable(to_do))),
        None => Ok(()),
    }
}
