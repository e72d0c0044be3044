//! Appending, reading and changing one session.
//!
//! An append is one script. Everything else reads the session, decides by the rules that all stores
//! share, and writes by a script that does nothing if branches or leases have changed meanwhile, or
//! if a lease has expired that was live; then it is decided again. Appends do not count as changes:
//! they move heads only forward and extend no lease that has expired, so no decision depends on them.

use std::collections::BTreeMap;

use bytes::Bytes;
use redis::Value;
use rekindle_core::{
    Append, Appended, BranchId, BranchInfo, Condition, Decided, Error, ErrorKind, Fork, FramePage, Head, Holds, Lease,
    LeaseRequest, NewSession, ReadFrames, Removal, Removed, Result, Section, Seq, SessionInfo, SessionKey, Timestamp,
};

use super::frames::{frame_args, hash_of, page, page_args, part_args};
use super::keys::list_entry;
use super::link::{Call, Link};
use super::rows::{self, StoredSession, branch_field_names, branch_fields, changed_fields, field_args, head_text};
use super::{RedisStore, scripts, value};
use crate::system::system_ids;

/// How often something is decided again before giving up. Each time, somebody else got on.
pub(super) const TRIES: usize = 100;

/// The error about a session that does not exist.
pub(super) fn missing(session: &SessionKey, operation: &'static str) -> Error {
    Error::not_found("there is no such session").during(operation).on(session)
}

/// The error about something that others kept changing.
pub(super) fn contended(operation: &'static str, session: &SessionKey) -> Error {
    let message = "others kept changing it";
    Error::new(ErrorKind::StoreUnavailable, message).during(operation).on(session)
}

/// What a change writes.
struct Change<'a> {
    branch: &'a BranchId,
    /// What of history goes: up to a record, `all`, or nothing.
    goes: String,
    fields: Vec<rows::Field>,
    removed_fields: Vec<String>,
    parts: &'a [rekindle_core::codec::Frame],
}

impl<'a> Change<'a> {
    fn new(branch: &'a BranchId, fields: Vec<rows::Field>) -> Self {
        Self { branch, goes: String::new(), fields, removed_fields: Vec::new(), parts: &[] }
    }

    fn call(self, link: &Link, key: &SessionKey, found: &StoredSession) -> Call {
        let keys = link.keys.session(key);
        let now = found.info.observed_at;
        let leases = found.info.branches.iter().filter_map(|branch| branch.live_lease(now));
        let holds = leases.map(|lease| lease.expires_at).min();
        let removed = std::iter::once(self.removed_fields.len().to_string()).chain(self.removed_fields);
        Call::writing(std::iter::once(keys.info()).chain(keys.branch(self.branch)))
            .arg(found.version.clone())
            .arg(holds.map(|time| time.0.to_string()).unwrap_or_default())
            .arg(self.branch.to_string())
            .arg(self.goes)
            .args(field_args(self.fields))
            .args(removed.map(Bytes::from))
            .args(part_args(self.parts))
    }
}

impl RedisStore {
    /// The session as it is, and its frame that ends at a record.
    async fn look(
        &self,
        key: &SessionKey,
        branch: &BranchId,
        frame: Option<Seq>,
    ) -> Result<Option<(StoredSession, Value)>> {
        let keys = self.link.keys.session(key);
        let [frames, ..] = keys.branch(branch);
        let seq = frame.map(|seq| seq.to_string()).unwrap_or_default();
        let answer = self.link.run(&scripts::INFO, &Call::reading([keys.info(), frames]).arg(seq)).await?;
        let [now, hash, frame] = value::list(answer)?
            .try_into()
            .map_err(|_| Error::corrupt("the server answered with something else than a session"))?;
        let found = rows::session(key, hash, Timestamp(value::number(now)?))?;
        Ok(found.map(|found| (found, frame)))
    }

    pub(super) async fn find(&self, key: &SessionKey) -> Result<Option<StoredSession>> {
        Ok(self.look(key, &BranchId::main(), None).await?.map(|(found, _)| found))
    }

