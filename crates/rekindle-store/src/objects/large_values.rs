//! A decorator that keeps large values of any store in a bucket.
//!
//! The payload of a large frame becomes an object, and the store gets a reference in its place; on
//! the way back the payload is fetched, compared with its hash and put back. Whoever is above sees
//! the frame that was written, so the chain, signatures and encryption are not affected.
//!
//! An object is written before the frame that refers to it and deleted after it, so no reference
//! dangles. What a crash leaves over lies in the folder of its session and goes with it; what outlives its session is
//! found by a note, see `stranded.rs`. Which values are a store's own: `owner.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use rekindle_core::codec::{Frame, FrameError};
use rekindle_core::high_water::HighWater;
use rekindle_core::orphans::Orphans;
use rekindle_core::queue::Queue;
use rekindle_core::values::Values;
use rekindle_core::{
    Append, Appended, Base, BranchId, BranchInfo, Capabilities, Damage, DamageKind, Defect, Error, ErrorKind, Fork,
    FramePage, Lease, LeaseAction, LeaseRequest, Namespace, NewSession, PAGE_BYTES, ReadFrames, Removal, Removed,
    Result, Retries, Section, Seq, SessionHeader, SessionInfo, SessionKey, SessionPage, SessionQuery, Slot, Store,
    StoreExt,
};
use tokio::sync::OnceCell;

use super::bucket::Bucket;
use super::cache::Cache;
use super::owner::{is_value_of, name_folder};
use crate::options::StoreOptions;

/// A value larger than this is worth a request of its own.
const DEFAULT_THRESHOLD: usize = 256 << 10;
/// How many objects are read, written or deleted at once.
const AT_ONCE: usize = 8;
/// How many sessions' folders are remembered.
const FOLDERS: usize = 1_024;
/// How many names a list asks for at once.
pub(super) const NAMES: usize = 1_000;
/// A value is sent in one request, which must end before its timeout.
const LARGEST_VALUE: usize = 64 << 20;

/// The setting that names the bucket.
pub(crate) const LARGE_VALUES: &str = "large_values";
const FROM: &str = "large_values_from";

/// Opens a store with the settings that are its own, and puts its large values where the others say.
pub(crate) fn open_with_large_values(
    mut options: StoreOptions,
    open: impl FnOnce(StoreOptions) -> Result<Arc<dyn Store>>,
) -> Result<Arc<dyn Store>> {
    let url = options.settings.remove(LARGE_VALUES).unwrap_or_default();
    let threshold = match options.settings.remove(FROM) {
        None => DEFAULT_THRESHOLD,
        Some(text) => text.parse().map_err(|_| {
            let message = format!("`{}` is not a number of bytes", text.escape_debug());
            Error::invalid(message).during("open store").hint(format!("write {FROM} as a number"))
        })?,
    };
    let mut bucket = options.clone();
    bucket.settings.clear();
    for (name, value) in std::mem::take(&mut options.settings) {
        match name.strip_prefix("large_values_") {
            Some(own) => bucket.settings.insert(own.to_owned(), value),
            None => options.settings.insert(name, value),
        };
    }
    let bucket = Bucket::open(&url, &bucket)?;
    Ok(Arc::new(LargeValues::new(open(options)?, bucket).with_threshold(threshold)))
}

/// Keeps the large values of the store it wraps in a bucket. Of a store without small values, it keeps none there.
///
/// Several stores may use one bucket: each touches only values below an id of its own.
/// Every process that uses the store needs the same bucket: without it, a frame whose payload lies
/// there is [`DamageKind::Elsewhere`], and the error says where.
#[derive(Debug)]
pub struct LargeValues<S> {
    pub(super) store: S,
    pub(super) bucket: Bucket,
    threshold: usize,
    /// Which session of its name a key means. Forgotten whenever that may have changed: whoever
    /// appends has opened, created or leased the session before, or gets an error.
    incarnations: Cache<SessionKey, Arc<OnceCell<String>>>,
    /// The id of the store, once it is known.
    pub(super) id: OnceCell<String>,
    /// The folders of sessions, by name and incarnation, as they were noted.
    pub(super) noted: Cache<(SessionKey, String), Arc<OnceCell<String>>>,
}

