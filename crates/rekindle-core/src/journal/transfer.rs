//! Export of a session to one portable file, and import of it into any store.
//!
//! The file is JSON lines with checksums: first the session, then the frames of each branch in
//! plain text with their chain hashes, last a line with the hash of everything before it.
//! Exporting decrypts, unless it is told to leave payloads sealed: treat the file as you treat the
//! data. Importing checks the file, chains the frames again under the importing codec's keys, and
//! where both have the same keys (or none) arrives at the same hashes; a session with a data key gets
//! another one.
//!
//! A journal with keys signs what it exports, line by line: the second line signs the first, and every
//! frame carries a signature over everything before it. A journal with keys imports only what is signed or
//! encrypted with a key it has, unless it is told to accept the rest, which it records.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Journal;
use crate::codec::{
    Codec, Described, Frame, FrameError, Place, Signer, Stamp, Standing, object_from_line, object_to_line,
};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Namespace, OwnerId, SessionKey};
use crate::position::{Hash, Head, Position, Seq};
use crate::record::{Accepted, Extra, Record};
use crate::session::{BranchInfo, Damage, DamageKind, SessionHeader, SessionInfo};
use crate::status::Status;
use crate::store::{Append, Base, Fork, NewSession, ReadFrames, Slot, StoreExt as _};

/// The newest version of the export format. Files that are not signed have version 1.
pub const EXPORT_VERSION: u32 = 2;

/// What a person accepts who takes a file that nothing proves.
const UNVERIFIED_IMPORT: &str = "unverified_import";

/// The longest line an import reads.
const MAX_LINE: u64 = 100 << 20;

/// An import appends about this many bytes at once.
const APPEND_BYTES: usize = 1 << 20;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Another name for the session.
    pub rename: Option<SessionKey>,
    /// Another namespace for it, under the same id, unless it is renamed.
    pub namespace: Option<Namespace>,
    /// Also takes what is not signed with a key this journal has. It is signed anew: whatever the file
    /// says becomes the truth. That is recorded in the session's inbox.
    pub accept_unverified: bool,
    /// Who accepts it.
    pub author: Option<String>,
    /// Why it is accepted.
    pub reason: String,
}

/// What an export or import moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// The session.
    pub session: SessionKey,
    /// Frames moved.
    pub frames: u64,
    /// Whether the chain hashes are those of the origin. They are not if the keys differ.
    pub same_hashes: bool,
}

/// What an exported file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// The session as it was, its header as the file has it.
    pub session: SessionInfo,
    /// Frames.
    pub frames: u64,
}

#[derive(Serialize, Deserialize)]
struct ExportHead {
    rekindle_export: u32,
    session: SessionInfo,
}

#[derive(Serialize, Deserialize)]
struct ExportEnd {
    end: bool,
    frames: u64,
    hash: Hash,
}

/// The line behind the first one, if the file is signed.
#[derive(Serialize, Deserialize)]
struct ExportSigned {
    signed_by: String,
    signature: Hash,
}

/// Which branch an exported frame belongs to, and the signature over it and everything before.
#[derive(Serialize, Deserialize)]
struct FrameOf {
    branch: BranchId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<Hash>,
}

/// What is signed of a frame.
fn signed_parts(branch: &BranchId, frame: &Frame) -> [Vec<u8>; 2] {
    [branch.as_str().as_bytes().to_vec(), frame.to_bytes().to_vec()]
}

/// How payloads stand in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payloads {
    /// In plain text.
    Plain,
    /// As the store has them.
    Stored,
}

struct Output<'a> {
    writer: &'a mut (dyn Write + Send),
    hasher: blake3::Hasher,
    frames: u64,
    payloads: Payloads,
    signer: Option<Signer>,
}

impl Output<'_> {
    fn head(&mut self, head: &ExportHead) -> Result<()> {
        let line = object_to_line(head);
        let digest = line.as_ref().ok().map(|line| Hash::of(line));
        self.line(line)?;
        let Some((signer, digest)) = self.signer.as_mut().zip(digest) else { return Ok(()) };
        let signed = ExportSigned { signed_by: signer.id().to_owned(), signature: signer.sign(&[&digest.0]) };
        self.line(object_to_line(&signed))
    }

    fn frame(&mut self, branch: &BranchId, frame: &Frame) -> Result<()> {
        let signature = self.signer.as_mut().map(|signer| {
            let [name, bytes] = signed_parts(branch, frame);
            signer.sign(&[&name, &bytes])
        });
        self.frames += 1;
        self.line(frame.to_line(Some(FrameOf { branch: branch.clone(), signature })))
    }

    fn line(&mut self, line: Result<Vec<u8>, FrameError>) -> Result<()> {
        let line = line.map_err(|error| Error::invalid("a line cannot be written").because(error))?;
        self.hasher.update(&line);
        let written = self.writer.write_all(&line);
        written.map_err(|error| Error::new(ErrorKind::PersistFailed, "the file cannot be written").because(error))
    }
}