    async fn existing(&self, key: &SessionKey, operation: &'static str) -> Result<StoredSession> {
        self.find(key).await?.ok_or_else(|| missing(key, operation))
    }

    pub(super) async fn create_session(&self, new: &NewSession) -> Result<SessionInfo> {
        let key = &new.header.key;
        let info = new.session_info(self.link.now().await?);
        let entry = list_entry(info.created_at, key.id.as_str());
        let list = self.link.keys.list(&key.namespace);
        let keys = self.link.keys.session(key);
        let [_, base, _] = keys.branch(&info.current);
        let parts = new.base.as_ref().map(|base| base.frames.as_slice()).unwrap_or_default();
        let mut call_keys = vec![keys.info(), base];
        if self.link.is_single() {
            call_keys.push(list.clone());
        }
        let nonce = u128::from_be_bytes(system_ids()?.nonce());
        // No two sessions of a name begin with the same version: what was decided on one is not
        // written to the other.
        let mut fields = rows::session_fields(&info)?;
        fields.push(("v".to_owned(), (nonce as u64 >> 16).to_string()));
        let call = Call::writing(call_keys)
            .arg(format!("{nonce:032x}"))
            .arg(if self.link.is_single() { entry.clone() } else { String::new() })
            .args(field_args(fields))
            .args(part_args(parts));
        if !self.link.is_single() {
            // Listed before it is there, so that no crash leaves a session nobody finds. An entry
            // without its session is passed over.
            self.link.query(redis::cmd("ZADD").arg(&list).arg(0).arg(&entry)).await?;
        }
        match value::number(self.link.run(&scripts::CREATE, &call).await?)? {
            1 => Ok(info),
            _ => {
                let error = Error::new(ErrorKind::AlreadyExists, "the session exists already");
                Err(error.during("create").on(key))
            }
        }
    }

    pub(super) async fn append_frames(&self, append: &Append) -> Result<Appended> {
        append.check()?;
        for _ in 0..TRIES {
            if self.try_append(append).await? {
                return Ok(Appended { head: append.head() });
            }
            if let Decided::Repeated(appended) = self.explain(append).await? {
                self.link.confirm_all().await?;
                return Ok(appended);
            }
        }
        Err(contended("append", &append.session))
    }

    async fn try_append(&self, append: &Append) -> Result<bool> {
        let now = self.link.told_time();
        let header = self.described(append).await?;
        let mut call = self.append_call(append, header, now);
        if !append.branch.is_inbox() {
            return Ok(value::number(self.link.run_at(&scripts::APPEND, &call, now).await?)? == 1);
        }
        if !self.link.is_single() {
            return self.append_in_cluster(append, &scripts::APPEND, &call, now).await;
        }
        call = call.args(self.inbox_notice(&append.session));
        Ok(value::number(self.link.run_at(&scripts::APPEND_AND_WAKE, &call, now).await?)? == 1)
    }

    fn append_call(&self, append: &Append, (old, new): (String, String), now: Option<Timestamp>) -> Call {
        let link = &self.link;
        let keys = link.keys.session(&append.session);
        let [frames, _, marks] = keys.branch(&append.branch);
        let mut call_keys = vec![keys.info(), frames, marks];
        if append.branch.is_inbox() && link.is_single() {
            call_keys.extend(link.keys.queue(&append.session.namespace));
        }
        let renewal = append.renew.filter(|_| append.fence.is_some());
        Call::writing(call_keys)
            .arg(append.branch.to_string())
            .arg(head_text(append.expected))
            .arg(head_text(append.head()))
            .arg(append.fence.map(|epoch| epoch.to_string()).unwrap_or_default())
            .arg(renewal.map(|ttl| link.later(now, ttl)).unwrap_or_default())
            .arg(append.status.map(|status| status.to_string()).unwrap_or_default())
            .arg(old)
            .arg(new)
            .args(condition_args(append.condition.as_ref()))
            .arg(append.last_wait().map(|seq| seq.to_string()).unwrap_or_default())
            .arg(append.frames.len().to_string())
            .args(frame_args(&append.frames))
    }

