//! An import: the frames of a file, checked and written branch by branch.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::Journal;
use super::super::keys::NewKey;
use super::{
    APPEND_BYTES, FrameLine, ImportOptions, MAX_DECOMPRESSED, Proof, Transferred, UNVERIFIED_IMPORT, signed_parts,
    unverified,
};
use crate::codec::{Codec, Described, Frame, Place, Stamp, Standing};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, OwnerId};
use crate::position::{Hash, Head, Position, Seq};
use crate::record::{Accepted, Extra, Record};
use crate::session::{BranchInfo, DamageKind, SessionHeader, SessionInfo};
use crate::status::Status;
use crate::store::{Append, Base, Fork, NewSession, StoreExt as _};

/// An import under way: one branch after the other, frames collected to larger appends.
pub(super) struct Import<'a> {
    journal: &'a Journal,
    /// With the keys of the file.
    reads: Codec,
    /// With the keys of the session here.
    writes: Codec,
    standing: Standing,
    new_key: Option<NewKey>,
    header: SessionHeader,
    source: SessionInfo,
    proof: Proof,
    options: &'a ImportOptions,
    /// The last record of the inbox so far that describes the session.
    described: Seq,
    /// Branches begun, with the head each has here.
    heads: BTreeMap<BranchId, Head>,
    /// The last hash of the current branch, and of its base, as the file says.
    source_hash: Option<Hash>,
    base_hash: Option<Hash>,
    /// For forks: the hash at each end of a batch of the branches they start from.
    fork_points: BTreeMap<Position, Hash>,
    current: Option<BranchId>,
    base: Vec<Frame>,
    pending: Vec<Frame>,
    pending_bytes: usize,
    status: Option<Status>,
    same_hashes: bool,
    /// Bytes that were decompressed so far, and those of the base that is collected.
    decompressed: u64,
    base_bytes: u64,
}

impl<'a> Import<'a> {
    pub(super) async fn begin(
        journal: &'a Journal,
        mut source: SessionInfo,
        proof: Proof,
        options: &'a ImportOptions,
    ) -> Result<Self> {
        let codec = journal.codec();
        let reads = codec.apart(&source.header, journal.standing(&source.header).await?);
        if source.header.sealed.is_some() {
            let (header, described) = reads.open_described(source.header)?;
            source.header = header;
            source.current = described.map_or(source.current, |described| described.current);
        }
        let origin = source.header.imported_from.clone().unwrap_or_else(|| source.header.key.clone());
        let mut key = source.header.key.clone();
        key.namespace = options.namespace.clone().unwrap_or(key.namespace);
        let key = options.rename.clone().unwrap_or(key);
        let imported_from = (key != origin).then_some(origin);
        let mut header = SessionHeader { key, imported_from, sealed: None, ..source.header.clone() };
        let data = journal.equip(&header).await?;
        let first = codec.first_genesis(&header);
        header.genesis = match data.is_none() && first == source.header.genesis {
            true => first,
            false => codec.genesis_under(&header, data.as_ref().map(|new| &*new.key)),
        };
        let same_hashes = header.genesis == source.header.genesis;
        let points = source.branches.iter().filter_map(|branch| branch.parent.clone());
        let genesis = header.genesis;
        let fork_points = points.map(|point| (point, genesis)).collect();
        let standing = data.as_ref().map_or(Standing::Open, |new| Standing::Data(new.key.clone()));
        Ok(Self {
            journal,
            reads,
            writes: codec.apart(&header, standing.clone()),
            standing,
            new_key: data,
            header,
            source,
            proof,
            options,
            described: Seq::ZERO,
            heads: BTreeMap::new(),
            source_hash: None,
            base_hash: None,
            fork_points,
            current: None,
            base: Vec::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            status: None,
            same_hashes,
            decompressed: 0,
            base_bytes: 0,
        })
    }

    pub(super) async fn frame(&mut self, line: FrameLine) -> Result<()> {
        self.check_proof(&line)?;
        let FrameLine { branch, frame, .. } = line;
        if self.current.as_ref() != Some(&branch) {
            self.begin_branches_through(&branch).await?;
        }
        if frame.is_base() {
            self.base_hash = Some(self.check_source(&branch, &frame, self.base_hash)?);
            self.measure(&branch, &frame)?;
            self.base.push(frame);
            return Ok(());
        }
        self.begin_current().await?;
        self.source_hash = Some(self.check_source(&branch, &frame, self.source_hash)?);
        self.measure(&branch, &frame)?;
        self.chain(&branch, &frame)?;
        if self.pending_bytes >= APPEND_BYTES || self.pending.len() >= 256 {
            self.flush().await?;
        }
        Ok(())
    }

