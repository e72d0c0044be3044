//! Typed access to the journals of a store: records in, records and state out.

mod checkpoints;
mod copy;
mod erase;
mod keys;
mod load;
mod prune;
mod recall;
mod status;
mod transfer;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use copy::{CopyOptions, CopyOutcome, CopyProgress, CopyReport, Diverged};
pub use erase::{Receipt, ReceiptBranch, ReceiptKey, ReceiptSignature};
pub use keys::{KeyOwner, OrphanedKey, OrphanedKeys, Rewrapped};
pub use load::{CheckpointInfo, Entry, Restored};
pub use prune::{DeletePlan, PruneResult};
pub use transfer::{EXPORT_VERSION, Exported, ImportOptions, Transferred};
pub use verify::VerifyReport;

use self::recall::Memory;
use crate::codec::{Codec, Described, Place, Stamp, Standing};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::high_water::not_created_anew;
use crate::id::{BranchId, IdSource, SessionKey};
use crate::position::{Epoch, Hash, Head, Position, Seq};
use crate::record::{Record, SessionDescribed};
use crate::session::{BranchInfo, Damage, DamageKind, SessionHeader, SessionInfo, SessionPage, SessionQuery};
use crate::status::Status;
use crate::store::{Append, Appended, Condition, Fork, NewSession, Removal, Removed, Store};
use crate::time::{Clock, Timestamp};

/// Number of times an unleased append to the inbox is tried when others append too.
const INBOX_ATTEMPTS: u32 = 64;

/// Typed access to the journals of a store.
///
/// A journal joins a [`Store`] with a [`Codec`], a clock and a source of ids. Two journals over one store
/// see the same sessions: all it keeps to itself is what it has seen ([`Journal::recall`]).
#[derive(Clone, Debug)]
pub struct Journal {
    store: Arc<dyn Store>,
    codec: Arc<Codec>,
    clock: Arc<dyn Clock>,
    ids: Arc<IdSource>,
    memory: Arc<Memory>,
}

/// Where and under which lease to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// Where it must end now.
    pub expected: Head,
    /// The lease behind the write.
    pub fence: Option<Epoch>,
    /// Renews that lease by this long.
    pub renew: Option<Duration>,
}

impl Target {
    /// The end of `branch`, without a lease.
    pub fn new(session: SessionKey, branch: BranchId, expected: Head) -> Self {
        Self { session, branch, expected, fence: None, renew: None }
    }

    /// Under the lease of that epoch.
    #[must_use]
    pub fn with_fence(mut self, epoch: Epoch) -> Self {
        self.fence = Some(epoch);
        self
    }

    /// Renews the lease by `ttl` with each append.
    #[must_use]
    pub fn with_renew(mut self, ttl: Duration) -> Self {
        self.renew = Some(ttl);
        self
    }
}

impl Journal {
    /// A journal over `store`.
    pub fn new(store: Arc<dyn Store>, codec: Codec, clock: Arc<dyn Clock>, ids: IdSource) -> Self {
        Self { store, codec: Arc::new(codec.strict()), clock, ids: Arc::new(ids), memory: Arc::default() }
    }

    /// The same over another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The store behind it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The codec between.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Its source of ids.
    pub fn ids(&self) -> &IdSource {
        &self.ids
    }

    /// Its clock: for what records say, never for leases.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Creates a session; `AlreadyExists` if it is there.
    pub async fn create(&self, header: SessionHeader) -> Result<SessionInfo> {
        let incarnation = format!("{:032x}", u128::from_be_bytes(self.ids.nonce()));
        let mut header = SessionHeader { incarnation, sealed: None, imported_from: None, ..header };
        let context = |error: Error| error.during("create");
        let key = self.equip(&header).await.map_err(context)?;
        let data = key.as_ref().map(|new| &*new.key);
        header.genesis = self.codec.genesis_under(&header, data);
        let created = match self.codec.seal_header_under(&header, &Described::default(), data) {
            Ok(stored) => self.store.create(&NewSession::new(stored)).await,
            Err(error) => Err(context(error)),
        };
        match created {
            Ok(mut info) => {
                if let Some(new) = &key {
                    self.keep_key(&header, new).await.map_err(|error| context(error).on(&header.key))?;
                }
                self.codec.learn(&header, key.map_or(Standing::Open, |new| Standing::Data(new.key)));
                info.header = header;
                Ok(info)
            }
            Err(error) => {
                // Nobody uses the key that was made for it. If this does not happen, it does no harm. A session
                // that may have been created all the same keeps its key.
                if error.retry() == Retry::Never {
                    let _ = self.destroy_key(&header).await;
                }
                Err(error)
            }
        }
    }

