//! `rekindle keys`: the data keys of encrypted sessions.

use clap::{Args, Subcommand};
use rekindle::Error;
use serde_json::json;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::style;
use crate::words::number;

/// What to do.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rekindle keys rewrap")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Wrap the data keys of all sessions with the key that is active now
    #[command(
        after_help = "Example:\n  rekindle keys rewrap\n\nEvery encrypted session has a key of its own, which is stored under the main key. After another main key\nwas made the active one in the configuration, and the one before was put under `encryption.old`, this stores\nthe keys of all sessions of the namespace under the new one. No record is rewritten, and nothing need stop. Then\nthe old key can go, unless there are archives, or sessions from before they had keys of their own."
    )]
    Rewrap,
}

impl Arguments {
    /// Does it.
    pub async fn run(self, app: &App) -> Outcome {
        let Command::Rewrap = self.command;
        let engine = app.engine(Access::Existing)?;
        if !engine.journal().codec().encrypts() {
            return Err(Error::invalid("no encryption key is configured")
                .hint("set `encryption.key`; see `rekindle config show`")
                .into());
        }
        let done = engine.journal().rewrap(engine.namespace()).await?;
        if app.ui.is_json() {
            app.ui.json(&json!({"changed": done.changed, "current": done.current}))?;
            return Ok(Exit::Ok);
        }
        let (good, reset) = (style::GOOD, style::RESET);
        let changed = number(usize::try_from(done.changed).unwrap_or(usize::MAX), "data key");
        app.ui.line(format!("{good}✓{reset} {changed} wrapped with the active key, {} already", done.current))?;
        Ok(Exit::Ok)
    }
}
