//! Checking the frames of a copy: every link, and every hash for which there is a key.

use std::ops::ControlFlow;

use crate::codec::{Codec, Frame, Place};
use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::position::{Head, Seq};
use crate::session::{BranchInfo, Damage, DamageKind, SessionInfo};
use crate::store::{ReadFrames, Slot, StoreExt as _};

/// How deeply something was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Its hash was computed again.
    Hashes,
    /// It continues what stands before it; for its hash there is no key.
    Links,
}

/// Checks that a frame continues `before`.
pub(super) fn check_link(codec: &Codec, place: Place<'_>, frame: &Frame, before: Head) -> Result<Depth, Damage> {
    match codec.check_link(place, frame, before, true) {
        Err(damage) if is_about_keys(&damage) => codec.check_link(place, frame, before, false).map(|()| Depth::Links),
        other => other.map(|()| Depth::Hashes),
    }
}

/// Checks that frames are the base of `head`.
pub(super) fn check_base(codec: &Codec, place: Place<'_>, head: Head, frames: &[Frame]) -> Result<Depth, Damage> {
    match codec.check_base(place, head, frames, true) {
        Err(damage) if is_about_keys(&damage) => codec.check_base(place, head, frames, false).map(|()| Depth::Links),
        other => other.map(|()| Depth::Hashes),
    }
}

/// Whether only a key is missing, or only protection that is asked for today.
fn is_about_keys(damage: &Damage) -> bool {
    matches!(damage.kind, DamageKind::Key | DamageKind::Unprotected)
}

/// A copy at the target.
pub(super) struct Arrived<'a> {
    /// With the keys of the source.
    pub codec: &'a Codec,
    pub to: &'a Journal,
    pub info: &'a SessionInfo,
}

impl Arrived<'_> {
    /// Reads a branch from its beginning; an error unless it leads to `wanted`.
    pub async fn check_branch(&self, branch: &BranchInfo, wanted: Head) -> Result<()> {
        let mut before = self.start(branch).await?;
        let mut passed = before == wanted;
        let session = &self.info.header.key;
        let place = Place { session, branch: &branch.branch };
        let read = ReadFrames::all(session.clone(), branch.branch.clone());
        self.to
            .store()
            .read_pages(&read, &mut |slots| {
                for slot in slots {
                    let frame =
                        whole(slot).and_then(|frame| check_link(self.codec, place, &frame, before).map(|_| frame));
                    let frame = frame.map_err(wrong)?;
                    before = Head { seq: frame.last, hash: frame.hash };
                    passed |= before == wanted;
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        match passed {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "the copy did not arrive as it was: record {} of branch `{}` is not there",
                wanted.seq, branch.branch
            ))),
        }
    }

    /// Where the frames of a branch begin: behind its base, its fork point or the genesis.
    async fn start(&self, branch: &BranchInfo) -> Result<Head> {
        let session = &self.info.header.key;
        let Some(base) = branch.base else {
            let Some(parent) = &branch.parent else {
                return Ok(Head { seq: Seq::ZERO, hash: self.info.header.genesis });
            };
            let fork = self.to.hash_at(self.info, parent).await?;
            let known = self.codec.root(&self.info.header).fork_start(&branch.branch, parent, fork);
            let start = match known {
                Some(start) => Some(start),
                None => self.to.stored_start(self.info, branch).await?,
            };
            let gone = || Error::corrupt(format!("the beginning of branch `{}` is gone", branch.branch));
            return Ok(Head { seq: parent.seq, hash: start.ok_or_else(gone)? });
        };
        let read = ReadFrames::all(session.clone(), branch.branch.clone()).with_base();
        let slots = self.to.store().read_all(&read).await?;
        let frames = slots.into_iter().map(whole).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let place = Place { session, branch: &branch.branch };
        check_base(self.codec, place, base, &frames).map_err(wrong)?;
        Ok(base)
    }
}

fn whole(slot: Slot) -> Result<Frame, Damage> {
    match slot {
        Slot::Whole(frame) => Ok(frame),
        Slot::Damaged(damage) => Err(damage),
    }
}

fn wrong(damage: Damage) -> Error {
    Error::corrupt(format!("the copy did not arrive as it was: {}", damage.detail)).at(damage.position())
}