impl<S: Store> LargeValues<S> {
    /// Puts payloads of more than 256 KiB into `bucket`.
    pub fn new(store: S, bucket: Bucket) -> Self {
        let (incarnations, noted) = (Cache::new(FOLDERS), Cache::new(FOLDERS));
        Self { store, bucket, threshold: DEFAULT_THRESHOLD, incarnations, id: OnceCell::new(), noted }
    }

    /// Puts payloads of more than `bytes` there.
    #[must_use]
    pub fn with_threshold(mut self, bytes: usize) -> Self {
        self.threshold = bytes;
        self
    }

    /// The frames as the store gets them, with their payloads in the bucket.
    async fn detached(&self, folder: &str, frames: &[Frame]) -> Result<Vec<Frame>> {
        let large = |frame: &&Frame| frame.payload().len() > self.threshold && frame.elsewhere().is_none();
        let values: Vec<_> = frames.iter().filter(large).map(|frame| (self.object(folder, frame), frame)).collect();
        for some in values.chunks(AT_ONCE) {
            let puts: Vec<_> =
                some.iter().map(|(name, frame)| self.bucket.put(name, frame.payload().clone())).collect();
            try_join_all(puts).await?;
        }
        let detached = |frame: &Frame| match large(&frame) {
            true => frame.detach(&self.place(&self.object(folder, frame))),
            false => frame.clone(),
        };
        Ok(frames.iter().map(detached).collect())
    }

    async fn detached_base(&self, folder: &str, base: Option<&Base>) -> Result<Option<Base>> {
        let Some(base) = base else { return Ok(None) };
        let frames = self.detached(folder, &base.frames).await?;
        Ok(Some(Base { frames, ..base.clone() }))
    }

    /// The object of a frame: named by content and position, so that no two frames share one.
    fn object(&self, folder: &str, frame: &Frame) -> String {
        let value = rekindle_core::Hash::of(frame.payload());
        format!("{folder}/{value}-{}", frame.hash)
    }

    /// What a reference says: the bucket for people, then the object.
    fn place(&self, object: &str) -> String {
        format!("{} {object}", self.shown_place())
    }

    /// The bucket for people.
    pub(super) fn shown_place(&self) -> String {
        self.bucket.shown().split('?').next().unwrap_or_default().to_owned()
    }

    /// The folder of a session that is about to get values.
    async fn folder(&self, session: &SessionKey) -> Result<String> {
        let cell = self.incarnations.get_or_make(session, Arc::default);
        let incarnation =
            cell.get_or_try_init(|| async { Ok::<_, Error>(self.store.open(session).await?.header.incarnation) });
        let incarnation = incarnation.await?;
        self.note(session, incarnation).await
    }

    /// Whether any of `frames` goes into the bucket. None of a store without small values: what is its own there could
    /// not be told.
    fn any_large(&self, frames: &[Frame]) -> bool {
        self.store.values().is_some() && frames.iter().any(|frame| frame.payload().len() > self.threshold)
    }

    /// The same slot with its payload.
    async fn attached(&self, read: &ReadFrames, slot: Slot) -> Result<Slot> {
        let Slot::Whole(frame) = &slot else { return Ok(slot) };
        let Some(elsewhere) = frame.elsewhere() else { return Ok(slot) };
        let name = elsewhere.place.rsplit_once(' ').map_or(elsewhere.place, |(_, name)| name);
        let lost = |kind, detail: String| {
            let (branch, first, last) = (read.branch.clone(), frame.first, frame.last);
            Ok(Slot::Damaged(Damage::new(kind, branch, first, last, detail)))
        };
        if !is_value_of(name, &read.session) {
            return lost(DamageKind::Elsewhere, format!("its content lies in {}", elsewhere.place));
        }
        match self.bucket.get(name).await? {
            Some(payload) => match frame.attach(payload) {
                Ok(whole) => Ok(Slot::Whole(whole)),
                Err(FrameError { kind, detail, .. }) => lost(kind, format!("{detail}: {name}")),
            },
            None => lost(DamageKind::Missing, format!("its content is not in {}: {name}", self.bucket.shown())),
        }
    }

