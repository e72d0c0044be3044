//! Reading frames: which, in which order, and how a page answers.

use bytes::Bytes;

use crate::codec::Frame;
use crate::error::{Error, Result};
use crate::id::{BranchId, SessionKey};
use crate::position::Seq;
use crate::record::Marks;
use crate::session::{Damage, DamageKind};

/// The most frames one page of [`Store::read`](super::Store::read) may hold.
pub const MAX_FRAMES: usize = 1_000;

/// A page of frames ends once it holds this many bytes.
pub const PAGE_BYTES: usize = 4 << 20;

/// Which part of a branch to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Section {
    /// The frames themselves.
    #[default]
    History,
    /// The parts of its base, numbered from 1.
    Base,
}

/// A page of frames to read from one branch's own history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFrames {
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// Which part.
    pub section: Section,
    /// Frames that end here or later.
    pub from: Seq,
    /// Frames that begin here or earlier.
    pub through: Seq,
    /// Only frames with one of these marks; none means all.
    pub marks: Marks,
    /// Newest first.
    pub newest_first: bool,
    /// How many at most, up to [`MAX_FRAMES`].
    pub limit: usize,
}

impl ReadFrames {
    /// All frames of `branch`, oldest first.
    pub fn all(session: SessionKey, branch: BranchId) -> Self {
        Self {
            session,
            branch,
            section: Section::History,
            from: Seq(1),
            through: Seq::MAX,
            marks: Marks::NONE,
            newest_first: false,
            limit: MAX_FRAMES,
        }
    }

    /// Only frames that touch the records `from` to `through`.
    #[must_use]
    pub fn with_range(mut self, from: Seq, through: Seq) -> Self {
        (self.from, self.through) = (from, through);
        self
    }

    /// The parts of the base instead.
    #[must_use]
    pub fn with_base(mut self) -> Self {
        self.section = Section::Base;
        self
    }

    /// Only frames with one of `marks`.
    #[must_use]
    pub fn with_marks(mut self, marks: Marks) -> Self {
        self.marks = marks;
        self
    }

    /// Newest first.
    #[must_use]
    pub fn with_newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// At most `limit` frames.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// An error if the page is larger than allowed.
    pub fn check(&self) -> Result<()> {
        if self.limit == 0 || self.limit > MAX_FRAMES {
            return Err(Error::limit("frames per page", self.limit as u64, MAX_FRAMES as u64)
                .during("read")
                .on(&self.session));
        }
        Ok(())
    }

    /// Whether a frame of records `first` to `last` with `marks` is asked for.
    pub fn wants(&self, first: Seq, last: Seq, marks: Marks) -> bool {
        last >= self.from && first <= self.through && (self.marks == Marks::NONE || self.marks.intersects(marks))
    }

    /// The request for the page after one that ended with a slot of records `first` to `last`.
    pub(super) fn after(&self, first: Seq, last: Seq) -> Self {
        let mut next = self.clone();
        match self.newest_first {
            true => next.through = first.previous(),
            false => next.from = last.next(),
        }
        next
    }
}

/// One place of a branch: a frame, or what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    /// A frame whose checksum is right.
    Whole(Frame),
    /// Bytes that are not a frame any more.
    Damaged(Damage),
}

/// The entry of a frame in the index of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// Its first record.
    pub first: Seq,
    /// Its last record.
    pub last: Seq,
    /// Its marks, if they were looked up; as the index holds them, whether or not they can be marks.
    pub marks: Option<i64>,
}

impl Slot {
    /// The frame in `bytes`, compared with what the index says of it. A difference is damage: what is
    /// found by such an index, or not found, is not what was written.
    pub fn indexed(branch: &BranchId, index: Indexed, bytes: Bytes) -> Self {
        let Indexed { first, last, marks } = index;
        let misfit = |detail| Self::Damaged(Damage::new(DamageKind::Index, branch.clone(), first, last, detail));
        match Frame::from_bytes(bytes) {
            Ok(frame) if (frame.first, frame.last) != (first, last) => misfit(format!(
                "the index does not fit the frame, which holds records {} to {}",
                frame.first, frame.last
            )),
            Ok(frame) if marks.is_some_and(|marks| marks != i64::from(frame.marks.0)) => {
                misfit(format!("the index does not fit the frame, whose marks are {}", frame.marks.0))
            }
            Ok(frame) => Self::Whole(frame),
            Err(error) => Self::Damaged(Damage::of_frame(error, branch.clone(), first, last)),
        }
    }

    /// The records it holds or held.
    pub fn span(&self) -> (Seq, Seq) {
        match self {
            Self::Whole(frame) => (frame.first, frame.last),
            Self::Damaged(damage) => (damage.first, damage.last),
        }
    }
}

/// A page of frames.
#[derive(Clone, Debug, PartialEq)]
pub struct FramePage {
    /// The frames, in the order asked for.
    pub slots: Vec<Slot>,
    /// Whether there are more.
    pub more: bool,
}
