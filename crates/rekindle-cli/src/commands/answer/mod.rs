//! `rekindle answer`: answers what a session waits for.

mod ask;
mod choose;

use clap::Args;
use rekindle::core::Hash;
use rekindle::core::record::{Decision, WaitKind};
use rekindle::operations::{self, Answer, Answered, OpenWait, WaitView};
use rekindle::{BranchId, Engine, Error, Json, Result, SessionKey, WaitId};

use self::choose::Chosen;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::owner;
use crate::ui::{printable, style};
use crate::words::{next, value};

/// Which wait, and what is said to it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle answer trip-42                    shows what it waits for and asks\n  rekindle answer trip-42 'by train'\n  rekindle answer trip-42 wait_01k8 --approve\n  rekindle answer trip-42 --reject 'too expensive'\n  rekindle answer trip-42 --branch thanks --approve"
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// The wait; may be left out if there is only one
    #[arg(value_name = "WAIT", allow_negative_numbers = true)]
    first: Option<String>,
    /// The answer: JSON, or else a text; - reads it from standard input
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    second: Option<String>,
    /// Yes, to exactly the arguments that are shown
    #[arg(long, conflicts_with = "reject")]
    approve: bool,
    /// No, and why
    #[arg(long, value_name = "REASON")]
    reject: Option<String>,
    /// Yes, but with these arguments
    #[arg(long, value_name = "JSON", requires = "approve")]
    arguments: Option<String>,
    /// The digest of the arguments that were shown; without it, of those shown now
    #[arg(long, value_name = "DIGEST", requires = "approve")]
    digest: Option<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", conflicts_with = "reject")]
    reason: Option<String>,
    /// The branch whose wait is meant; without it, the wait is looked for on all of them
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
}

impl Arguments {
    /// Gives the answer.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let mut waits = operations::waits_of(&engine, &session).await?;
        let branch = self.branch.as_ref().map(BranchId::new).transpose()?;
        if let Some(branch) = &branch {
            engine.journal().open(&session).await?.branch(branch)?;
            waits.retain(|open| open.branch == *branch);
        }
        let flags = self.approve || self.reject.is_some();
        let words = [self.first.as_deref(), self.second.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        let chosen = choose::choose(app, &session, &waits, &words, flags)?;
        let branch = branch.or_else(|| chosen.branch.clone());
        // The current branch comes first.
        let is_meant = |open: &&OpenWait| {
            open.wait.opened.wait == chosen.wait && branch.as_ref().is_none_or(|branch| open.branch == *branch)
        };
        let open = waits.iter().find(is_meant).map(|open| &open.wait);
        let Some(answer) = self.answer(app, &session, chosen, open)? else {
            app.ui.remark("nothing was answered");
            return Ok(Exit::Failed);
        };
        let reason = self.reason.clone().unwrap_or_else(|| answer.reason.clone());
        give(app, &engine, &session, Answer { reason, branch, ..answer }).await
    }

    /// What is said; nothing if the person at the terminal says nothing.
    fn answer(
        &self,
        app: &App,
        session: &SessionKey,
        chosen: Chosen,
        open: Option<&WaitView>,
    ) -> Result<Option<Answer>> {
        let Chosen { wait, value, .. } = chosen;
        if let Some(text) = value {
            let text = value::text_or_input(&text)?;
            let schema = open.and_then(|open| open.opened.schema.as_ref());
            let value = value::typed_for(text.trim_end_matches(['\r', '\n']), schema);
            return Ok(Some(Answer::value(wait, value, app.identity())));
        }
        match open {
            _ if self.approve || self.reject.is_some() => self.decided(app, wait, open).map(Some),
            Some(open) if app.ui.can_ask() => ask::ask(app, open),
            _ => Err(says_nothing(app, session, open)),
        }
    }

    /// What the flags say.
    fn decided(&self, app: &App, wait: WaitId, open: Option<&WaitView>) -> Result<Answer> {
        if let Some(reason) = &self.reject {
            return Ok(Answer::reject(wait, app.identity(), reason));
        }
        let digest: Option<Hash> = match &self.digest {
            Some(digest) => Some(digest.parse()?),
            None => open.and_then(|open| open.approve_digest),
        };
        if let (None, Some(digest), Some(open)) = (&self.digest, digest, open) {
            let arguments = arguments_of(open).map_or_else(|| "nothing".to_owned(), |json| value::short(json, 400));
            app.ui.remark(format!("{}approves digest {digest} of {arguments}{}", style::DIM, style::RESET));
        }
        let answer = Answer::approve(wait, digest, app.identity());
        match &self.arguments {
            Some(text) => Ok(answer.with_arguments(value::json(text, "arguments")?)),
            None => Ok(answer),
        }
    }
}

/// The arguments an approval is for now: those of the wait, or what somebody made of them.
fn arguments_of(open: &WaitView) -> Option<&Json> {
    let edited = open.decisions.iter().rev().find_map(|decision| decision.arguments.as_ref());
    edited.or(open.opened.arguments.as_ref())
}

fn says_nothing(app: &App, session: &SessionKey, open: Option<&WaitView>) -> Error {
    let error = Error::invalid("the answer is missing").during("answer").on(session);
    let lines = open.map(|open| next::answers(app, session, open)).unwrap_or_default();
    match (lines.is_empty(), open.map(|open| open.opened.kind)) {
        (false, _) => error.hint(lines.iter().map(|line| format!("`{line}`")).collect::<Vec<_>>().join(" or ")),
        (true, Some(WaitKind::Timer)) => error.hint("it waits for a time only, which nobody has to answer"),
        (true, _) => error
            .hint(format!("`{}` says what it waits for", next::line(app, ["sessions", "show", session.id.as_str()]))),
    }
}

async fn give(app: &App, engine: &Engine, session: &SessionKey, answer: Answer) -> Outcome {
    let answered = operations::answer(engine, session, &answer).await?;
    let what = match answer.decision {
        Decision::Approve => "approved",
        Decision::Reject => "rejected",
        Decision::Answer => "answered",
    };
    tell(app, engine, session, &answered, what, answer.decision == Decision::Approve).await?;
    Ok(Exit::Ok)
}

/// Says what came of an answer or a signal.
pub async fn tell(
    app: &App,
    engine: &Engine,
    session: &SessionKey,
    answered: &Answered,
    what: &str,
    approves: bool,
) -> std::io::Result<()> {
    if app.ui.is_json() {
        return app.ui.json(answered);
    }
    let again = if answered.repeated { ", as before" } else { "" };
    let (name, reset) = (style::NAME, style::RESET);
    let id = printable(session.id.as_str());
    app.ui.line(format!("{what}: {name}{}{reset} of {name}{id}{reset}{again}", printable(answered.wait.as_str())))?;
    if !answered.decided && approves {
        app.ui.remark("more must approve before it goes on");
    } else if let Some(owner) = answered.owner.as_ref().filter(|owner| !owner::has_ended(owner.owner.as_str())) {
        app.ui.remark(format!("{} runs it and takes the answer over", owner::named(owner.owner.as_str())));
    } else if answered.owner.is_some() || answered.resume_needed {
        let current = engine.journal().open(session).await.ok().map(|info| info.current);
        match answered.branch.as_ref().filter(|branch| current.as_ref() != Some(branch)) {
            // Workers go on with the current branch only.
            Some(other) => next::tell(app, &next::resume_on(app, session, Some(other))),
            None => next::go_on(app, engine, session).await,
        }
    }
    Ok(())
}