    /// The objects that the readable frames of a branch refer to, of its base or of its history up to `through`.
    pub(super) async fn referred(
        &self,
        session: &SessionKey,
        branch: &BranchId,
        section: Section,
        through: Seq,
    ) -> Result<Referred> {
        let mut read = ReadFrames::all(session.clone(), branch.clone()).with_range(Seq(1), through);
        read.section = section;
        let mut referred = Referred::default();
        self.store
            .read_pages(&read, &mut |slots| {
                for slot in &slots {
                    referred.add(slot, section, through);
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })
            .await?;
        Ok(referred)
    }

    pub(super) async fn delete(&self, names: &[String]) -> Result<()> {
        for some in names.chunks(AT_ONCE) {
            let deletes: Vec<_> = some.iter().map(|name| self.bucket.delete(name)).collect();
            try_join_all(deletes).await?;
        }
        Ok(())
    }

    /// Deletes those of the values of a session that are this store's own.
    async fn delete_own(&self, session: &SessionKey, mut names: BTreeSet<String>) -> Result<()> {
        let Some(id) = self.known_id().await? else { return Ok(()) };
        let own = format!("{}/", name_folder(&id, session));
        names.retain(|name| name.starts_with(&own));
        self.delete(&names.into_iter().collect::<Vec<_>>()).await
    }

    /// Removes a session with the values of exactly this one of its name.
    async fn remove_session(&self, removal: &Removal, session: &SessionKey) -> Result<Removed> {
        self.incarnations.forget(session);
        let recorded = self.record_going(session).await?;
        let removed = self.store.remove(removal).await;
        if let Err(error) = &removed
            && matches!(error.kind(), ErrorKind::Stale | ErrorKind::Protected)
        {
            // If this fails too, the record harms nothing as long as the session is there.
            let _ = self.take_back_going(session, &recorded).await;
        }
        let removed = removed?;
        self.finish_values(session).await?;
        Ok(removed)
    }

    async fn remove_branch(&self, removal: &Removal, session: &SessionKey, branch: &BranchId) -> Result<Removed> {
        let mut names = BTreeSet::new();
        if self.store.open(session).await.is_ok_and(|info| info.branch(branch).is_ok()) {
            for section in [Section::History, Section::Base] {
                match self.referred(session, branch, section, Seq::MAX).await {
                    // Another removal was faster: that of a caller that has given up, and repeats it.
                    Err(error) if *error.kind() == ErrorKind::NotFound => {}
                    found => names.extend(found?.names),
                }
            }
        }
        let removed = self.store.remove(removal).await?;
        self.delete_own(session, names).await?;
        Ok(removed)
    }
}

/// What the frames of a branch refer to.
#[derive(Debug, Default)]
pub(super) struct Referred {
    /// The objects.
    pub(super) names: BTreeSet<String>,
    /// The first record that was read, if any was, and the last.
    pub(super) first: Option<Seq>,
    pub(super) last: Seq,
    /// True if a frame is damaged, or missing between others: what it refers to is not known.
    pub(super) is_damaged: bool,
}

impl Referred {
    fn add(&mut self, slot: &Slot, section: Section, through: Seq) {
        let (first, last) = match slot {
            Slot::Whole(frame) => (frame.first, frame.last),
            Slot::Damaged(damage) => (damage.first, damage.last),
        };
        match slot {
            Slot::Whole(frame) if last <= through => self.names.extend(object_of(frame)),
            Slot::Whole(_) => {}
            Slot::Damaged(_) => self.is_damaged = true,
        }
        // Frames of a base are parts of one state, and have numbers of their own.
        let follows = self.first.is_none() || first == self.last.next();
        self.is_damaged |= section == Section::History && !follows;
        (self.first, self.last) = (self.first.or(Some(first)), last);
    }
}

fn object_of(frame: &Frame) -> Option<String> {
    frame.elsewhere()?.place.rsplit_once(' ').map(|(_, name)| name.to_owned())
}

/// How many bytes a slot has once its payload is back.
fn full_len(slot: &Slot) -> u64 {
    match slot {
        Slot::Whole(frame) => frame.stored_len() as u64 + frame.elsewhere().map_or(0, |elsewhere| elsewhere.len),
        Slot::Damaged(_) => 0,
    }
}

#[async_trait]
impl<S: Store> Store for LargeValues<S> {
    fn capabilities(&self) -> Capabilities {
        let inner = self.store.capabilities();
        match self.store.values() {
            Some(_) => inner.with_max_frame_bytes(inner.max_frame_bytes.max(LARGEST_VALUE)),
            None => inner,
        }
    }