impl Journal {
    /// Writes a session with all its branches as one portable file. Refuses damaged history.
    pub async fn export(&self, session: &SessionKey, writer: &mut (dyn Write + Send)) -> Result<Transferred> {
        let info = self.open(session).await?;
        self.export_as(info, Payloads::Plain, writer).await
    }

    /// The same, with frames and header as they are stored: what is encrypted stays so, and is
    /// imported where the key is.
    pub async fn export_stored(&self, session: &SessionKey, writer: &mut (dyn Write + Send)) -> Result<Transferred> {
        let info = self.open_stored(session).await?;
        self.export_as(info, Payloads::Stored, writer).await
    }

    /// Reads an exported file to its end and checks it, without importing it: what it holds.
    pub fn read_export(reader: &mut (dyn BufRead + Send)) -> Result<Exported> {
        let context = |error: Error| error.during("read export");
        let mut input = Input::new(reader);
        let head = input.head().map_err(context)?;
        while input.next_frame().map_err(context)?.is_some() {}
        Ok(Exported { session: head.session, frames: input.frames })
    }

    async fn export_as(
        &self,
        info: SessionInfo,
        payloads: Payloads,
        writer: &mut (dyn Write + Send),
    ) -> Result<Transferred> {
        let session = &info.header.key.clone();
        let context = |error: Error| error.during("export").on(session);
        // What a store noticed may stand behind the recorded head, where the frames are not read.
        // What was set back is whole up to its end, and can be saved.
        let stops = |damage: &&Damage| damage.affects_records() && damage.kind != DamageKind::RolledBack;
        if let Some(damage) = info.damage.iter().find(stops) {
            let error =
                damage.to_error(session).hint("run verify to list all damage; a damaged session is not exported");
            return Err(context(error));
        }
        let signer = self.codec().signer();
        let version = if signer.is_some() { EXPORT_VERSION } else { 1 };
        let mut output = Output { writer, hasher: blake3::Hasher::new(), frames: 0, payloads, signer };
        let branches = in_fork_order(&info).map_err(context)?.into_iter().cloned();
        let branches = branches.map(|branch| BranchInfo { lease: None, ..branch }).collect();
        let head =
            ExportHead { rekindle_export: version, session: SessionInfo { branches, damage: Vec::new(), ..info } };
        output.head(&head).map_err(context)?;
        for branch in &head.session.branches {
            let read = ReadFrames::all(session.clone(), branch.branch.clone());
            let start = match (branch.base, &branch.parent) {
                (Some(base), _) => {
                    self.read_base(session, &branch.branch, base).await.map_err(context)?;
                    let start = Head { seq: Seq::ZERO, hash: base.hash };
                    self.export_frames(&read.clone().with_base(), start, &mut output).await.map_err(context)?;
                    base
                }
                (None, Some(parent)) => {
                    let start = self.start_hash(&head.session, branch).await.map_err(context)?;
                    let start = match start {
                        Some(start) => Some(start),
                        None => self.stored_start(&head.session, branch).await.map_err(context)?,
                    };
                    Head { seq: parent.seq, hash: start.unwrap_or_default() }
                }
                (None, None) => Head { seq: Seq::ZERO, hash: head.session.header.genesis },
            };
            let read = read.with_range(Seq(1), branch.head.seq);
            let end = self.export_frames(&read, start, &mut output).await.map_err(context)?;
            if end != branch.head {
                let message =
                    format!("branch `{}` ends at record {}, not at {}", branch.branch, end.seq, branch.head.seq);
                return Err(context(Error::corrupt(message)));
            }
        }
        let end = ExportEnd { end: true, frames: output.frames, hash: Hash(*output.hasher.finalize().as_bytes()) };
        output.line(object_to_line(&end)).map_err(context)?;
        let flushed = output.writer.flush();
        flushed.map_err(|error| {
            context(Error::new(ErrorKind::PersistFailed, "the file cannot be written").because(error))
        })?;
        Ok(Transferred { session: session.clone(), frames: end.frames, same_hashes: true })
    }

