//! `rekindle prune`: removes what nobody needs any more. Nothing goes without `--apply`.

mod checkpoints;
mod inactive;
mod policy;
mod sessions;

use clap::{Args, Subcommand};

use crate::app::App;
use crate::failure::Outcome;
use crate::ui::style;

/// What to prune; without a word more, the checkpoints of sessions.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Examples:\n  rekindle prune @ --keep-last 10\n  rekindle prune --all --max-age 30d --tagged release --apply\n  rekindle prune inactive --older-than 90d\n\nA checkpoint stays if any rule keeps it. The newest of a branch, pinned ones, those of unfinished\nruns and those that branches were forked from always stay."
)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    sessions: sessions::Arguments,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Deletes whole sessions in which nothing happened for a long time
    Inactive(inactive::Arguments),
    /// Removes checkpoints by their ids
    Checkpoints(checkpoints::Arguments),
}

impl Arguments {
    /// Prunes, or says what would go.
    pub async fn run(self, app: &App) -> Outcome {
        match self.what {
            Some(What::Inactive(arguments)) => arguments.run(app).await,
            Some(What::Checkpoints(arguments)) => arguments.run(app).await,
            None => self.sessions.run(app).await,
        }
    }
}

/// Says that nothing has happened yet.
fn tell_dry_run(app: &App) {
    app.ui.remark(format!("{}nothing was changed; --apply does it{}", style::WARN, style::RESET));
}
