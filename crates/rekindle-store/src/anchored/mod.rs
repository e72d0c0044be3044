//! High-water marks over any store: after each commit the highest heads are noted in places apart
//! from the data, and a session that has less than that is not gone on with. See
//! `docs/design/0015-high-water-marks.md`.

#[doc(hidden)]
pub mod beside;
mod high_water;
mod keeper;
mod opened;
mod place;
mod seen;
mod settings;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::high_water::{self as marks, HighWater, Mark, rolled_back};
use rekindle_core::orphans::Orphans;
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, BranchId, BranchInfo, Capabilities, Damage, DamageKind, Defect, ErrorKind, Fork, FramePage, Head,
    Lease, LeaseAction, LeaseRequest, Namespace, NewSession, ReadFrames, Removal, Removed, Result, Retries, Retry,
    SessionInfo, SessionKey, SessionPage, SessionQuery, Slot, Store,
};

pub use self::place::MarksIn;
pub(crate) use self::settings::Marking;

use self::keeper::Keeper;
use self::place::{Place, Stored};
use self::seen::SeenSessions;

/// How often a comparison is repeated while marks change.
const TRIES: usize = 16;

/// Keeps marks of the highest heads of the store it wraps, and notices when the store was set back
/// to an older state.
///
/// [`open`](crate::open) puts it over `sqlite:` and `file:` stores. Every process that removes
/// sessions or branches of a store has to keep its marks too: otherwise what it removes is missed.
///
/// * What is rolled back is [`DamageKind::RolledBack`] in [`SessionInfo::damage`]; leases, appends and
///   forks of such a session are refused with [`ErrorKind::RolledBack`].
/// * A session that has a mark and is not there is [`ErrorKind::NotFound`], and the error says that it
///   was there.
/// * Marks are written by a thread of their own, after the commit and without a sync. They may lie
///   behind the journal, never ahead of it.
///
/// Dropping the last clone waits until what was committed is marked.
#[derive(Clone)]
pub struct Anchored(Arc<Core>);

struct Core {
    places: Vec<Place>,
    // In this order: the threads use the store until they have ended.
    keepers: Vec<Keeper>,
    seen: SeenSessions,
    store: Arc<dyn Store>,
}

impl fmt::Debug for Anchored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.0.places.iter().map(|place| &place.name).collect();
        f.debug_struct("Anchored").field("store", &self.0.store).field("marks", &places).finish()
    }
}

impl Anchored {
    /// Marks the sessions of `store` in these places.
    pub fn new(store: Arc<dyn Store>, places: &[MarksIn]) -> Self {
        // Stores without connections of their own can be called from any thread.
        let bound = !matches!(store.capabilities().name, "memory" | "files" | "sqlite");
        let keeper =
            |(marks, place): (&MarksIn, &Place)| Keeper::new(store.clone(), marks, place.trouble.clone(), bound);
        let all: Vec<_> = places.iter().map(Place::new).collect();
        let keepers = places.iter().zip(&all).map(keeper).collect();
        Self(Arc::new(Core { places: all, keepers, seen: SeenSessions::default(), store }))
    }

    /// Asks for heads to be marked.
    fn hand_over(&self, session: &SessionKey, branch: &BranchId, head: Head) {
        self.0.seen.raise(session, branch, head);
        for keeper in &self.0.keepers {
            keeper.raise(session, branch, head);
        }
    }

