//! Copying a session to another store: its frames as they are, in their order, behind the same
//! genesis. Nothing is decoded for it, so hashes, signatures and encryption stay, and no key is
//! needed. The data key of a session is copied too, wrapped as it is.
//!
//! Each step leaves the beginning of the session at the target: the session with the base of
//! `main`, then frames, then forks, each behind what it was forked from. So a copy that was stopped
//! is gone on with by the same call, and an older copy is brought up to date by it.

mod check;
mod plan;
mod run;

use std::collections::BTreeMap;

use serde::Serialize;

use self::check::Arrived;
use self::plan::{Standing, is_missing, standing};
use self::run::Copying;
use super::transfer::unverified;
use super::{Entry, Journal};
use crate::codec::{Codec, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionId, SessionKey};
use crate::position::Head;
use crate::record::{Accepted, Extra, Marks, Record};
use crate::session::{Damage, SessionHeader, SessionInfo};
use crate::store::{ReadFrames, Slot, StoreExt as _};

/// What is done if another history of the same name is at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Diverged {
    /// It is an error.
    #[default]
    Refuse,
    /// It stays, and nothing is copied.
    Skip,
    /// It stays, and the copy gets another name: the id and the beginning of its genesis.
    Rename,
    /// It is removed, once the session to copy was read and found sound.
    Replace,
}

/// How to copy a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Another name for it at the target. An encrypted session is bound to its name.
    pub rename: Option<SessionKey>,
    /// What is done if another history is there.
    pub diverged: Diverged,
    /// Reads everything at the target back.
    pub verify: bool,
    /// Only says what would be done.
    pub dry_run: bool,
    /// Also copies what is neither signed nor encrypted to where that is demanded. It is recorded in the
    /// session first.
    pub accept_unprotected: bool,
    /// Who accepts that.
    pub author: Option<String>,
    /// Why it is accepted.
    pub reason: String,
    /// The target, as people know it: noted beside the data key of a session that is copied there.
    pub place: Option<String>,
}

/// What a person accepts who copies a session that nothing protects to where that is demanded.
const UNPROTECTED_COPY: &str = "unprotected_copy";

/// What came of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyOutcome {
    /// It is new there.
    Copied,
    /// A part of it was there, and the rest came.
    Updated,
    /// It was there before, the same to the last record.
    There,
    /// Another history was there and stays; nothing was copied.
    Skipped,
    /// Another history was there and was removed; this one is new.
    Replaced,
}

/// What a copy did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// The session.
    pub session: SessionKey,
    /// Its name at the target, if that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed: Option<SessionKey>,
    /// What came of it.
    pub outcome: CopyOutcome,
    /// Records that were not there before.
    pub records: u64,
    /// Frames sent. None in a dry run.
    pub frames: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// Frames whose hash could not be computed again, because they are keyed with a key this
    /// journal does not have. They continue each other, and their checksums are right.
    pub unchecked: u64,
    /// Whether somebody runs the session: what was durable when the copy began was copied.
    pub running: bool,
    /// Whether everything at the target was read back.
    pub verified: bool,
}

/// Hears of the bytes that have arrived, again and again.
pub type CopyProgress<'a> = &'a (dyn Fn(u64) + Send + Sync);

