//! The operations of the contract as changes of a log. The rules are core's.

use std::sync::Arc;

use bytes::Bytes;
use rekindle_core::{
    Append, Appended, BranchId, BranchInfo, Decided, Error, ErrorKind, Fork, Hash, Lease, LeaseAction, LeaseRequest,
    NewSession, Removal, Removed, Result, Seq, SessionInfo, SessionKey,
};

use super::change::{Change, Draft};
use super::clock::{Now, Side};
use super::commit::{Operation, Verdict};
use super::layout::{Folder, catalog_entry};
use super::state::{Piece, State};
use super::store::{Inner, Turn};

impl Operation for Append {
    type Output = Appended;
    const NAME: &'static str = "append";

    fn key(&self) -> &SessionKey {
        &self.session
    }

    fn wants_hash(&self, state: &State) -> Option<(BranchId, Seq)> {
        let info = state.info.as_ref()?.branch(&self.branch).ok()?;
        let target = self.head();
        (info.head != self.expected && info.head.seq >= target.seq).then(|| (self.branch.clone(), target.seq))
    }

    fn decide(&self, state: &State, now: &Now, hash: Option<Hash>) -> Result<Verdict<Appended>> {
        let session = now.judged(state.session(&self.session, Self::NAME)?);
        let judged = now.on(if self.fence.is_some() { Side::Owner } else { Side::Other });
        let Some(branch) = session.branches.iter().find(|info| info.branch == self.branch) else {
            return Err(self.error(Error::not_found(format!("there is no branch `{}`", self.branch))));
        };
        let other = self.other(&session.branches);
        if let Decided::Repeated(appended) = Append::decide(self, branch, other, judged, |_| Ok(hash))? {
            return Ok(Verdict::Settled(appended));
        }
        let mut branch = branch.clone();
        branch.head = self.head();
        branch.last_wait = self.last_wait().unwrap_or(branch.last_wait);
        branch.updated_at = judged;
        branch.status = self.status.unwrap_or(branch.status);
        if let (Some(lease), Some(ttl)) = (&mut branch.lease, self.renew.filter(|_| self.fence.is_some())) {
            lease.expires_at = now.end_of(ttl);
            now.bind(lease);
        }
        let header = (self.describe.is_some() || self.sealed.is_some()).then(|| {
            let mut header = session.header.clone();
            self.describe.iter().for_each(|change| header.apply(change));
            header.sealed = self.sealed.clone().or(header.sealed);
            Box::new(header)
        });
        let change = Change { header, branch: Some(branch), ..Change::default() };
        let draft = Draft::new(change).with_frames(&self.branch, false, &self.frames);
        Ok(Verdict::Write(Box::new(draft), Appended { head: self.head() }))
    }
}

impl Operation for Fork {
    type Output = BranchInfo;
    const NAME: &'static str = "fork";

    fn key(&self) -> &SessionKey {
        &self.session
    }

    fn decide(&self, state: &State, now: &Now, _: Option<Hash>) -> Result<Verdict<BranchInfo>> {
        if let Some(existing) = Fork::decide(self, state.session(&self.session, Self::NAME)?)? {
            return Ok(Verdict::Settled(existing));
        }
        let info = self.branch_info(now.early);
        let base = self.base.as_ref().map_or(&[][..], |base| &base.frames);
        let change = Change { branch: Some(info.clone()), ..Change::default() };
        Ok(Verdict::Write(Box::new(Draft::new(change).with_frames(&self.branch, true, base)), info))
    }
}

impl Operation for LeaseRequest {
    type Output = Lease;
    const NAME: &'static str = "lease";

    fn key(&self) -> &SessionKey {
        &self.session
    }