    async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        let SessionHeader { key, incarnation, .. } = &new.header;
        // Of an earlier session with that incarnation.
        self.noted.forget(&(key.clone(), incarnation.clone()));
        let base = match &new.base {
            Some(base) if self.any_large(&base.frames) => {
                let folder = self.note(key, incarnation).await?;
                self.detached_base(&folder, Some(base)).await?
            }
            other => other.clone(),
        };
        self.incarnations.forget(key);
        self.store.create(&NewSession { base, ..new.clone() }).await
    }

    async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        let info = self.store.open(session).await?;
        self.incarnations.forget(session);
        let known = || Arc::new(OnceCell::new_with(Some(info.header.incarnation.clone())));
        self.incarnations.get_or_make(session, known);
        Ok(info)
    }

    async fn append(&self, append: &Append) -> Result<Appended> {
        if !self.any_large(&append.frames) {
            return self.store.append(append).await;
        }
        append.check()?;
        let folder = self.folder(&append.session).await.map_err(|error| append.error(error))?;
        let frames = self.detached(&folder, &append.frames).await.map_err(|error| append.error(error))?;
        let appended = self.store.append(&Append { frames, ..append.clone() }).await;
        if appended.is_err() {
            self.incarnations.forget(&append.session);
        }
        appended
    }

    async fn read(&self, read: &ReadFrames) -> Result<FramePage> {
        let FramePage { mut slots, mut more } = self.store.read(read).await?;
        let mut bytes = 0;
        let fits = slots.iter().take_while(|slot| {
            let room = bytes < PAGE_BYTES as u64;
            bytes += full_len(slot);
            room
        });
        let fits = fits.count();
        more |= fits < slots.len();
        slots.truncate(fits);
        let mut whole = Vec::with_capacity(slots.len());
        let mut slots = slots.into_iter().peekable();
        while slots.peek().is_some() {
            let reads: Vec<_> = slots.by_ref().take(AT_ONCE).map(|slot| self.attached(read, slot)).collect();
            let found = try_join_all(reads).await.map_err(|error| error.during("read").on(&read.session))?;
            whole.extend(found);
        }
        Ok(FramePage { slots: whole, more })
    }

    async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.store.list(query).await
    }

    async fn fork(&self, fork: &Fork) -> Result<BranchInfo> {
        match &fork.base {
            Some(base) if self.any_large(&base.frames) => {
                let folder = self.folder(&fork.session).await?;
                let base = self.detached_base(&folder, fork.base.as_ref()).await?;
                self.store.fork(&Fork { base, ..fork.clone() }).await
            }
            _ => self.store.fork(fork).await,
        }
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Lease> {
        if matches!(request.action, LeaseAction::Acquire { .. }) {
            self.incarnations.forget(&request.session);
        }
        self.store.lease(request).await
    }

    async fn remove(&self, removal: &Removal) -> Result<Removed> {
        match removal {
            Removal::Session { session } | Removal::SessionAt { session, .. } => {
                self.remove_session(removal, session).await
            }
            Removal::Branch { session, branch } => self.remove_branch(removal, session, branch).await,
            Removal::History { session, branch, base, fence } => {
                let folder = match self.any_large(&base.frames) {
                    true => self.folder(session).await?,
                    false => String::new(),
                };
                let mut names = self.referred(session, branch, Section::History, base.head.seq).await?.names;
                names.extend(self.referred(session, branch, Section::Base, Seq::MAX).await?.names);
                let frames = self.detached(&folder, &base.frames).await?;
                for kept in frames.iter().filter_map(object_of) {
                    names.remove(&kept);
                }
                let base = Base { frames, ..base.clone() };
                let (session, branch, fence) = (session.clone(), branch.clone(), *fence);
                let removal = Removal::History { session: session.clone(), branch, base, fence };
                let removed = self.store.remove(&removal).await?;
                self.delete_own(&session, names).await?;
                Ok(removed)
            }
        }
    }

    async fn check(&self) -> Result<Vec<Defect>> {
        self.store.check().await
    }

    async fn unlisted(&self, namespace: &Namespace) -> Result<Vec<Defect>> {
        self.store.unlisted(namespace).await
    }

    fn retries(&self) -> Retries {
        self.store.retries().and(self.bucket.retries())
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.store.queue()
    }

    fn values(&self) -> Option<&dyn Values> {
        self.store.values()
    }

    fn high_water(&self) -> Option<&dyn HighWater> {
        self.store.high_water()
    }

    fn orphans(&self) -> Option<&dyn Orphans> {
        Some(self)
    }
}