    /// The header as it is and as it shall be, if it changes.
    async fn described(&self, append: &Append) -> Result<(String, String)> {
        if append.describe.is_none() && append.sealed.is_none() {
            return Ok(Default::default());
        }
        let found = self.existing(&append.session, "append").await?;
        if let Some(damage) = found.info.damage.first() {
            return Err(append.error(Error::corrupt(damage.detail.clone())));
        }
        let mut header = found.info.header;
        if let Some(change) = &append.describe {
            header.apply(change);
        }
        if let Some(sealed) = &append.sealed {
            header.sealed = Some(sealed.clone());
        }
        Ok((found.header, rows::header_text(&header)?))
    }

    /// Says why an append was not carried out; that it is fresh if it may be by now.
    async fn explain(&self, append: &Append) -> Result<Decided> {
        let last = append.head().seq;
        let looked = self.look(&append.session, &append.branch, Some(last)).await?;
        let (found, frame) = looked.ok_or_else(|| missing(&append.session, "append"))?;
        let info = found.info.branch(&append.branch).map_err(|error| append.error(error))?;
        append.decide(info, append.other(&found.info.branches), found.info.observed_at, |seq| hash_of(seq, frame))
    }

    pub(super) async fn read_page(&self, read: &ReadFrames) -> Result<FramePage> {
        read.check()?;
        let keys = self.link.keys.session(&read.session);
        let [frames, base, marks] = keys.branch(&read.branch);
        let stream = if read.section == Section::Base { base } else { frames };
        let call = Call::reading([keys.info(), stream, marks]).args(page_args(read));
        if let Some(page) = page(read, self.link.run(&scripts::READ, &call).await?)? {
            return Ok(page);
        }
        let found = self.existing(&read.session, "read").await?;
        found.info.branch(&read.branch).map_err(|error| error.during("read"))?;
        // It was made in between.
        Ok(FramePage { slots: Vec::new(), more: false })
    }

    pub(super) async fn start_branch(&self, fork: &Fork) -> Result<BranchInfo> {
        for _ in 0..TRIES {
            let found = self.existing(&fork.session, "fork").await?;
            if let Some(existing) = fork.decide(&found.info)? {
                self.link.confirm_all().await?;
                return Ok(existing);
            }
            let info = fork.branch_info(found.info.observed_at);
            let parts = fork.base.as_ref().map(|base| base.frames.as_slice()).unwrap_or_default();
            let fields = branch_fields(found.place(&fork.branch), &info)?;
            let change = Change { parts, ..Change::new(&fork.branch, fields) };
            if self.change(&fork.session, &found, change).await?.is_some() {
                return Ok(info);
            }
        }
        Err(contended("fork", &fork.session))
    }

    pub(super) async fn decide_lease(&self, request: &LeaseRequest) -> Result<Lease> {
        for _ in 0..TRIES {
            let found = self.existing(&request.session, "lease").await?;
            let mut info = found.info.clone();
            let lease = request.decide(&mut info, found.info.observed_at)?;
            let mut fields = changed_fields(found.place(&request.branch), info.branch(&request.branch)?)?;
            fields.push(("current".to_owned(), info.current.to_string()));
            if let Some(changed) = self.change(&request.session, &found, Change::new(&request.branch, fields)).await? {
                // Somebody without a lease may have appended since.
                return Ok(Lease { head: rows::parse_head(&changed.head)?, ..lease });
            }
        }
        Err(contended("lease", &request.session))
    }

    pub(super) async fn remove_parts(&self, removal: &Removal) -> Result<Removed> {
        let key = removal.session();
        for _ in 0..TRIES {
            let found = match (self.find(key).await?, removal) {
                (Some(found), _) => found,
                (None, Removal::History { .. }) => return Err(missing(key, "remove")),
                (None, _) => return self.removed_before().await,
            };
            if !removal.decide(&found.info, found.info.observed_at)? {
                return self.removed_before().await;
            }
            if let Some(removed) = self.try_remove(removal, &found).await? {
                return Ok(removed);
            }
        }
        Err(contended("remove", key))
    }

    async fn removed_before(&self) -> Result<Removed> {
        self.link.confirm_all().await?;
        Ok(Removed::default())
    }