    fn decide(&self, state: &State, now: &Now, _: Option<Hash>) -> Result<Verdict<Lease>> {
        let before = now.judged(state.session(&self.session, Self::NAME)?);
        let mut after = before.clone().into_owned();
        let asks = if matches!(self.action, LeaseAction::Acquire { .. }) { Side::Other } else { Side::Owner };
        let mut lease = LeaseRequest::decide(self, &mut after, now.on(asks))?;
        lease.observed_at = now.early;
        if after == *before {
            return Ok(Verdict::Settled(lease));
        }
        if let LeaseAction::Acquire { ttl, .. } | LeaseAction::Renew { ttl, .. } = &self.action {
            lease.info.expires_at = now.end_of(*ttl);
            now.bind(&mut lease.info);
            let held = after.branches.iter_mut().filter(|branch| branch.branch == self.branch);
            held.for_each(|branch| branch.lease = Some(lease.info.clone()));
        }
        let change = Change {
            current: (after.current != before.current).then(|| after.current.clone()),
            branch: after.branches.into_iter().find(|branch| branch.branch == self.branch),
            ..Change::default()
        };
        Ok(Verdict::Write(Box::new(Draft::new(change)), lease))
    }
}

/// A session to begin, with its entry in the catalogue.
struct Create<'a> {
    new: &'a NewSession,
    info: SessionInfo,
    entry: String,
}

impl Operation for Create<'_> {
    type Output = SessionInfo;
    const NAME: &'static str = "create";

    fn key(&self) -> &SessionKey {
        &self.new.header.key
    }

    fn decide(&self, state: &State, _: &Now, _: Option<Hash>) -> Result<Verdict<SessionInfo>> {
        if state.info.is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "the session exists already"));
        }
        let (created, catalog) = (Some(Box::new(self.info.clone())), Some(self.entry.clone()));
        let draft = Draft::new(Change { created, catalog, ..Change::default() });
        let base = self.new.base.as_ref().map_or(&[][..], |base| &base.frames);
        Ok(Verdict::Write(Box::new(draft.with_frames(&BranchId::main(), true, base)), self.info.clone()))
    }
}

impl Operation for Removal {
    /// The session before, if there was anything to remove.
    type Output = Option<Box<State>>;
    const NAME: &'static str = "remove";

    fn key(&self) -> &SessionKey {
        self.session()
    }

    fn decide(&self, state: &State, now: &Now, _: Option<Hash>) -> Result<Verdict<Self::Output>> {
        if state.info.is_none() && !matches!(self, Self::History { .. }) {
            return Ok(Verdict::Settled(None));
        }
        let session = now.judged(state.session(self.session(), "remove")?);
        let asks = if matches!(self, Self::History { fence: Some(_), .. }) { Side::Owner } else { Side::Other };
        if !Removal::decide(self, &session, now.on(asks))? {
            return Ok(Verdict::Settled(None));
        }
        let draft = match self {
            Self::Session { .. } | Self::SessionAt { .. } => Draft::new(Change { removed: true, ..Change::default() }),
            Self::Branch { branch, .. } => Draft::new(Change { dropped: Some(branch.clone()), ..Change::default() }),
            Self::History { branch, base, .. } => {
                let mut info = session.branch(branch)?.clone();
                info.base = Some(base.head);
                let change = Change { branch: Some(info), trimmed: Some(branch.clone()), ..Change::default() };
                Draft::new(change).with_frames(branch, true, &base.frames)
            }
        };
        Ok(Verdict::Write(Box::new(draft), Some(Box::new(state.clone()))))
    }
}

impl Inner {
    pub(super) async fn create(&self, new: &NewSession) -> Result<SessionInfo> {
        self.check_writable()?;
        let owned = new.clone();
        let work = |mut turn: Turn| async move { turn.store.create_in(&owned, &turn.folder, &mut turn.slot).await };
        self.in_turn(&Folder::of(&new.header.key), work).await
    }

