//! Noticing changes: one task looks for everybody who is connected, as long as somebody is. Notices of
//! the store say when to look; where it sends none, and for what they do not tell, it looks now and then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rekindle::core::Hash;
use rekindle::core::queue::Notices;
use rekindle::{Engine, ErrorKind, Result, SessionKey, SessionQuery, operations};
use tokio::sync::broadcast;

use crate::uri::Address;

/// How often the task looks at a store with notices, which also tells cheaply what it holds.
const OFTEN: Duration = Duration::from_secs(1);
/// How often it looks at any other.
const SELDOM: Duration = Duration::from_secs(10);
/// How long it rests after a look, however much happens.
const REST: Duration = Duration::from_millis(100);
/// How many changes a listener may fall behind.
const BEHIND: usize = 1_024;

/// What can change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// Which sessions there are.
    List,
    /// What stands at an address.
    At(Address),
}

/// Watches a store for everybody who is connected.
pub(crate) struct Watch(Arc<Shared>);

struct Shared {
    engine: Engine,
    watched: Mutex<Watched>,
    changes: broadcast::Sender<Subject>,
}

#[derive(Default)]
struct Watched {
    subjects: BTreeMap<Subject, Seen>,
    is_looking: bool,
}

/// How a subject was when it was last looked at, and how many are interested.
struct Seen {
    print: Hash,
    interested: usize,
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    pub(crate) fn new(engine: Engine) -> Self {
        let changes = broadcast::channel(BEHIND).0;
        Self(Arc::new(Shared { engine, watched: Mutex::default(), changes }))
    }

    /// The changes of everything that is watched, from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Subject> {
        self.0.changes.subscribe()
    }

    /// Watches `subject` as long as what this gives is held.
    pub(crate) async fn on(&self, subject: Subject) -> Result<Interest> {
        // As it is before anybody is told that it is watched: no later change is missed.
        let print = look(&self.0.engine, &subject).await?;
        let mut watched = self.0.watched();
        watched.subjects.entry(subject.clone()).or_insert(Seen { print, interested: 0 }).interested += 1;
        if !watched.is_looking {
            watched.is_looking = true;
            tokio::spawn(keep_looking(Arc::downgrade(&self.0)));
        }
        Ok(Interest { shared: Arc::clone(&self.0), subject })
    }
}

/// Somebody's interest in a subject.
pub(crate) struct Interest {
    shared: Arc<Shared>,
    subject: Subject,
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut watched = self.shared.watched();
        if let Some(seen) = watched.subjects.get_mut(&self.subject) {
            seen.interested -= 1;
            if seen.interested == 0 {
                watched.subjects.remove(&self.subject);
            }
        }
    }
}

/// Looks until nobody is interested any more.
async fn keep_looking(shared: Weak<Shared>) {
    let mut notices: Option<Box<dyn Notices>> = None;
    loop {
        let Some(engine) = shared.upgrade().map(|shared| shared.engine.clone()) else { return };
        let queue = engine.journal().store().queue();
        if let (None, Some(queue)) = (&notices, queue) {
            notices = queue.listen().await.ok();
        }
        let pause = if queue.is_some() { OFTEN } else { SELDOM };
        match &mut notices {
            Some(notices) => {
                let _ = tokio::time::timeout(pause, notices.next()).await;
            }
            None => tokio::time::sleep(pause).await,
        }
        let Some(shared) = shared.upgrade() else { return };
        if !look_at_all(&shared).await {
            return;
        }
        drop(shared);
        tokio::time::sleep(REST).await;
    }
}

/// Looks at everything once and tells what changed; whether anybody is interested in anything.
async fn look_at_all(shared: &Shared) -> bool {
    let subjects: Vec<Subject> = {
        let mut watched = shared.watched();
        watched.is_looking = !watched.subjects.is_empty();
        watched.subjects.keys().cloned().collect()
    };
    for subject in &subjects {
        // A store that cannot be reached says nothing about its sessions.
        let Ok(print) = look(&shared.engine, subject).await else { continue };
        let mut watched = shared.watched();
        let Some(seen) = watched.subjects.get_mut(subject) else { continue };
        if seen.print != print {
            seen.print = print;
            // Nobody listens: nobody needs to know.
            let _ = shared.changes.send(subject.clone());
        }
    }
    !subjects.is_empty()
}

/// How a subject is now: the same as long as nothing changed.
async fn look(engine: &Engine, subject: &Subject) -> Result<Hash> {
    let text = match subject {
        Subject::List => newest(engine).await?,
        Subject::At(address) => {
            let key = SessionKey::new(engine.namespace().clone(), address.session().clone());
            match resource(engine, address, &key).await {
                Ok(text) => text,
                Err(error) if *error.kind() == ErrorKind::NotFound => String::new(),
                Err(error) => return Err(error),
            }
        }
    };
    Ok(Hash::of(text.as_bytes()))
}

async fn newest(engine: &Engine) -> Result<String> {
    let query = SessionQuery::new(engine.namespace().clone()).with_limit(1).with_total();
    let page = operations::list(engine, &query).await?;
    let newest = page.sessions.first().map(|info| (info.created_at, info.header.key.id.clone()));
    Ok(format!("{:?} {newest:?}", page.total))
}

async fn resource(engine: &Engine, address: &Address, key: &SessionKey) -> Result<String> {
    let journal = engine.journal();
    Ok(match address {
        Address::Session(_) => {
            let info = journal.open(key).await?;
            format!(
                "{:?} {} {} {:?}",
                info.heads(),
                info.current,
                info.status(),
                info.live_lease().map(|(at, _)| at.epoch)
            )
        }
        Address::Checkpoint(_, id) => format!("{:?}", journal.checkpoint(key, id).await?),
    })
}
