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

mod import;

use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use self::import::Import;
use super::Journal;
use crate::codec::{Frame, FrameError, Place, Signer, object_from_line, object_to_line};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Namespace, SessionKey};
use crate::position::{Hash, Head, Seq};
use crate::session::{BranchInfo, Damage, DamageKind, SessionInfo};
use crate::store::{ReadFrames, Slot, StoreExt as _};

/// The newest version of the export format. Files that are not signed have version 1.
pub const EXPORT_VERSION: u32 = 2;

/// What a person accepts who takes a file that nothing proves.
const UNVERIFIED_IMPORT: &str = "unverified_import";

/// The longest line an import reads.
const MAX_LINE: u64 = 100 << 20;

/// An import appends about this many bytes at once.
const APPEND_BYTES: usize = 1 << 20;

/// The most bytes that an import decompresses, unless it is told another number.
const MAX_DECOMPRESSED: u64 = 1 << 30;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The most bytes the file may decompress to; 1 GiB unless said. What a branch begins with (its base), which
    /// is held in memory, may have a quarter of it. Payloads in plain text count only there.
    pub max_decompressed: Option<u64>,
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
            // A branch that another was forked from may be gone.
            for parent in later.iter().filter_map(|branch| branch.parent.as_ref()) {
                info.branch(&parent.branch).map_err(|error| Error::corrupt(error.message().to_owned()))?;
            }
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