    async fn create_in(&self, new: &NewSession, folder: &Folder, slot: &mut Option<Arc<State>>) -> Result<SessionInfo> {
        let state = self.remembered(folder, slot).await?;
        self.refresh(folder, state).await?;
        if state.info.is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "the session exists already"));
        }
        if state.head == 0 {
            self.begin(folder, state).await?;
        } else if state.catalog.is_some() {
            // Of a removal that stopped: the new session has an entry of its own, and this one would be left over.
            self.compact(folder, state).await?;
        }
        self.begin_index(&new.header.key.namespace).await?;
        let info = new.session_info(self.now().await?.early);
        let entry = catalog_entry(&new.header.key, info.created_at, &self.ids.nonce());
        // The entry first: one without a session is skipped, a session without one would be lost.
        self.bucket.put(&entry, Bytes::from_static(b"{}")).await?;
        let created = self.commit_in(&Create { new, info, entry: entry.clone() }, folder, slot).await;
        if matches!(&created, Err(error) if *error.kind() == ErrorKind::AlreadyExists) {
            let _ = self.bucket.delete(&entry).await;
        }
        created
    }

    /// Gives a name that was never used its first snapshot: of nothing. It is read back like any
    /// other, because somebody else may have been faster, even much faster.
    async fn begin(&self, folder: &Folder, state: &mut Arc<State>) -> Result<()> {
        let nothing = State::default().to_snapshot(&self.ids.nonce())?;
        self.bucket.put_new(&folder.head(1), nothing).await?;
        *state = self.load(folder).await?;
        Ok(())
    }

    pub(super) async fn remove(&self, removal: &Removal) -> Result<Removed> {
        self.check_writable()?;
        let owned = removal.clone();
        let work = |mut turn: Turn| async move { turn.store.remove_in(&owned, &turn.folder, &mut turn.slot).await };
        self.in_turn(&Folder::of(removal.session()), work).await
    }

    async fn remove_in(&self, removal: &Removal, folder: &Folder, slot: &mut Option<Arc<State>>) -> Result<Removed> {
        let before = match self.commit_in(removal, folder, slot).await {
            // Whatever it is: asked for by its name, it goes.
            Err(error) if *error.kind() == ErrorKind::Corrupt && matches!(removal, Removal::Session { .. }) => {
                *slot = Some(self.remove_unreadable(removal.session(), folder).await?);
                let finished = self.finish_removed_in(folder, slot).await.unwrap_or_default();
                return Ok(Removed { frames: 0, bytes: finished.bytes });
            }
            other => other?,
        };
        let repeated = before.is_none();
        let state = self.remembered(folder, slot).await?;
        let removed = match before {
            Some(before) => {
                let (before, after) = (self.volume(folder, &before).await, self.volume(folder, state).await);
                Removed { frames: before.0.saturating_sub(after.0), bytes: before.1.saturating_sub(after.1) }
            }
            None => Removed::default(),
        };
        if state.info.is_some() && removed != Removed::default() {
            // It is removed; that the space is free now is worth trying, and tried again by the next snapshot.
            let _ = self.compact(folder, state).await;
        }
        if state.info.is_some() {
            return Ok(removed);
        }
        match self.finish_removed_in(folder, slot).await {
            // It is on record that the session is removed: what is left is cleared by the next who looks.
            Err(_) if !repeated => Ok(removed),
            other => other.map(|_| removed),
        }
    }

    /// How many frames and bytes a session holds.
    async fn volume(&self, folder: &Folder, state: &State) -> (u64, u64) {
        let (mut frames, mut bytes) = (0u64, 0u64);
        let pieces: Vec<_> =
            state.pieces.values().flat_map(|pieces| pieces.history.iter().chain(&pieces.base)).collect();
        for piece in pieces {
            let (count, len) = match piece {
                Piece::Logged { entry, .. } => (1, entry.len),
                Piece::Segment(segment) if segment.cut < segment.first => (segment.count, segment.bytes),
                Piece::Segment(segment) => match self.index_of(folder, segment).await {
                    Ok(Some(entries)) => {
                        let kept = entries.iter().filter(|entry| entry.last > segment.cut);
                        kept.fold((0, 0), |(count, len), entry| (count + 1, len + entry.len))
                    }
                    _ => (segment.count, segment.bytes),
                },
            };
            (frames, bytes) = (frames.saturating_add(count), bytes.saturating_add(len));
        }
        (frames, bytes)
    }
}
