//! The sessions a command works through, one after the other: those that were named, or all of
//! the namespace, page by page.

use std::collections::VecDeque;

use rekindle::core::MAX_PAGE;
use rekindle::core::high_water;
use rekindle::core::high_water::GoneSession;
use rekindle::{Engine, Error, ErrorKind, Result, SessionKey, SessionQuery, operations};

use crate::app::App;
use crate::failure::Failure;
use crate::ui::live::Live;
use crate::ui::{printable, style};

/// How many sessions are asked for at once.
const PAGE: usize = 200;

/// The sessions still to come.
#[derive(Debug)]
pub struct Each {
    ready: VecDeque<SessionKey>,
    /// What is asked for next, if there may be more.
    next: Option<SessionQuery>,
    done: u64,
    total: u64,
}

impl Each {
    /// The sessions people named.
    pub async fn named(app: &App, engine: &Engine, texts: &[String]) -> Result<Self, Failure> {
        let mut ready = VecDeque::new();
        for text in texts {
            let session = app.session(engine, text).await?;
            if !ready.contains(&session) {
                ready.push_back(session);
            }
        }
        Ok(Self { done: 0, total: ready.len() as u64, ready, next: None })
    }

    /// All sessions of the namespace, oldest first: whatever is made or removed meanwhile, none is
    /// met twice.
    pub async fn all(engine: &Engine) -> Result<Self> {
        let mut query = SessionQuery::new(engine.namespace().clone()).with_limit(0).with_total();
        let total = operations::list(engine, &query).await?.total.unwrap_or_default();
        (query.limit, query.total, query.oldest_first) = (PAGE, false, true);
        Ok(Self { ready: VecDeque::new(), next: Some(query), done: 0, total })
    }

    /// The next one.
    pub async fn next(&mut self, engine: &Engine) -> Result<Option<SessionKey>> {
        if self.ready.is_empty()
            && let Some(mut query) = self.next.take()
        {
            let page = operations::list(engine, &query).await?;
            self.ready.extend(page.sessions.into_iter().map(|info| info.header.key));
            query.after = page.next;
            self.next = query.after.is_some().then_some(query);
        }
        let session = self.ready.pop_front();
        self.done += u64::from(session.is_some());
        Ok(session)
    }

    /// How many there were at the beginning.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Shows how far it is, if there is more than one.
    pub fn show(&self, live: &mut Live, doing: &str, session: &SessionKey) {
        if self.total > 1 {
            let name = crate::ui::printable(session.id.as_str());
            live.show(&[format!("{doing} {} of {}: {name}", self.done, self.total.max(self.done))]);
        }
    }
}

/// The sessions that are missing from a list of all: those that the store has and does not list, and those that marks
/// name and that are gone. Whatever worked through all sessions must not end as if it had.
pub async fn left_out(app: &App, engine: &Engine) -> Result<Vec<(Option<SessionKey>, Error)>> {
    let unlisted = operations::unlisted(engine).await?.into_iter().map(|defect| {
        let error = Error::corrupt(format!("left out: {}", defect.detail)).hint(defect.hint);
        (defect.session, error)
    });
    let gone = gone(app, engine).await.into_iter().map(|gone| {
        let message = format!("left out: {}", high_water::gone(&gone.session, &gone.heads));
        let hint = format!(
            "put it back, or accept that it is gone: rekindle verify {} --accept --reason TEXT",
            printable(gone.session.id.as_str())
        );
        (Some(gone.session), Error::corrupt(message).hint(hint))
    });
    Ok(unlisted.chain(gone).collect())
}

/// The sessions that marks name and that are gone.
pub async fn gone(app: &App, engine: &Engine) -> Vec<GoneSession> {
    let Some(marks) = engine.journal().store().high_water() else { return Vec::new() };
    match marks.gone(engine.namespace()).await {
        Ok(gone) => gone,
        Err(error) => {
            let (warn, reset) = (style::WARN, style::RESET);
            app.ui.remark(format!("{warn}note:{reset} whether sessions are gone cannot be told: {}", error.message()));
            Vec::new()
        }
    }
}

/// The error of a listed session that an operation failed on with `error`; nothing if it was deleted since it was
/// listed. One that is still listed and cannot be found is damage, and must not be left out silently.
pub async fn unless_deleted(engine: &Engine, session: &SessionKey, error: Error) -> Result<Option<Error>> {
    if *error.kind() != ErrorKind::NotFound {
        return Ok(Some(error));
    }
    let mut query = SessionQuery::new(session.namespace.clone()).with_limit(MAX_PAGE);
    query.text = Some(session.id.to_string());
    loop {
        let page = operations::list(engine, &query).await?;
        if page.sessions.iter().any(|info| info.header.key == *session) {
            let message = "the session is listed, but it is not found under its name";
            let hint = "see what is damaged with: rekindle verify --all";
            return Ok(Some(Error::corrupt(message).on(session).hint(hint).because(error)));
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(None),
        }
    }
}
