//! `rekindle fork`: another line of history from any moment, with changes if need be.

use clap::Args;
use rekindle::BranchId;
use rekindle::operations::{self, ForkOptions};

use super::changing::Changes;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{printable, style};
use crate::words::{damage, next};

/// Where to fork, and what to change there.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle fork @~2 --name what-if --set budget=900 --reason \"more money\"\n  rekindle diff trip-42@ckpt_01 trip-42 --json | jq .patch | rekindle fork trip-43 --patch -"
)]
pub struct Arguments {
    /// The moment: SESSION, or SESSION@WHERE
    #[arg(value_name = "MOMENT")]
    moment: String,
    /// The name of the new branch; generated without one
    #[arg(long, value_name = "BRANCH")]
    name: Option<String>,
    #[command(flatten)]
    changes: Changes,
}

impl Arguments {
    /// Forks.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let moment = app.moment(&engine, &self.moment).await?;
        let branch = self.name.as_deref().map(BranchId::new).transpose()?;
        let edits = self.changes.read(app, &engine, &moment).await?;
        if edits.is_empty() && self.changes.by_editor() {
            app.ui.remark("nothing was changed in the editor, so nothing was forked");
            return Ok(Exit::Ok);
        }
        let number = edits.len();
        let options = ForkOptions { branch, edits, author: app.author(), reason: self.changes.reason };
        let forked = operations::fork(&engine, &moment.session, &moment.at, options).await?;
        let (session, branch) = (moment.session.id.as_str(), forked.branch.as_str());
        let next = next::line(app, ["resume", session, "--branch", branch]);
        if app.ui.is_json() {
            app.ui.json(&super::WithNext { done: &forked, next })?;
            return Ok(Exit::Ok);
        }
        let (name, reset) = (style::NAME, style::RESET);
        let changed = match number {
            0 => String::new(),
            1 => ", with 1 change".to_owned(),
            number => format!(", with {number} changes"),
        };
        let (session, from) = (printable(session), printable(&forked.from.to_string()));
        app.ui.line(format!(
            "forked {name}{session}{reset} at {from} as branch {name}{}{reset}{changed}",
            printable(branch)
        ))?;
        damage::lost(app, &moment.session, &forked.damage);
        app.ui.remark(format!("go on there with: {}", printable(&next)));
        Ok(Exit::Ok)
    }
}
