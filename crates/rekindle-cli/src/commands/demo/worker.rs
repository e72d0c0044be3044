//! The process that the demo kills: it starts the work, or goes on with it.

use std::path::Path;

use rekindle::{BranchId, Error, Message, ResumeOptions, SessionHeader, Status};

use super::agent;
use crate::app::{Access, App};
use crate::failure::Outcome;
use crate::run;

/// The session of the demo.
const SESSION: &str = "trip-to-lisbon";

/// Starts the work, or goes on with it.
pub async fn run(app: &App, dir: &Path, branch: Option<&str>) -> Outcome {
    let engine = app.engine(Access::Create)?;
    let agent = agent::build(dir)?;
    let mut header = SessionHeader::new(engine.key(SESSION)?);
    header.agent = Some(agent.name().to_owned());
    header.title = Some("A trip to Lisbon for four".to_owned());
    engine.journal().open_or_create(header).await?;
    let session = engine.open_session(SESSION).await?;
    let mut options = ResumeOptions::new(app.author());
    let message = match (branch, session.info().await?.status()) {
        (Some(branch), _) => {
            options = options.on_branch(BranchId::new(branch)?);
            None
        }
        (None, Status::Idle) => Some(Message::user("Book a trip to Lisbon for Ada, Bob, Cleo and Dora.")),
        (None, _) => None,
    };
    let left = run::Calls::left_in(&engine, session.key()).await;
    let messages: Vec<_> = message.into_iter().collect();
    let handle = agent.run_with(messages, &session, options).await?;
    let watched = run::follow(app, handle, left, false).await?;
    if watched.report.outcome == rekindle::RunOutcome::Failed {
        return Err(Error::new(rekindle::ErrorKind::StepFailed, watched.report.reason.clone()).into());
    }
    run::tell(app, &watched, false)
}
