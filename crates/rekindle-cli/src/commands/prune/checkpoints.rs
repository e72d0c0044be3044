//! `rekindle prune checkpoints`: checkpoints by their ids.

use clap::Args;
use rekindle::operations::{self, At};
use rekindle::{CheckpointId, Engine, Error, SessionKey};

use super::tell_dry_run;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::reference;
use crate::ui::{printable, style};
use crate::words::next::quoted;

/// Which checkpoints.
#[derive(Debug, Args)]
#[group(skip)]
#[command(
    after_help = "Example:\n  rekindle prune checkpoints @ ckpt_01 ckpt_02 --apply\n\nOnly the marks go. The bytes go with the next `rekindle prune SESSION`."
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// The checkpoints, or the beginnings of their ids
    #[arg(value_name = "CHECKPOINT", required = true)]
    checkpoints: Vec<String>,
    /// Does it; without this only says what would go
    #[arg(long)]
    apply: bool,
}

impl Arguments {
    /// Removes them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let ids = resolve(&engine, &session, &self.checkpoints).await?;
        let unmarked = operations::delete_checkpoints(&engine, &session, &ids, !self.apply).await?;
        if app.ui.is_json() {
            app.ui.json(&unmarked)?;
            return Ok(Exit::Ok);
        }
        let went = if unmarked.dry_run { "would go" } else { "went" };
        for id in &unmarked.checkpoints {
            app.ui.line(format!("{}{}{} {went}", style::NAME, printable(id.as_str()), style::RESET))?;
        }
        if unmarked.dry_run {
            tell_dry_run(app);
        }
        Ok(Exit::Ok)
    }
}

async fn resolve(engine: &Engine, session: &SessionKey, texts: &[String]) -> Result<Vec<CheckpointId>, Failure> {
    let mut ids = Vec::new();
    for text in texts {
        match reference::at(engine, session, text).await? {
            At::Checkpoint(id) if ids.contains(&id) => {}
            At::Checkpoint(id) => ids.push(id),
            _ => {
                let error = Error::invalid(format!("`{text}` is no checkpoint"));
                return Err(error
                    .on(session)
                    .hint(format!("`rekindle sessions checkpoints {}` lists them", quoted(session.id.as_str())))
                    .into());
            }
        }
    }
    Ok(ids)
}