    /// An error unless a session may be gone on with.
    async fn admit(&self, session: &SessionKey, operation: &'static str) -> Result<()> {
        if self.0.seen.is_sound(session) || self.0.seen.is_permitted(session) {
            return Ok(());
        }
        let info = self.open(session).await.map_err(|error| error.during(operation))?;
        let missing: Vec<Damage> =
            info.damage.into_iter().filter(|damage| damage.kind == DamageKind::RolledBack).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(rolled_back(session, &missing).during(operation)),
        }
    }

    /// The marks of a session, by place. A place that cannot be read has none: it says so in
    /// [`HighWater::places`].
    async fn marks(&self, session: &SessionKey, with_anchors: bool) -> Vec<Stored> {
        let mut all = Vec::new();
        for place in self.0.places.iter().filter(|place| with_anchors || !place.anchor) {
            all.push(place.read(session).await.unwrap_or_default());
        }
        all
    }

    /// Opens a session and compares it with its marks.
    async fn compared(&self, session: &SessionKey) -> Result<SessionInfo> {
        let mut marks = self.marks(session, true).await;
        for _ in 0..TRIES {
            // After the marks were read: they are never ahead, but the journal may grow.
            let opened = self.0.store.open(session).await;
            let missing = match &opened {
                Ok(info) => self.missing(info, &marks).await,
                Err(error) if *error.kind() == ErrorKind::NotFound => Vec::new(),
                Err(_) => return opened,
            };
            let kept = marks.iter().filter_map(|stored| stored.mark.as_ref()).find(|mark| mark.is_kept());
            match &opened {
                Ok(info) if missing.is_empty() => {
                    self.0.seen.set(info);
                    return opened;
                }
                Err(_) if kept.is_none() => return opened,
                _ => self.0.seen.forget(session),
            }
            // What is removed on purpose is taken back from the marks first: as long as they stay the
            // same, nobody did that.
            let again = self.marks(session, true).await;
            if again != marks {
                marks = again;
                continue;
            }
            return match opened {
                Ok(mut info) => {
                    info.damage.extend(missing);
                    Ok(info)
                }
                Err(error) => {
                    let heads = kept.map(Mark::heads).unwrap_or_default();
                    Err(marks::session_gone(session, &heads).during(error.operation().unwrap_or("open")))
                }
            };
        }
        self.0.store.open(session).await
    }

    /// What marks say is missing from a session.
    async fn missing(&self, info: &SessionInfo, marks: &[Stored]) -> Vec<Damage> {
        let mut all: Vec<Damage> = Vec::new();
        for mark in marks.iter().filter_map(|stored| stored.mark.as_ref()) {
            let mut found = mark.compare(info);
            if mark.genesis == info.header.genesis {
                for (branch, head) in mark.heads() {
                    found.extend(self.replaced(info, &branch, head).await);
                }
            }
            for damage in found {
                if !all.iter().any(|known| (&known.branch, known.first) == (&damage.branch, damage.first)) {
                    all.push(damage);
                }
            }
        }
        all
    }

    /// Returns whether a branch that grew since its mark was written still has the record the mark names.
    async fn replaced(&self, info: &SessionInfo, branch: &BranchId, marked: Head) -> Option<Damage> {
        let found = info.branch(branch).ok()?;
        if let Some(base) = found.base.filter(|base| base.seq >= marked.seq) {
            let differs = base.seq == marked.seq && base.hash != marked.hash;
            return differs.then(|| marks::replaced(branch, marked.seq));
        }
        if found.head.seq <= marked.seq || marked.seq < found.first_own() {
            return None;
        }
        let read = ReadFrames::all(info.header.key.clone(), branch.clone());
        let page = self.0.store.read(&read.with_range(marked.seq, marked.seq).with_limit(1)).await.ok()?;
        match page.slots.first()? {
            // A head is the end of a frame.
            Slot::Whole(frame) if (frame.last, frame.hash) != (marked.seq, marked.hash) => {
                Some(marks::replaced(branch, marked.seq))
            }
            _ => None,
        }
    }

    /// Adds to a listed session what marks beside the store say is missing.
    async fn listed(&self, info: &mut SessionInfo) {
        let session = info.header.key.clone();
        if self.0.seen.get(&session).is_some_and(|seen| seen.is_in(info)) {
            return;
        }
        let marks = self.marks(&session, false).await;
        let suspect = |stored: &Stored| stored.mark.as_ref().is_some_and(|mark| !mark.compare(info).is_empty());
        // The marks were read after the list was made, so they may be ahead of it.
        if marks.iter().any(suspect)
            && let Ok(opened) = self.compared(&session).await
        {
            info.damage.extend(opened.damage.into_iter().filter(|damage| damage.kind == DamageKind::RolledBack));
        }
    }

    /// Prepares the marks for a session of that name being created: whatever they say is of an earlier
    /// one. Returns what they said, by place.
    async fn vacate(&self, session: &SessionKey) -> Vec<(&Place, Mark)> {
        let mut vacated = Vec::new();
        for place in self.0.places.iter().filter(|place| !place.anchor) {
            let marked = place.read(session).await.is_ok_and(|stored| stored.mark.is_some());
            // One that is there cannot be created, and keeps its mark.
            if marked && self.0.store.open(session).await.is_err() {
                vacated.extend(place.vacate(session).await.ok().flatten().map(|was| (place, was)));
            }
        }
        vacated
    }

    /// Removes a session, or a branch of it, with its marks. They go first and come back if the removal
    /// is refused: a crash in between leaves too little in the marks, never too much.
    async fn remove_marked(&self, removal: &Removal, branch: Option<&BranchId>) -> Result<Removed> {
        let session = removal.session();
        let mut tries = 0..TRIES;
        let removed = loop {
            let info = self.0.store.open(session).await.ok();
            if let Some(info) = &info {
                self.depart(info, branch).await?;
            }
            // Exactly the session whose mark was changed: another of that name may be made meanwhile.
            let exact = match (removal, info) {
                (Removal::Session { session }, Some(info)) if tries.next().is_some() => {
                    Some(Removal::SessionAt { session: session.clone(), heads: info.heads() })
                }
                _ => None,
            };
            let removed = self.0.store.remove(exact.as_ref().unwrap_or(removal)).await;
            match &removed {
                Err(error) if exact.is_some() && *error.kind() == ErrorKind::Stale => {}
                _ => break removed,
            }
        };
        self.0.seen.forget(session);
        for place in &self.0.places {
            // Marks that stay as they are say that it may be gone.
            let _ = match &removed {
                Ok(_) => place.departed(session, branch, || self.0.store.open(session)).await,
                Err(error) if error.retry() == Retry::Never => place.stay(session, branch).await.map(|_| ()),
                Err(_) => Ok(()),
            };
        }
        removed
    }

    async fn depart(&self, info: &SessionInfo, branch: Option<&BranchId>) -> Result<()> {
        for place in &self.0.places {
            match place.depart(info, branch).await {
                Err(error) if place.anchor => {
                    let hint = "try again once the anchor answers: otherwise this would look like a rollback later";
                    let error = error.adding("nothing was removed").during("remove");
                    return Err(error.on(&info.header.key).hint(hint));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Anchored {
    fn capabilities(&self) -> Capabilities {
        self.0.store.capabilities()
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let session = &new.header.key;
        let vacated = self.vacate(session).await;
        let created = self.0.store.create(new).await;
        match &created {
            Ok(info) => {
                self.0.seen.set(info);
                for keeper in &self.0.keepers {
                    keeper.create(session, info.heads());
                }
            }
            Err(error) if error.retry() == Retry::Never => {
                for (place, was) in vacated {
                    let _ = place.restore(session, &was).await;
                }
            }
            Err(_) => {}
        }
        created
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        let Some(seen) = self.0.seen.get(session) else { return self.compared(session).await };
        match self.0.store.open(session).await {
            Ok(info) if seen.is_in(&info) => Ok(info),
            Ok(_) => self.compared(session).await,
            Err(error) if *error.kind() == ErrorKind::NotFound => self.compared(session).await,
            Err(error) => Err(error),
        }
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        self.admit(&append.session, "append").await?;
        let appended = self.0.store.append(append).await?;
        self.hand_over(&append.session, &append.branch, appended.head);
        Ok(appended)
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        self.0.store.read(read).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        let mut page = self.0.store.list(query).await?;
        for info in &mut page.sessions {
            self.listed(info).await;
        }
        Ok(page)
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        self.admit(&fork.session, "fork").await?;
        let branch = self.0.store.fork(fork).await?;
        self.hand_over(&fork.session, &branch.branch, branch.head);
        Ok(branch)
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        if matches!(request.action, LeaseAction::Acquire { .. }) {
            self.admit(&request.session, "lease").await?;
        }
        self.0.store.lease(request).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        match removal {
            Removal::Session { .. } | Removal::SessionAt { .. } => self.remove_marked(removal, None).await,
            Removal::Branch { branch, .. } => self.remove_marked(removal, Some(branch)).await,
            Removal::History { session, .. } => {
                self.admit(session, "remove").await?;
                self.0.store.remove(removal).await
            }
        }
    }

    async fn check(&self) -> Result<Vec<Defect>> {
        self.0.store.check().await
    }

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        self.0.store.unlisted(namespace).await
    }

    fn retries(&self) -> Retries {
        self.0.store.retries()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.0.store.queue()
    }

    fn values(&self) -> Option<&dyn Values> {
        self.0.store.values()
    }

    fn orphans(&self) -> Option<&dyn Orphans> {
        self.0.store.orphans()
    }

    fn high_water(&self) -> Option<&dyn HighWater> {
        Some(self)
    }
}