    /// Opens a session; `NotFound` if there is none. A typo never makes an empty session.
    pub async fn open(&self, session: &SessionKey) -> Result<SessionInfo> {
        let info = self.open_stored(session).await?;
        Ok(self.opened(info))
    }

    /// Opens a session, or creates it if there is none. One that must be there by a high-water mark and is not was
    /// deleted without this store, and is `RolledBack`: created anew, it would repeat what was on record.
    pub async fn open_or_create(&self, header: SessionHeader) -> Result<SessionInfo> {
        match self.open(&header.key).await {
            Err(error) if error.is_gone() => return Err(not_created_anew(&header.key, &error).during("create")),
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
        let key = header.key.clone();
        match self.create(header).await {
            // Somebody was quicker.
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => self.open(&key).await,
            other => other,
        }
    }

    /// Lists sessions. Where titles are encrypted the store cannot search them, so a text filter
    /// is applied here, to every session the other filters leave.
    pub async fn list(&self, query: &SessionQuery) -> Result<SessionPage> {
        query.check()?;
        let text = query.text.clone().filter(|_| self.codec.encrypts());
        let Some(text) = text else {
            let mut page = self.store.list(query).await?;
            self.learn_all(&page.sessions).await?;
            page.sessions = page.sessions.into_iter().map(|info| self.opened(info)).collect();
            return Ok(page);
        };
        let mut inner = SessionQuery { text: None, after: None, total: false, limit: 500, ..query.clone() };
        let mut matching = Vec::new();
        loop {
            let page = self.store.list(&inner).await?;
            self.learn_all(&page.sessions).await?;
            for info in page.sessions {
                let info = self.opened(info);
                if info.header.matches_text(&text) {
                    matching.push(info);
                }
            }
            match page.next {
                Some(next) => inner.after = Some(next),
                None => return Ok(SessionPage::select(query, matching.into_iter())),
            }
        }
    }

    /// Encodes records as an append that can be given to the store, more than once if need be:
    /// repeating the same [`Append`] never duplicates it.
    pub fn prepare(&self, target: &Target, records: &[Record]) -> Result<Append> {
        self.prepare_at(target, records, self.clock.now())
    }

    fn prepare_at(&self, target: &Target, records: &[Record], at: Timestamp) -> Result<Append> {
        let place = Place { session: &target.session, branch: &target.branch };
        let stamp = Stamp { after: target.expected, at, nonce: self.ids.nonce() };
        let frame = self.codec.encode(place, stamp, records)?;
        let mut append = Append::new(target.session.clone(), target.branch.clone(), target.expected, vec![frame]);
        append.fence = target.fence;
        append.renew = target.renew;
        if !target.branch.is_inbox() {
            append.status = Status::after(records);
        }
        Ok(append)
    }

    /// Appends records to a branch as one atomic batch. Durable when it returns.
    pub async fn append(&self, target: &Target, records: &[Record]) -> Result<Appended> {
        let append = self.prepare(target, records)?;
        self.store.append(&append).await
    }

    /// Appends records to the session's inbox, whoever runs it. Others may do so at the same
    /// time; this finds its place behind them. If it fails, it may have happened: send the same
    /// message id again, which counts once.
    pub async fn send(&self, session: &SessionKey, records: &[Record]) -> Result<Position> {
        let append = |info: &SessionInfo| self.prepare(&inbox_target(info)?, records);
        self.append_to_inbox(session, append).await.map_err(|error| error.during("send"))
    }

    /// Appends right behind what stands in the inbox of `info`, and with the time at which that was
    /// seen: `Conflict` if there is more by now, `Overtaken` if the condition does not hold.
    pub async fn send_behind(
        &self,
        info: &SessionInfo,
        records: &[Record],
        condition: Option<Condition>,
    ) -> Result<Position> {
        let context = |error: Error| error.during("send");
        let prepared = |target| self.prepare_at(&target, records, info.observed_at);
        let append = inbox_target(info).and_then(prepared).map_err(context)?;
        let append = Append { condition, ..append };
        let appended = self.store.append(&append).await.map_err(context)?;
        Ok(Position::new(BranchId::inbox(), appended.head.seq))
    }

    /// Changes title, tags, labels, metadata or the current branch.
    pub async fn describe(&self, session: &SessionKey, change: SessionDescribed) -> Result<SessionInfo> {
        let append = |info: &SessionInfo| {
            // From the header as it is at this attempt: somebody else may describe too.
            let (mut header, described) = self.codec.open_described(info.header.clone())?;
            header.apply(&change);
            let target = inbox_target(info)?;
            let current = described.map_or_else(|| info.current.clone(), |described| described.current);
            let current = change.current.clone().unwrap_or(current);
            let stored = self.codec.seal_header(&header, &Described { at: target.expected.seq.next(), current })?;
            let encrypted = stored.is_encrypted();
            let mut append = self.prepare(&target, &[change.clone().into()])?;
            append.describe = Some(SessionDescribed {
                title: change.title.as_ref().and(stored.title),
                metadata: change.metadata.as_ref().filter(|_| !encrypted).and(Some(stored.metadata)),
                ..change.clone()
            });
            append.sealed = stored.sealed;
            Ok(append)
        };
        self.append_to_inbox(session, append).await.map_err(|error| error.during("describe"))?;
        self.open(session).await
    }

    /// Makes a branch the current one, on record. Whoever runs a branch does so before the first record of the
    /// run: the current branch in the store's index is only a hint, which anybody could change.
    pub async fn choose_branch(&self, session: &SessionKey, branch: &BranchId) -> Result<SessionInfo> {
        let change = SessionDescribed { current: Some(branch.clone()), ..SessionDescribed::default() };
        self.describe(session, change).await
    }

    /// Starts `branch` at a position. Copies nothing; costs the same at any position.
    pub async fn fork(&self, session: &SessionKey, from: &Position, branch: BranchId) -> Result<BranchInfo> {
        let info = self.open_stored(session).await?;
        let from = load::owner_of(&info, from)?;
        // Forked before: the answer stays the same even if the parent was pruned since.
        let same = |info: &&BranchInfo| info.branch == branch && info.parent.as_ref() == Some(&from);
        if let Some(existing) = info.branches.iter().find(same) {
            return Ok(existing.clone());
        }
        let context = |error: Error| error.during("fork").on(session);
        let hash = self.hash_at(&info, &from).await.map_err(context)?;
        let hash = self.fork_start(&info.header, &branch, &from, hash).map_err(context)?;
        let genesis = info.header.genesis;
        self.store.fork(&Fork { session: session.clone(), genesis, branch, from, hash, base: None }).await
    }

    /// The hash a new fork starts with.
    fn fork_start(&self, header: &SessionHeader, branch: &BranchId, from: &Position, hash: Hash) -> Result<Hash> {
        let root = self.codec.root(header);
        match (root.fork_start(branch, from, hash), self.codec.standing_without_data_key(header).refusal()) {
            (Some(start), _) => Ok(start),
            (None, Some(refusal)) => Err(refusal),
            (None, None) => Err(Error::corrupt("the header does not fit the start of the chain")),
        }
    }

    /// Checks that a branch is as the caller saw it; `Stale` says what is different.
    pub async fn check_seen(&self, session: &SessionKey, branch: &BranchId, seen: Head) -> Result<()> {
        let info = self.store.open(session).await?;
        let head = info.branch(branch)?.head;
        if head == seen {
            return Ok(());
        }
        let position = Position::new(branch.clone(), seen.seq);
        let message = match self.hash_at(&info, &position).await {
            Ok(hash) if hash == seen.hash => {
                format!("{} records were appended behind record {}", head.seq.0 - seen.seq.0, seen.seq)
            }
            Ok(_) => format!("history up to record {} is not what was seen", seen.seq),
            Err(_) => format!("record {} is not there any more; the branch ends at {}", seen.seq, head.seq),
        };
        Err(Error::new(ErrorKind::Stale, message).during("check").on(session).at(position))
    }

    /// Removes a session and everything in it, unless somebody runs it.
    pub async fn clear_session(&self, session: &SessionKey) -> Result<Removed> {
        self.remove_session(session, Removal::Session { session: session.clone() }).await
    }

    /// The same, but only if its branches are these and end there: nothing goes that the caller has
    /// not seen. `Stale` otherwise.
    pub async fn clear_session_at(&self, session: &SessionKey, heads: BTreeMap<BranchId, Head>) -> Result<Removed> {
        self.remove_session(session, Removal::SessionAt { session: session.clone(), heads }).await
    }

    /// The same, but its data key stays: for a session that was put away and may come back.
    pub async fn put_away(&self, session: &SessionKey, heads: BTreeMap<BranchId, Head>) -> Result<Removed> {
        let info = self.store.open(session).await?;
        self.refuse_stranded(&info.header).await?;
        // An erasure that was begun and never happened must not take the key later.
        self.forget_erasure(&info.header).await?;
        self.store.remove(&Removal::SessionAt { session: session.clone(), heads }).await
    }

    /// Appends to the inbox what `append` makes of the session as it is, again if others were
    /// quicker.
    async fn append_to_inbox(
        &self,
        session: &SessionKey,
        append: impl Fn(&SessionInfo) -> Result<Append>,
    ) -> Result<Position> {
        for attempt in 0..INBOX_ATTEMPTS {
            let info = self.open_stored(session).await?;
            match self.store.append(&append(&info)?).await {
                Ok(appended) => return Ok(Position::new(BranchId::inbox(), appended.head.seq)),
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => self.give_way(attempt).await,
                Err(error) => return Err(error),
            }
        }
        let message = format!("others wrote to the inbox at the same time, {INBOX_ATTEMPTS} times in a row");
        Err(Error::new(ErrorKind::StoreUnavailable, message).on(session).hint("nothing was sent; send it again"))
    }

    /// Lets other tasks run for a while, at random longer after more attempts. There is no clock to
    /// wait by: whoever has one waits between calls of [`Journal::send_behind`] instead.
    async fn give_way(&self, attempt: u32) {
        let mut turns = u32::from(self.ids.nonce()[0]) % (2 << attempt.min(6));
        std::future::poll_fn(|context| match turns.checked_sub(1) {
            None => std::task::Poll::Ready(()),
            Some(left) => {
                turns = left;
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            }
        })
        .await;
    }

    /// The session with its header opened. One whose header cannot be opened is still listed and
    /// its records can still be tried, so that is damage and not an error.
    fn opened(&self, mut info: SessionInfo) -> SessionInfo {
        match self.codec.open_described(info.header.clone()) {
            Ok((header, described)) => {
                info.header = header;
                if let Some(described) = described {
                    info.current = described.current;
                }
            }
            Err(error) => {
                let (main, one) = (BranchId::main(), Seq(1));
                let kind = match error.kind() {
                    ErrorKind::KeyMissing { .. } => DamageKind::Key,
                    _ => DamageKind::Header,
                };
                info.damage.push(Damage::new(kind, main, one, one, error.message()));
            }
        }
        info
    }
}

fn inbox_target(info: &SessionInfo) -> Result<Target> {
    let inbox = BranchId::inbox();
    let head = info.branch(&inbox)?.head;
    Ok(Target::new(info.header.key.clone(), inbox, head))
}
