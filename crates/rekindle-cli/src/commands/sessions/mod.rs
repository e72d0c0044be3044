//! `rekindle sessions`: finding, showing and removing sessions.

mod checkpoints;
mod inspect;
mod list;
mod rm;
mod show;

use clap::{Args, Subcommand};

use super::resume;
use crate::app::App;
use crate::failure::Outcome;

/// What to do with sessions; lists them without a word more.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Examples:\n  rekindle sessions\n  rekindle sessions --status waiting --since 2d\n  rekindle sessions show @"
)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    list: Box<list::Arguments>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lists sessions, latest first
    List(Box<list::Arguments>),
    /// Shows everything worth knowing of a session
    Show(show::Arguments),
    /// Lists its checkpoints, newest first
    Checkpoints(checkpoints::Arguments),
    /// Shows what it knew at a moment
    Inspect(inspect::Arguments),
    /// Goes on with it, as `rekindle resume` does
    Resume(Box<resume::Arguments>),
    /// Removes sessions and everything in them
    #[command(visible_alias = "delete")]
    Rm(rm::Arguments),
}

impl Arguments {
    /// Does it.
    pub async fn run(self, app: &App) -> Outcome {
        match self.what.unwrap_or(What::List(self.list)) {
            What::List(arguments) => arguments.run(app).await,
            What::Show(arguments) => arguments.run(app).await,
            What::Checkpoints(arguments) => arguments.run(app).await,
            What::Inspect(arguments) => arguments.run(app).await,
            What::Resume(arguments) => arguments.run(app).await,
            What::Rm(arguments) => arguments.run(app).await,
        }
    }
}
