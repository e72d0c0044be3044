//! `rekindle verify --accept`: an older state is taken for the right one, on record.

use rekindle::operations::{self, AcceptedState, Found};
use rekindle::{Engine, Error, SessionKey};

use super::super::each::Each;
use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::reference;
use crate::ui::live::Live;
use crate::ui::{printable, style, time};

/// Accepts the state of the named sessions, or of all.
pub async fn run(app: &App, engine: &Engine, named: &[String], reason: Option<&str>) -> Outcome {
    let reason = reason.filter(|reason| !reason.trim().is_empty()).ok_or_else(|| {
        Error::invalid("nothing says why the older state is accepted").hint("add --reason TEXT: it goes on record")
    })?;
    let (author, mut accepted) = (app.author(), Vec::new());
    if named.is_empty() {
        let (mut each, mut live) = (Each::all(engine).await?, Live::new(app.ui.clone()));
        while let Some(session) = each.next(engine).await? {
            each.show(&mut live, "comparing", &session);
            accepted.push(operations::accept_rollback(engine, &session, &author, reason).await?);
        }
        live.clear();
        if let Some(marks) = engine.journal().store().high_water() {
            for gone in marks.gone(engine.namespace()).await? {
                accepted.push(operations::accept_rollback(engine, &gone.session, &author, reason).await?);
            }
        }
    }
    for text in named {
        let session = session(app, engine, text).await?;
        accepted.push(operations::accept_rollback(engine, &session, &author, reason).await?);
    }
    accepted.retain(|accepted| accepted.found != Found::Whole);
    match app.ui.is_json() {
        true => app.ui.json(&accepted)?,
        false => tell(app, &accepted)?,
    }
    Ok(Exit::Ok)
}

/// The session that is meant, which may be gone.
async fn session(app: &App, engine: &Engine, text: &str) -> Result<SessionKey, Failure> {
    let exact = engine.key(text)?;
    match engine.journal().open(&exact).await.is_err() && reference::was_there(engine, &exact).await {
        true => Ok(exact),
        false => app.session(engine, text).await,
    }
}

fn tell(app: &App, accepted: &[AcceptedState]) -> std::io::Result<()> {
    if accepted.is_empty() {
        return app.ui.line("nothing to accept: no session is in an older state than it was");
    }
    for AcceptedState { session, found, missing, .. } in accepted {
        let (good, reset) = (style::GOOD, style::RESET);
        let name = printable(session.id.as_str());
        app.ui.line(match found {
            Found::Gone => format!("{good}✓{reset} {name} may be gone"),
            _ => format!("{good}✓{reset} {name} goes on from its older state"),
        })?;
        for damage in missing {
            app.ui.line(format!("  {}: {}", damage.branch, damage.detail))?;
        }
    }
    if accepted.iter().any(|accepted| accepted.found == Found::RolledBack) {
        let many = time::counted(accepted.len() as u64, "session");
        app.ui.hint(format!("calls whose records are gone may have happened, and are made again ({many})"));
    }
    Ok(())
}