impl Journal {
    /// Copies a session with all its branches to the store of `to`, or brings the copy there up to
    /// date. Safe to repeat after a failure: it goes on where it stopped. What is there with another
    /// history is `AlreadyExists`, and nothing is changed. Leases and jobs stay where they are.
    pub async fn copy(
        &self,
        to: &Journal,
        session: &SessionKey,
        options: &CopyOptions,
        progress: CopyProgress<'_>,
    ) -> Result<CopyReport> {
        let context = |error: Error| error.during("copy").on(session);
        let mut source = self.open_stored(session).await.map_err(context)?;
        refuse_damage(&source).map_err(context)?;
        self.refuse_header(&source).await.map_err(context)?;
        if !options.dry_run && self.accept_unprotected(to, &source, options).await.map_err(context)? {
            source = self.open_stored(session).await.map_err(context)?;
        }
        let key = options.rename.as_ref().unwrap_or(session);
        let found = match self.find(to, &source, key).await {
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => {
                self.diverged(to, &source, key, options, error).await
            }
            other => other,
        };
        let found = found.map_err(context)?;
        let untouched = matches!(found.standing.outcome, CopyOutcome::There | CopyOutcome::Skipped);
        let is_new = found.target.is_none();
        let mut copy = Copying::new(self, to, &source, found, progress);
        let place = options.place.as_deref().unwrap_or(to.store().capabilities().name);
        let ran = match untouched || options.dry_run {
            true => Ok(()),
            false => {
                // The key first: nobody can read the copy without it.
                self.copy_key(to, &source.header, place).await.map_err(context)?;
                copy.run().await
            }
        };
        if let Err(error) = ran {
            // What can never be completed does not stay: a beginning looks like a session.
            if is_new && is_lasting(&error) {
                let _ = to.clear_session(copy.key()).await;
            }
            return Err(context(error));
        }
        let is_copy = !options.dry_run && copy.report.outcome != CopyOutcome::Skipped;
        if is_copy && source.header.is_encrypted() {
            // Until the session was there, its key belonged to none and may have been destroyed as an orphan.
            self.copy_key(to, &source.header, place).await.map_err(context)?;
        }
        if options.verify && is_copy {
            copy.read_back().await.map_err(context)?;
        }
        Ok(copy.report)
    }

    /// Refuses a session whose header does not fit its seal, as far as that can be told with the keys that are there.
    async fn refuse_header(&self, source: &SessionInfo) -> Result<()> {
        // Where keys are set, a session without protection has no seal that counts: that is accepted, or refused, as such.
        if self.codec().protects() && !source.header.is_protected() && !self.is_protected(source).await? {
            return Ok(());
        }
        self.opened(source.clone()).check_header()
    }

    /// Refuses a session without protection where the target demands it, unless that is accepted; then it is
    /// recorded in the session, before it is copied. Whether that was done now.
    async fn accept_unprotected(&self, to: &Journal, source: &SessionInfo, options: &CopyOptions) -> Result<bool> {
        if !to.codec().protects() || source.header.is_protected() || self.is_protected(source).await? {
            return Ok(false);
        }
        if !options.accept_unprotected {
            return Err(unverified("the session is neither signed nor encrypted".to_owned()).hint(
                "export it and import the file with --accept-unverified, which protects it; or copy it as it is with --accept-unprotected",
            ));
        }
        let inbox = BranchId::inbox();
        let audits = ReadFrames::all(source.header.key.clone(), inbox.clone()).with_marks(Marks::AUDIT);
        let place = Place { session: &source.header.key, branch: &inbox };
        let is_it = |record: &Record| matches!(record, Record::Accepted(accepted) if accepted.what == UNPROTECTED_COPY);
        for slot in self.store().read_all(&audits).await? {
            if let Entry::Batch(batch) = self.entry(place, slot)
                && batch.records.iter().any(is_it)
            {
                return Ok(false);
            }
        }
        let accepted = Accepted {
            what: UNPROTECTED_COPY.to_owned(),
            author: options.author.clone().unwrap_or_default(),
            reason: options.reason.clone(),
            heads_before: BTreeMap::new(),
            extra: Extra::new(),
        };
        self.send(&source.header.key, &[accepted.into()]).await?;
        Ok(true)
    }

    /// Returns whether the last frame of a session is protected: of one from before headers were sealed.
    async fn is_protected(&self, source: &SessionInfo) -> Result<bool> {
        let read = ReadFrames::all(source.header.key.clone(), source.current.clone()).with_newest_first().with_limit(1);
        let last = self.store().read(&read).await?.slots.into_iter().next();
        Ok(matches!(last, Some(Slot::Whole(frame)) if frame.is_protected()))
    }

    /// What is at the target under that name.
    async fn find(&self, to: &Journal, source: &SessionInfo, key: &SessionKey) -> Result<Found> {
        let header = renamed(self.codec(), source, key)?;
        let target = match to.open_stored(key).await {
            Err(error) if is_missing(&error) => None,
            other => Some(other?),
        };
        let standing = standing(self, source, target.as_ref()).await?;
        Ok(Found { header, target, standing })
    }