    /// Writes frames behind `before`, checking every link and every hash, and gives where they end.
    async fn export_frames(&self, read: &ReadFrames, mut before: Head, output: &mut Output<'_>) -> Result<Head> {
        let place = Place { session: &read.session, branch: &read.branch };
        let through = read.through;
        self.store()
            .read_pages(read, &mut |slots| {
                for slot in slots {
                    let frame = match slot {
                        Slot::Whole(frame) if frame.first > through => continue,
                        Slot::Whole(frame) => {
                            self.codec().check_link(place, &frame, before, true).and_then(|()| match output.payloads {
                                Payloads::Plain => self.codec().plain_frame(place, &frame),
                                Payloads::Stored => Ok(frame),
                            })
                        }
                        Slot::Damaged(damage) => Err(damage),
                    };
                    let frame = frame.map_err(|damage| damage.to_error(place.session))?;
                    before = Head { seq: frame.last, hash: frame.hash };
                    output.frame(&read.branch, &frame)?;
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(before)
    }

    /// Reads a session from an exported file. Safe to repeat after a failure: it goes on where
    /// it stopped. A session of that name with another history is `AlreadyExists`.
    pub async fn import(&self, reader: &mut (dyn BufRead + Send), options: &ImportOptions) -> Result<Transferred> {
        let mut input = Input::new(reader);
        let context = |error: Error| error.during("import");
        let head = input.head().map_err(context)?;
        let proof = self.proof(&input, &head.session, options).map_err(context)?;
        let mut import = Import::begin(self, head.session, proof, options).await.map_err(context)?;
        while let Some(line) = input.next_frame().map_err(context)? {
            import.frame(line).await.map_err(context)?;
        }
        import.finish(input.frames).await.map_err(context)
    }
}

/// What proves that a file comes from whoever has the keys.
enum Proof {
    /// Every line is signed.
    Lines(Signer),
    /// The header and every frame are protected by keys that are here.
    Frames,
    /// Nothing need be proved: this journal has no keys.
    Needless,
    /// Nothing proves it, and that was accepted.
    Accepted,
}

impl Journal {
    /// What proves the file that was begun; `Unverified` if nothing does and that was not accepted.
    fn proof(&self, input: &Input<'_>, source: &SessionInfo, options: &ImportOptions) -> Result<Proof> {
        if !self.codec().protects() {
            return Ok(Proof::Needless);
        }
        let signer =
            input.signed.as_ref().and_then(|signed| Some((self.codec().signer_of(&signed.signed_by)?, signed)));
        if let Some((mut signer, signed)) = signer {
            return match signer.sign(&[&input.head_digest.0]) == signed.signature {
                true => Ok(Proof::Lines(signer)),
                false => Err(Error::corrupt("the signature of the file does not fit it: it was changed")),
            };
        }
        match (source.header.is_protected(), options.accept_unverified) {
            (_, true) => Ok(Proof::Accepted),
            (true, false) => Ok(Proof::Frames),
            (false, false) => Err(unverified(match &input.signed {
                Some(signed) => format!("the file is signed with the key `{}`, which was not given", signed.signed_by),
                None => "the file is not signed".to_owned(),
            })),
        }
    }
}

/// The error of what nothing proves.
pub(super) fn unverified(message: String) -> Error {
    Error::new(ErrorKind::Unverified, message)
}

/// The branches, each behind the one it was forked from; `main` first, then the inbox.
pub(super) fn in_fork_order(info: &SessionInfo) -> Result<Vec<&BranchInfo>> {
    let (mut ordered, mut rest): (Vec<&BranchInfo>, Vec<&BranchInfo>) =
        info.branches.iter().partition(|branch| branch.parent.is_none());
    let mut known: HashSet<&BranchId> = ordered.iter().map(|branch| &branch.branch).collect();
    while !rest.is_empty() {
        let is_ready =
            |branch: &&BranchInfo| branch.parent.as_ref().is_some_and(|parent| known.contains(&parent.branch));
        let (ready, later): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_ready);
        if ready.is_empty() {
            return Err(Error::corrupt("the branches are forked from each other in a circle"));
        }
        known.extend(ready.iter().map(|branch| &branch.branch));
        ordered.extend(ready);
        rest = later;
    }
    Ok(ordered)
}

struct Input<'a> {
    reader: &'a mut (dyn BufRead + Send),
    hasher: blake3::Hasher,
    number: u64,
    frames: u64,
    head_digest: Hash,
    signed: Option<ExportSigned>,
}

/// A line with a frame.
struct FrameLine {
    branch: BranchId,
    frame: Frame,
    signature: Option<Hash>,
}

impl<'a> Input<'a> {
    fn new(reader: &'a mut (dyn BufRead + Send)) -> Self {
        Self { reader, hasher: blake3::Hasher::new(), number: 0, frames: 0, head_digest: Hash::default(), signed: None }
    }

    fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        self.number += 1;
        let read = std::io::Read::take(&mut *self.reader, MAX_LINE).read_until(b'\n', &mut line);
        read.map_err(|error| Error::new(ErrorKind::StoreUnavailable, "the file cannot be read").because(error))?;
        if line.last() != Some(&b'\n') {
            return Err(Error::corrupt(format!("line {} of the file is cut off or over the limit", self.number)));
        }
        Ok(line)
    }

