//! Sessions this process has compared with their marks, so that it compares each once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rekindle_core::{BranchId, Hash, Head, SessionInfo, SessionKey};

/// The most sessions that are remembered.
const MOST: usize = 4_000;

/// A session as this process saw it last: compared, and nothing was missing.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    genesis: Hash,
    heads: BTreeMap<BranchId, Head>,
}

impl Seen {
    /// Returns whether everything that was seen is still there. If not, somebody removed it on purpose or it
    /// was rolled back: the marks know.
    pub fn is_in(&self, info: &SessionInfo) -> bool {
        let found: HashMap<_, _> = info.branches.iter().map(|branch| (&branch.branch, branch.head)).collect();
        let holds = |(branch, seen): (&BranchId, &Head)| {
            found.get(branch).is_some_and(|head| head.seq > seen.seq || head == seen)
        };
        self.genesis == info.header.genesis && self.heads.iter().all(holds)
    }
}

#[derive(Debug, Default)]
pub(super) struct SeenSessions {
    sessions: Mutex<HashMap<SessionKey, Arc<Seen>>>,
    /// Sessions that may be appended to although they were rolled back.
    permitted: Mutex<HashSet<SessionKey>>,
}

impl SeenSessions {
    pub fn get(&self, session: &SessionKey) -> Option<Arc<Seen>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    /// Returns whether the session was compared, and nothing was missing.
    pub fn is_sound(&self, session: &SessionKey) -> bool {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).contains_key(session)
    }

    /// The session was compared and nothing is missing.
    pub fn set(&self, info: &SessionInfo) {
        let seen = Seen { genesis: info.header.genesis, heads: info.heads() };
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MOST {
            sessions.clear();
        }
        sessions.insert(info.header.key.clone(), Arc::new(seen));
    }

    /// A branch of a session that was compared has grown.
    pub fn raise(&self, session: &SessionKey, branch: &BranchId, head: Head) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = sessions.get_mut(session) {
            let seen = Arc::make_mut(seen);
            match seen.heads.get_mut(branch) {
                Some(known) if known.seq < head.seq => *known = head,
                Some(_) => {}
                None => {
                    seen.heads.insert(branch.clone(), head);
                }
            }
        }
    }

    pub fn forget(&self, session: &SessionKey) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }

    pub fn permit(&self, session: &SessionKey, permitted: bool) {
        let mut all = self.permitted.lock().unwrap_or_else(PoisonError::into_inner);
        if permitted {
            all.insert(session.clone());
        } else {
            all.remove(session);
        }
    }

    pub fn is_permitted(&self, session: &SessionKey) -> bool {
        self.permitted.lock().unwrap_or_else(PoisonError::into_inner).contains(session)
    }
}