    async fn diverged(
        &self,
        to: &Journal,
        source: &SessionInfo,
        key: &SessionKey,
        options: &CopyOptions,
        error: Error,
    ) -> Result<Found> {
        let found = |outcome, records| {
            Ok(Found {
                header: renamed(self.codec(), source, key)?,
                target: None,
                standing: Standing { outcome, records },
            })
        };
        match options.diverged {
            Diverged::Refuse => Err(error),
            Diverged::Skip => found(CopyOutcome::Skipped, 0),
            Diverged::Rename => {
                let id = format!("{}-{}", key.id, &source.header.genesis.to_string()[..8]);
                self.find(to, source, &SessionKey::new(key.namespace.clone(), SessionId::new(id)?)).await
            }
            Diverged::Replace => {
                let whole = standing(self, source, None).await?;
                let checked = Arrived { codec: self.codec(), to: self, info: source };
                for branch in &source.branches {
                    checked.check_branch(branch, branch.head).await?;
                }
                let heads = self.still_diverged(to, source, key).await?;
                if !options.dry_run {
                    to.clear_session_at(key, heads).await?;
                }
                found(CopyOutcome::Replaced, whole.records)
            }
        }
    }
}

impl Journal {
    /// Where the session at the target ends, if it still is not what the one to copy was or is; an
    /// error else. The target is looked at first: if both are one and the same session, which only
    /// went on meanwhile, the source has gone at least as far, and nothing is removed.
    async fn still_diverged(
        &self,
        to: &Journal,
        source: &SessionInfo,
        key: &SessionKey,
    ) -> Result<BTreeMap<BranchId, Head>> {
        let there = match to.store().open(key).await {
            Err(error) if is_missing(&error) => return Ok(BTreeMap::new()),
            other => other?,
        };
        let now = self.store().open(&source.header.key).await?;
        match standing(self, &now, Some(&there)).await {
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => Ok(there.heads()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::new(ErrorKind::Stale, "the session has gone on since the copy began")
                .hint("nothing was removed; repeat the copy")),
        }
    }
}

/// Whether the same copy fails again.
fn is_lasting(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(error.kind(), Kind::Corrupt | Kind::VersionTooNew { .. } | Kind::Limit { .. } | Kind::Unsupported)
}

/// What a copy meets at the target.
struct Found {
    /// The header of the copy.
    header: SessionHeader,
    target: Option<SessionInfo>,
    standing: Standing,
}

/// The header at the target.
fn renamed(codec: &Codec, source: &SessionInfo, key: &SessionKey) -> Result<SessionHeader> {
    if *key == source.header.key {
        return Ok(source.header.clone());
    }
    if source.header.is_encrypted() {
        return Err(bound_to_its_name());
    }
    let sealed = source.header.sealed.is_some();
    let (mut header, described) = codec.open_described(source.header.clone())?;
    let origin = header.imported_from.take().unwrap_or_else(|| header.key.clone());
    header.imported_from = (*key != origin).then_some(origin);
    header.key = key.clone();
    match (sealed, source.header.is_protected() && !codec.protects()) {
        (false, _) => Ok(header),
        (true, true) => {
            Err(Error::new(ErrorKind::Unsupported, "without its key, a signed session is bound to its name")
                .hint("configure the signing key"))
        }
        (true, false) => codec.seal_header(&header, &described.unwrap_or_default()),
    }
}

fn bound_to_its_name() -> Error {
    Error::new(ErrorKind::Unsupported, "an encrypted session is bound to its name")
        .hint("export it, and import the file under another name")
}

fn refuse_damage(info: &SessionInfo) -> Result<()> {
    match info.damage.iter().find(|damage| damage.affects_records()) {
        Some(damage) => Err(damaged(&info.header.key, damage)),
        None => Ok(()),
    }
}

fn damaged(session: &SessionKey, damage: &Damage) -> Error {
    damage.to_error(session).hint("`rekindle verify SESSION` lists all damage; nothing that is damaged is copied")
}