    fn wrong(&self, error: FrameError) -> Error {
        let message = format!("line {} of the file {error}", self.number);
        match error.kind {
            DamageKind::Version => {
                let supported = u32::from(crate::codec::FORMAT_VERSION);
                let found = error.found_version.unwrap_or(supported + 1);
                Error::new(ErrorKind::VersionTooNew { what: "frame".into(), found, supported }, message)
            }
            _ => Error::corrupt(message),
        }
    }

    fn object<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.line()?;
        let object = object_from_line(&line).map_err(|error| self.wrong(error))?;
        self.hasher.update(&line);
        Ok(object)
    }

    fn head(&mut self) -> Result<ExportHead> {
        let line = self.line()?;
        let head: ExportHead = object_from_line(&line).map_err(|error| self.wrong(error))?;
        self.hasher.update(&line);
        self.head_digest = Hash::of(&line);
        let (found, supported) = (head.rekindle_export, EXPORT_VERSION);
        if found > supported {
            let kind = ErrorKind::VersionTooNew { what: "export".into(), found, supported };
            return Err(Error::new(kind, format!("export version {found}; this build reads up to {supported}")));
        }
        if found > 1 {
            self.signed = Some(self.object()?);
        }
        Ok(head)
    }

    /// The next frame and its branch; nothing at the end of a complete file.
    fn next_frame(&mut self) -> Result<Option<FrameLine>> {
        let line = self.line()?;
        if let Ok(end) = object_from_line::<ExportEnd>(&line) {
            let hash = Hash(*self.hasher.finalize().as_bytes());
            let mut rest = [0];
            let more = self.reader.read(&mut rest).unwrap_or(0) > 0;
            if end.hash != hash || end.frames != self.frames || more {
                return Err(Error::corrupt("the end of the file does not fit what stands before it"));
            }
            return Ok(None);
        }
        let parsed = Frame::from_line::<FrameOf>(line.strip_suffix(b"\n").unwrap_or(&line));
        let (frame, of) = parsed.map_err(|error| self.wrong(error))?;
        let Some(of) = of else { return Err(Error::corrupt(format!("line {} names no branch", self.number))) };
        self.hasher.update(&line);
        self.frames += 1;
        Ok(Some(FrameLine { branch: of.branch, frame, signature: of.signature }))
    }
}

/// An import under way: one branch after the other, frames collected to larger appends.
struct Import<'a> {
    journal: &'a Journal,
    /// With the keys of the file.
    reads: Codec,
    /// With the keys of the session here.
    writes: Codec,
    standing: Standing,
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
}

impl<'a> Import<'a> {
    async fn begin(
        journal: &'a Journal,
        mut source: SessionInfo,
        proof: Proof,
        options: &'a ImportOptions,
    ) -> Result<Self> {
        let codec = journal.codec();
        let reads = codec.apart(source.header.key.clone(), journal.standing(&source.header).await?);
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
            false => codec.genesis_under(&header, data.as_deref()),
        };
        let same_hashes = header.genesis == source.header.genesis;
        let points = source.branches.iter().filter_map(|branch| branch.parent.clone());
        let genesis = header.genesis;
        let fork_points = points.map(|point| (point, genesis)).collect();
        let standing = data.map_or(Standing::Open, Standing::Data);
        Ok(Self {
            journal,
            reads,
            writes: codec.apart(header.key.clone(), standing.clone()),
            standing,
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
        })
    }

    async fn frame(&mut self, line: FrameLine) -> Result<()> {
        self.check_proof(&line)?;
        let FrameLine { branch, frame, .. } = line;
        if self.current.as_ref() != Some(&branch) {
            self.begin_branches_through(&branch).await?;
        }
        if frame.is_base() {
            self.base_hash = Some(self.check_source(&branch, &frame, self.base_hash)?);
            self.base.push(frame);
            return Ok(());
        }
        self.begin_current().await?;
        self.source_hash = Some(self.check_source(&branch, &frame, self.source_hash)?);
        self.chain(&branch, &frame)?;
        if self.pending_bytes >= APPEND_BYTES || self.pending.len() >= 256 {
            self.flush().await?;
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
                let fork =
                    Fork { session: self.header.key.clone(), branch: branch.clone(), from: from.clone(), hash, base };
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
            Ok(_) => Ok(()),
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => {
                let existing = self.journal.store().open(&self.header.key).await?;
                match existing.header.genesis == self.header.genesis {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The base of a branch, chained and sealed anew.
    fn imported_base(&mut self, source: &BranchInfo) -> Result<Option<Base>> {
        let frames = std::mem::take(&mut self.base);
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

    async fn finish(mut self, frames: u64) -> Result<Transferred> {
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
        self.journal.codec().learn(self.header.key.clone(), self.standing.clone());
        self.record_acceptance().await?;
        Ok(Transferred { session: self.header.key, frames, same_hashes: self.same_hashes })
    }
}
