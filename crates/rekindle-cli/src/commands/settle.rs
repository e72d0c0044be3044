//! `rekindle settle`: says what became of a call of which nobody knows whether it happened.

use clap::Args;
use rekindle::core::record::EffectKind;
use rekindle::operations::{self, EffectView, Settlement};
use rekindle::{EffectId, Error, Result, SessionKey};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{printable, style};
use crate::words::{next, value};

/// Which call, and what became of it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle settle trip-42 --happened '{\"booking\": 17}'\n  rekindle settle trip-42 t1.0.c1 --failed 'the bank said no' --reason 'asked the bank'"
)]
#[command(group = clap::ArgGroup::new("became").required(true).args(["happened", "failed", "did_not_happen"]))]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// The call; may be left out if only one is open
    #[arg(value_name = "EFFECT")]
    effect: Option<String>,
    /// It happened, and this is its result: JSON, or else a text
    #[arg(long, value_name = "RESULT", allow_hyphen_values = true)]
    happened: Option<String>,
    /// It failed, and this is why
    #[arg(long, value_name = "REASON")]
    failed: Option<String>,
    /// It did not happen, and whoever called it is told so
    #[arg(long)]
    did_not_happen: bool,
    /// How that was found out, for the record
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

impl Arguments {
    /// Settles it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let shown = operations::show(&engine, &session).await?;
        let effect = chosen(&session, &shown.effects, self.effect.as_deref())?;
        let settlement = match (&self.happened, &self.failed) {
            (Some(text), _) => Settlement::Ok(value::typed(text)),
            (None, Some(why)) => Settlement::Failed(why.clone()),
            (None, None) => Settlement::Failed("the call did not happen".to_owned()),
        };
        let settled = operations::settle(&engine, &session, &effect, &settlement, &app.author(), &self.reason).await?;
        if app.ui.is_json() {
            app.ui.json(&settled)?;
            return Ok(Exit::Ok);
        }
        let (name, reset) = (style::NAME, style::RESET);
        let (effect, id) = (printable(settled.effect.as_str()), printable(session.id.as_str()));
        app.ui.line(format!("settled: {name}{effect}{reset} of {name}{id}{reset} at {}", settled.position))?;
        if !settled.still_open.is_empty() {
            let open: Vec<_> = settled.still_open.iter().map(|open| printable(open.as_str())).collect();
            app.ui.remark(format!("still open: {}", open.join(", ")));
        }
        next::tell(app, &next::resume(app, &session));
        Ok(Exit::Ok)
    }
}

/// The call that is meant: its id, the beginning of one, or the only one that can be settled.
fn chosen(session: &SessionKey, open: &[EffectView], text: Option<&str>) -> Result<EffectId> {
    let candidates: Vec<_> = match text {
        Some(text) => open.iter().filter(|open| open.effect.as_str().starts_with(text)).collect(),
        None => open.iter().filter(|open| open.kind != EffectKind::Model).collect(),
    };
    let exact = candidates.iter().find(|open| Some(open.effect.as_str()) == text);
    match (exact, candidates.as_slice(), text) {
        (Some(exact), ..) => Ok(exact.effect.clone()),
        (None, [only], _) => Ok(only.effect.clone()),
        // The operation says what is wrong with it.
        (None, [], Some(text)) => EffectId::new(text),
        (None, [], None) => Err(Error::not_found("no call of the session is open")
            .on(session)
            .hint("there is nothing to settle; `rekindle sessions show` says what the session does")),
        (None, several, _) => {
            let names: Vec<_> = several.iter().map(|open| format!("{} ({})", open.effect, open.name)).collect();
            let message = format!("{} calls are open: {}", names.len(), names.join(", "));
            Err(Error::invalid(message).on(session).hint("name the one you mean"))
        }
    }
}