    async fn try_remove(&self, removal: &Removal, found: &StoredSession) -> Result<Option<Removed>> {
        let (key, change) = match removal {
            Removal::Session { session } => return self.remove_session(session, found, &BTreeMap::new()).await,
            Removal::SessionAt { session, heads } => return self.remove_session(session, found, heads).await,
            Removal::Branch { session, branch } => {
                let removed_fields = branch_field_names(branch);
                (session, Change { goes: "all".into(), removed_fields, ..Change::new(branch, Vec::new()) })
            }
            Removal::History { session, branch, base, .. } => {
                let mut info = found.info.branch(branch)?.clone();
                info.base = Some(base.head);
                // The lease stays as it is: an append may have renewed it meanwhile.
                let fields = changed_fields(found.place(branch), &info)?.into_iter().take(1).collect();
                let goes = base.head.seq.to_string();
                (session, Change { goes, parts: &base.frames, ..Change::new(branch, fields) })
            }
        };
        Ok(self.change(key, found, change).await?.map(|changed| changed.removed))
    }

    /// Carries out a change; nothing if the session is not as it was.
    async fn change(&self, key: &SessionKey, found: &StoredSession, change: Change<'_>) -> Result<Option<Changed>> {
        let written = Removed {
            frames: change.parts.len() as u64,
            bytes: change.parts.iter().map(|part| part.stored_len() as u64).sum(),
        };
        let answer = self.link.run(&scripts::CHANGE, &change.call(&self.link, key, found)).await?;
        let mut values = value::list(answer)?.into_iter();
        let (Some(head), Some(frames), Some(bytes)) = (values.next(), values.next(), values.next()) else {
            return Ok(None);
        };
        let removed = Removed {
            frames: value::number(frames)?.saturating_sub(written.frames),
            bytes: value::number(bytes)?.saturating_sub(written.bytes),
        };
        Ok(Some(Changed { head: value::text(head)?, removed }))
    }

    /// Removes a session as it was read, if the heads are these: appends do not count as changes.
    async fn remove_session(
        &self,
        key: &SessionKey,
        found: &StoredSession,
        heads: &BTreeMap<BranchId, Head>,
    ) -> Result<Option<Removed>> {
        let link = &self.link;
        let keys = link.keys.session(key);
        let branches = found.info.branches.iter().flat_map(|info| keys.branch(&info.branch));
        let mut call_keys: Vec<_> = std::iter::once(keys.info()).chain(branches).collect();
        let entry = list_entry(found.info.created_at, key.id.as_str());
        if link.is_single() {
            call_keys.push(link.keys.list(&key.namespace));
            call_keys.extend(link.keys.queue(&key.namespace));
        }
        let call = Call::writing(call_keys)
            .arg(found.version.clone())
            .arg(found.info.branches.len().to_string())
            .arg(if link.is_single() { entry.clone() } else { String::new() })
            .arg(key.id.to_string())
            .args(field_args(heads.iter().map(|(branch, head)| (format!("h:{branch}"), head_text(*head))).collect()));
        let mut values = value::list(link.run(&scripts::REMOVE, &call).await?)?.into_iter();
        let (Some(frames), Some(bytes)) = (values.next(), values.next()) else { return Ok(None) };
        if !link.is_single() {
            // A job or an entry that a crash leaves here leads to no session, and costs a look.
            link.query(redis::cmd("ZREM").arg(link.keys.list(&key.namespace)).arg(&entry)).await?;
            self.discard_job(key).await?;
        }
        Ok(Some(Removed { frames: value::number(frames)?, bytes: value::number(bytes)? }))
    }
}

/// The field a condition is about and the value it must have; nothing twice without one.
fn condition_args(condition: Option<&Condition>) -> [Bytes; 2] {
    let [field, value] = match condition {
        None => Default::default(),
        Some(Condition { branch, holds: Holds::Head(head) }) => [format!("h:{branch}"), head_text(*head)],
        Some(Condition { branch, holds: Holds::LastWait(seq) }) => [format!("w:{branch}"), seq.to_string()],
    };
    [field.into(), value.into()]
}

struct Changed {
    head: String,
    removed: Removed,
}