    /// Counts what a frame decompresses to: a small file may hold more than a machine has memory for.
    fn measure(&mut self, branch: &BranchId, frame: &Frame) -> Result<()> {
        if !frame.is_compressed() && !frame.is_base() {
            return Ok(());
        }
        let plain = Codec::new().with_limits(*self.reads.limits());
        let place = Place { session: &self.source.header.key, branch };
        let codec = if frame.is_sealed() { &self.reads } else { &plain };
        let bytes = codec.plain_len(place, frame).map_err(|damage| damage.to_error(&self.header.key))? as u64;
        let most = self.options.max_decompressed.unwrap_or(MAX_DECOMPRESSED);
        let too_many = |what: &'static str, bytes: u64, most: u64| {
            Err(Error::limit(what, bytes, most)
                .hint("if the file comes from somebody you trust, allow more: `rekindle import --max-size 4GiB FILE`"))
        };
        if frame.is_base() {
            self.base_bytes += bytes;
            if self.base_bytes > most / 4 {
                return too_many("bytes of the beginning of a branch, decompressed", self.base_bytes, most / 4);
            }
        }
        if frame.is_compressed() {
            self.decompressed += bytes;
            if self.decompressed > most {
                return too_many("bytes of the file, decompressed", self.decompressed, most);
            }
        }
        Ok(())
    }

    /// Checks that a line comes from whoever has the keys.
    fn check_proof(&mut self, line: &FrameLine) -> Result<()> {
        match &mut self.proof {
            Proof::Lines(signer) => {
                let [name, bytes] = signed_parts(&line.branch, &line.frame);
                match Some(signer.sign(&[&name, &bytes])) == line.signature {
                    true => Ok(()),
                    false => Err(Error::corrupt(format!(
                        "the signature of record {} of branch `{}` does not fit: the file was changed",
                        line.frame.first, line.branch
                    ))),
                }
            }
            Proof::Frames if !line.frame.is_protected() => Err(unverified(format!(
                "record {} of branch `{}` is neither signed nor encrypted",
                line.frame.first, line.branch
            ))),
            Proof::Frames | Proof::Needless | Proof::Accepted => Ok(()),
        }
    }

    /// Checks that a frame continues the one before it in the file and is what its hash says,
    /// before anything of it is taken over.
    fn check_source(&self, branch: &BranchId, frame: &Frame, before: Option<Hash>) -> Result<Hash> {
        let place = Place { session: &self.source.header.key, branch };
        let plain = Codec::new().with_limits(*self.reads.limits());
        let codec = if frame.is_protected() { &self.reads } else { &plain };
        let before = Head { seq: frame.first.previous(), hash: before.unwrap_or(frame.prev) };
        match codec.check_link(place, frame, before, true) {
            Err(damage) if damage.kind == DamageKind::Key && self.options.accept_unverified => Ok(frame.hash),
            Err(damage) => Err(damage.to_error(&self.header.key).hint(
                "the file was changed, or signed with a key this journal does not have; accept_unverified takes the latter",
            )),
            Ok(()) => Ok(frame.hash),
        }
    }

    /// Finishes the current branch and begins those up to and including `target`, in the order
    /// of the file; branches without frames have no lines of their own.
    async fn begin_branches_through(&mut self, target: &BranchId) -> Result<()> {
        let names: Vec<BranchId> = self.source.branches.iter().map(|branch| branch.branch.clone()).collect();
        let next = self
            .current
            .as_ref()
            .map_or(0, |current| names.iter().position(|name| name == current).map_or(0, |at| at + 1));
        let Some(end) = names.iter().position(|name| name == target).filter(|end| *end >= next) else {
            return Err(Error::corrupt(format!("branch `{target}` is not announced, or out of order")));
        };
        for name in &names[next..=end] {
            self.end_current().await?;
            self.current = Some(name.clone());
            (self.source_hash, self.base_hash) = (None, None);
        }
        Ok(())
    }

    async fn end_current(&mut self) -> Result<()> {
        if self.current.is_some() {
            self.begin_current().await?;
            self.flush().await?;
        }
        Ok(())
    }

    /// Creates the current branch in the store, with its base if it has one.
    async fn begin_current(&mut self) -> Result<()> {
        let Some(branch) = self.current.clone().filter(|branch| !self.heads.contains_key(branch)) else {
            return Ok(());
        };
        let source = self.source.branch(&branch)?.clone();
        let base = self.imported_base(&source)?;
        let base_head = base.as_ref().map(|base| base.head);
        let start = match &source.parent {
            None => {
                if !branch.is_inbox() {
                    self.create(base).await?;
                }
                Head { seq: Seq::ZERO, hash: self.header.genesis }
            }
            Some(from) => {
                let hash = self.fork_points.get(from).copied().unwrap_or(self.header.genesis);
                let start = self.writes.root(&self.header).fork_start(&branch, from, hash);
                let hash = start.ok_or_else(|| Error::corrupt("the header does not fit the start of the chain"))?;
                let fork = Fork {
                    session: self.header.key.clone(),
                    genesis: self.header.genesis,
                    branch: branch.clone(),
                    from: from.clone(),
                    hash,
                    base,
                };
                self.journal.store().fork(&fork).await?;
                Head { seq: from.seq, hash }
            }
        };
        let head = base_head.unwrap_or(start);
        self.heads.insert(branch.clone(), head);
        self.note_fork_points(&branch, head.seq, head.seq, head.hash);
        Ok(())
    }

    /// The header as it is stored here, with what is in the inbox so far.
    fn sealed_header(&self) -> Result<SessionHeader> {
        let described = Described { at: self.described, current: self.source.current.clone() };
        self.writes.seal_header(&self.header, &described)
    }

    async fn create(&mut self, base: Option<Base>) -> Result<()> {
        let header = self.sealed_header()?;
        let new = NewSession { header, created_at: Some(self.source.created_at), base };
        match self.journal.store().create(&new).await {
            Ok(_) => {}
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => {
                let existing = self.journal.store().open(&self.header.key).await?;
                if existing.header.genesis != self.header.genesis {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        match &self.new_key {
            Some(key) => self.journal.keep_key(&self.header, key).await,
            None => Ok(()),
        }
    }

    /// The base of a branch, chained and sealed anew.
    fn imported_base(&mut self, source: &BranchInfo) -> Result<Option<Base>> {
        let frames = std::mem::take(&mut self.base);
        self.base_bytes = 0;
        let Some(head) = source.base else { return Ok(None) };
        if frames.is_empty() {
            return Err(Error::corrupt(format!("the base of branch `{}` is not in the file", source.branch)));
        }
        let session = self.header.key.clone();
        let parts = frames.iter().map(|frame| self.records(&source.branch, frame)).collect::<Result<Vec<_>>>()?;
        let slices: Vec<&[Record]> = parts.iter().map(Vec::as_slice).collect();
        let at = frames.first().map_or(source.created_at, |frame| frame.at);
        let place = Place { session: &session, branch: &source.branch };
        let encoded = self.writes.encode_base(place, head, at, &slices)?;
        self.same_hashes &= encoded.iter().zip(&frames).all(|(new, old)| new.hash == old.hash);
        Ok(Some(Base { head, status: source.status, frames: encoded }))
    }

    fn records(&self, branch: &BranchId, frame: &Frame) -> Result<Vec<Record>> {
        // Most payloads are plain, so this needs no key; signatures are not checked here, the
        // file's own hash was.
        let plain = Codec::new().with_limits(*self.reads.limits());
        let place = Place { session: &self.source.header.key, branch };
        let batch = match frame.is_sealed() {
            true => self.reads.decode(place, frame),
            false => plain.decode(place, frame),
        };
        let batch = batch.map_err(|damage| damage.to_error(&self.header.key))?;
        Ok(batch.records)
    }

    /// Puts a frame behind the current branch's head, under this journal's keys.
    fn chain(&mut self, branch: &BranchId, frame: &Frame) -> Result<()> {
        let Some(after) = self.heads.get(branch).copied() else { return Err(Error::corrupt("a frame has no branch")) };
        if frame.first != after.seq.next() {
            return Err(Error::corrupt(format!(
                "record {} of branch `{branch}` follows record {}",
                frame.first, after.seq
            )));
        }
        let records = self.records(branch, frame)?;
        self.status = Status::after(&records).or(self.status);
        if branch.is_inbox() {
            let describes = |record: &Record| matches!(record, Record::SessionDescribed(_));
            let last = records.iter().rposition(describes);
            self.described = last.map_or(self.described, |at| Seq(frame.first.0 + at as u64));
        }
        let place = Place { session: &self.header.key, branch };
        let stamp = Stamp { after, at: frame.at, nonce: frame.nonce };
        let chained = self.writes.encode(place, stamp, &records)?;
        self.same_hashes &= chained.hash == frame.hash;
        let (first, last, hash) = (chained.first, chained.last, chained.hash);
        self.heads.insert(branch.clone(), Head { seq: last, hash });
        self.note_fork_points(branch, first, last, hash);
        self.pending_bytes += chained.stored_len();
        self.pending.push(chained);
        Ok(())
    }

    fn note_fork_points(&mut self, branch: &BranchId, first: Seq, last: Seq, hash: Hash) {
        for seq in first.0..=last.0 {
            if let Some(slot) = self.fork_points.get_mut(&Position::new(branch.clone(), Seq(seq))) {
                *slot = Codec::fork_hash(hash, last, Seq(seq));
            }
        }
    }

    async fn flush(&mut self) -> Result<()> {
        let frames = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let (Some(first), Some(branch)) = (frames.first(), self.current.clone()) else { return Ok(()) };
        let expected = Head { seq: first.first.previous(), hash: first.prev };
        let mut append = Append::new(self.header.key.clone(), branch.clone(), expected, frames);
        append.status = self.status.take().filter(|_| !branch.is_inbox());
        if branch.is_inbox() && self.described > Seq::ZERO {
            append.sealed = self.sealed_header()?.sealed;
        }
        match self.journal.store().append(&append).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                let message = format!("branch `{branch}` is there with another history");
                Err(Error::new(ErrorKind::AlreadyExists, message).on(&self.header.key).because(error))
            }
            other => other.map(drop),
        }
    }

    /// Notes in the inbox that nothing proved the file, once.
    async fn record_acceptance(&self) -> Result<()> {
        let (Proof::Accepted, inbox) = (&self.proof, BranchId::inbox()) else { return Ok(()) };
        let there = self.journal.open(&self.header.key).await?.branch(&inbox)?.head.seq;
        if there != self.source.branch(&inbox)?.head.seq {
            return Ok(());
        }
        let accepted = Accepted {
            what: UNVERIFIED_IMPORT.to_owned(),
            author: self.options.author.clone().unwrap_or_default(),
            reason: self.options.reason.clone(),
            heads_before: BTreeMap::new(),
            extra: Extra::new(),
        };
        self.journal.send(&self.header.key, &[accepted.into()]).await.map(drop)
    }

    /// The current branch is the one leased last, so it is leased once more.
    async fn restore_current(&self) -> Result<()> {
        let current = &self.source.current;
        if current.is_inbox() || self.journal.store().open(&self.header.key).await?.current == *current {
            return Ok(());
        }
        let owner = OwnerId::generate(self.journal.ids(), self.journal.clock().now());
        let acquired = self.journal.store().acquire(&self.header.key, current, &owner, Duration::from_secs(10)).await;
        match acquired {
            Ok(lease) => self.journal.store().release(&lease).await.map(drop),
            // It is the index of the store that would say so; the seal of the header does already.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyRunning { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn finish(mut self, frames: u64) -> Result<Transferred> {
        if let Some(last) = self.source.branches.last().map(|branch| branch.branch.clone()) {
            if self.current.as_ref() != Some(&last) {
                self.begin_branches_through(&last).await?;
            }
            self.end_current().await?;
        }
        for source in &self.source.branches {
            let arrived = self.heads.get(&source.branch).map(|head| head.seq);
            if arrived != Some(source.head.seq) {
                return Err(Error::corrupt(format!("branch `{}` is incomplete in the file", source.branch)));
            }
        }
        self.restore_current().await?;
        self.journal.codec().learn(&self.header, self.standing.clone());
        self.record_acceptance().await?;
        Ok(Transferred { session: self.header.key, frames, same_hashes: self.same_hashes })
    }
}
