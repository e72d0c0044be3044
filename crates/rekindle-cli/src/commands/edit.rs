//! `rekindle edit`: changes the state of a session, on the record.

use clap::Args;
use rekindle::Error;
use rekindle::operations::{self, Edited};

use super::changing::Changes;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{printable, style};
use crate::words::{damage, next};

/// The ways to say what to change.
const WAYS: &str = "say what: --set KEY=VALUE, --unset KEY, --message TEXT, --skip-step STEP, --patch FILE or --edit";

/// What to change, and where.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle edit @ --set budget=900 --reason \"more money\"\n  rekindle edit report-7 --skip-step publish\n\nAt the end of a branch that branch goes on with the change. Anywhere else a new branch begins there,\nso that nothing is lost."
)]
pub struct Arguments {
    /// The session, or a moment of it: SESSION@WHERE
    #[arg(value_name = "SESSION")]
    session: String,
    #[command(flatten)]
    changes: Changes,
}

impl Arguments {
    /// Edits.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let moment = app.moment(&engine, &self.session).await?;
        let changes = self.changes.read(app, &engine, &moment).await?;
        if changes.is_empty() && self.changes.by_editor() {
            app.ui.remark("nothing was changed in the editor, so nothing was written");
            return Ok(Exit::Ok);
        }
        if changes.is_empty() {
            return Err(Error::invalid("there is nothing to change").hint(WAYS).into());
        }
        let (author, reason) = (app.author(), &self.changes.reason);
        let edited = operations::edit(&engine, &moment.session, &moment.at, &changes, &author, reason).await?;
        tell(app, &edited)?;
        Ok(Exit::Ok)
    }
}

fn tell(app: &App, edited: &Edited) -> std::io::Result<()> {
    let (session, branch) = (edited.session.id.as_str(), edited.branch.as_str());
    let next = match edited.forked {
        true => next::line(app, ["resume", session, "--branch", branch]),
        false => next::line(app, ["resume", session]),
    };
    if app.ui.is_json() {
        return app.ui.json(&super::WithNext { done: edited, next });
    }
    let (name, reset) = (style::NAME, style::RESET);
    let place = printable(&edited.position.to_string());
    let (session, checkpoint) = (printable(session), printable(edited.checkpoint.as_str()));
    app.ui.line(format!("edited {name}{session}{reset} at {place}, checkpoint {name}{checkpoint}{reset}"))?;
    damage::lost(app, &edited.session, &edited.damage);
    if edited.forked {
        app.ui.remark(format!("branch {} is new; go on there with: {}", printable(branch), printable(&next)));
    }
    Ok(())
}
