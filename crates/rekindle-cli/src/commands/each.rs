//! The sessions a command works through, one after the other: those that were named, or all of
//! the namespace, page by page.

use std::collections::VecDeque;

use rekindle::{Engine, Error, ErrorKind, MAX_PAGE, Result, SessionKey, SessionQuery, operations};

use crate::app::App;
use crate::failure::Failure;
use crate::ui::live::Live;

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
