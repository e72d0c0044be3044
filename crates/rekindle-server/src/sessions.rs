//! The sessions of the protocol revisions that have them: who began each, when it was last used, and which one
//! is forgotten when there are too many.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// The state of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Counts uses: a session with a lower number was used earlier.
    clock: u64,
    by_id: HashMap<Arc<str>, Session>,
}

#[derive(Debug)]
struct Session {
    credential: Option<String>,
    used: u64,
    /// Requests and streams under way.
    busy: usize,
}

impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a session that began.
    pub(crate) fn begin(self: &Arc<Self>, id: &str, credential: Option<&str>) {
        let mut known = self.known();
        known.clock += 1;
        let used = known.clock;
        known.by_id.insert(id.into(), Session { credential: credential.map(str::to_owned), used, busy: 0 });
    }

    /// Uses a session until what is returned is dropped; nothing if it was begun with another credential. An
    /// unknown session is left to the protocol.
    pub(crate) fn enter(self: &Arc<Self>, id: &str, credential: Option<&str>) -> Option<Option<Use>> {
        let mut known = self.known();
        known.clock += 1;
        let clock = known.clock;
        let Some((id, session)) = known.by_id.get_key_value(id).map(|(id, _)| id.clone()).and_then(|id| {
            let session = known.by_id.get_mut(&id)?;
            Some((id, session))
        }) else {
            return Some(None);
        };
        if session.credential.as_deref() != credential {
            return None;
        }
        (session.used, session.busy) = (clock, session.busy + 1);
        Some(Some(Use { sessions: Arc::clone(self), id }))
    }

    /// Forgets sessions that are over.
    pub(crate) fn keep(&self, live: &HashSet<&str>) {
        self.known().by_id.retain(|id, _| live.contains(&**id));
    }

    /// Forgets the session that was idle longest, of the credential with the most sessions that are idle.
    pub(crate) fn forget_idle(&self) -> Option<Arc<str>> {
        let mut known = self.known();
        let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
        for session in known.by_id.values().filter(|session| session.busy == 0) {
            *counts.entry(session.credential.as_deref()).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let is_idle = |session: &Session| session.busy == 0 && counts[&session.credential.as_deref()] == most;
        let oldest = known.by_id.iter().filter(|(_, session)| is_idle(session)).min_by_key(|(_, session)| session.used);
        let id = oldest.map(|(id, _)| Arc::clone(id))?;
        known.by_id.remove(&id);
        Some(id)
    }
}

/// A session in use.
#[derive(Debug)]
pub(crate) struct Use {
    sessions: Arc<Sessions>,
    id: Arc<str>,
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut known = self.sessions.known();
        known.clock += 1;
        let clock = known.clock;
        if let Some(session) = known.by_id.get_mut(&self.id) {
            (session.used, session.busy) = (clock, session.busy.saturating_sub(1));
        }
    }
}

impl Use {
    /// The body, during which the session stays in use.
    pub(crate) fn during(self, body: Body) -> Body {
        Body::new(InUse { body, _session: self })
    }
}

struct InUse {
    body: Body,
    _session: Use,
}

impl HttpBody for InUse {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_of_the_credential_that_began_it() {
        let sessions = Arc::new(Sessions::default());
        sessions.begin("one", Some("token:a"));
        let check = |id: &str, credential: Option<&str>, expected: Option<bool>| {
            let entered = sessions.enter(id, credential).map(|used| used.is_some());
            assert_eq!(entered, expected, "{id} {credential:?}");
        };
        check("one", Some("token:a"), Some(true));
        check("one", Some("token:b"), None);
        check("one", None, None);
        check("other", Some("token:b"), Some(false));
        sessions.keep(&HashSet::new());
        check("one", Some("token:b"), Some(false));
    }

    #[test]
    fn the_one_that_is_idle_longest_is_forgotten() {
        let sessions = Arc::new(Sessions::default());
        for id in ["a1", "a2", "a3"] {
            sessions.begin(id, Some("token:a"));
        }
        sessions.begin("b1", Some("token:b"));
        let busy = sessions.enter("a1", Some("token:a")).unwrap();
        drop(sessions.enter("a2", Some("token:a")).unwrap());
        let forgotten = || sessions.forget_idle().map(|id| id.to_string());
        assert_eq!(forgotten().as_deref(), Some("a3"), "of the one with the most, not used since");
        assert_eq!(forgotten().as_deref(), Some("b1"), "as many as the other, and older");
        assert_eq!(forgotten().as_deref(), Some("a2"));
        assert_eq!(forgotten(), None, "the last is in use");
        drop(busy);
        assert_eq!(forgotten().as_deref(), Some("a1"));
    }
}
