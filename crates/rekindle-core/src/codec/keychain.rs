//! What is known of the keys of sessions: which may be written to, and with which data key.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::keys::DataKey;
use crate::error::{Error, ErrorKind};
use crate::id::SessionKey;
use crate::position::Hash;

/// Sessions that are kept in mind at least; up to twice as many.
const SESSIONS: usize = 32 << 10;

/// How a codec stands to a session.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// It is written to as the codec is configured.
    Open,
    /// It has a data key.
    Data(Arc<DataKey>),
    /// It is protected by a key that is not there: it must not be written to.
    Refused {
        /// The key that is missing.
        key: String,
        /// Why it is missing, for people.
        message: String,
    },
}

impl Standing {
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self {
            Self::Refused { key, message } => {
                let kind = ErrorKind::KeyMissing { key: key.clone() };
                Some(Error::new(kind, message.clone()).hint("configure the key; nothing was written"))
            }
            Self::Open | Self::Data(_) => None,
        }
    }
}

/// Knowledge of a session's key.
#[derive(Clone)]
pub(super) struct Learned {
    pub standing: Standing,
    /// The beginning of its chain. A session that was removed and imported again has the same name and incarnation,
    /// and another key.
    pub genesis: Hash,
}

/// The sessions that were opened last, in two generations: what is asked for moves to the younger one, and
/// when that is full the older one is forgotten.
#[derive(Default)]
struct Generations {
    young: HashMap<SessionKey, Learned>,
    old: HashMap<SessionKey, Learned>,
}

/// The keys of sessions.
#[derive(Default)]
pub(super) struct Keychain(Mutex<Generations>);

impl Keychain {
    pub fn get(&self, session: &SessionKey) -> Option<Standing> {
        self.learned(session).map(|learned| learned.standing)
    }

    pub fn learned(&self, session: &SessionKey) -> Option<Learned> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.young.get(session) {
            return Some(found.clone());
        }
        let found = all.old.remove(session)?;
        all.put(session.clone(), found.clone());
        Some(found)
    }

    /// The data key of a session.
    pub fn data(&self, session: &SessionKey) -> Option<Arc<DataKey>> {
        match self.get(session) {
            Some(Standing::Data(data)) => Some(data),
            _ => None,
        }
    }

    pub fn put(&self, session: SessionKey, genesis: Hash, standing: Standing) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(session, Learned { standing, genesis });
    }

    pub fn forget(&self, session: &SessionKey) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.young.remove(session);
        all.old.remove(session);
    }
}

impl Generations {
    fn put(&mut self, session: SessionKey, learned: Learned) {
        if self.young.len() >= SESSIONS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(session, learned);
    }
}

impl fmt::Debug for Keychain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keychain").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SessionId;

    #[test]
    fn it_forgets_what_was_not_asked_for_and_stays_small() {
        let chain = Keychain::default();
        let session = |n: usize| SessionKey::from(SessionId::new(format!("s{n}")).unwrap());
        chain.put(session(0), Hash::default(), Standing::Open);
        for n in 1..5 * SESSIONS {
            chain.put(session(n), Hash::default(), Standing::Open);
            if n % SESSIONS == 0 {
                assert!(chain.get(&session(0)).is_some(), "whoever is asked for stays");
            }
        }
        assert!(chain.get(&session(1)).is_none());
        let all = chain.0.lock().unwrap();
        assert!(all.young.len() + all.old.len() <= 2 * SESSIONS);
    }
}
