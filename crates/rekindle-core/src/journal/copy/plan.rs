//! How a session at the target of a copy stands to the one at the source: not there, its beginning,
//! the same, or something else.

use super::CopyOutcome;
use crate::error::{Error, ErrorKind, Result};
use crate::journal::Journal;
use crate::position::{Head, Seq};
use crate::session::{BranchInfo, SessionInfo};
use crate::store::{ReadFrames, Slot};

/// How what is there stands to what is to be copied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// What a copy comes to.
    pub outcome: CopyOutcome,
    /// Records that are not there.
    pub records: u64,
}

pub(super) fn is_missing(error: &Error) -> bool {
    *error.kind() == ErrorKind::NotFound
}

/// Compares both; `AlreadyExists` if what is there is neither the same nor the beginning of it.
pub(super) async fn standing(from: &Journal, source: &SessionInfo, target: Option<&SessionInfo>) -> Result<Standing> {
    let Some(target) = target else {
        let records = source.branches.iter().map(own_records).sum();
        return Ok(Standing { outcome: CopyOutcome::Copied, records });
    };
    if target.header.genesis != source.header.genesis {
        return Err(differs("another session of that id is there already".to_owned()));
    }
    if let Some(extra) = target.branches.iter().find(|branch| source.branch(&branch.branch).is_err()) {
        return Err(differs(format!("the session there has a branch {} that this one has not", extra.branch)));
    }
    let (mut records, mut same) = (0, target.current == source.current);
    for branch in &source.branches {
        let Some(there) = target.branches.iter().find(|there| there.branch == branch.branch) else {
            records += own_records(branch);
            same = false;
            continue;
        };
        continues(from, source, branch, there).await?;
        records += branch.head.seq.0 - there.head.seq.0;
        same &= branch.head == there.head;
    }
    let outcome = if same { CopyOutcome::There } else { CopyOutcome::Updated };
    Ok(Standing { outcome, records })
}

fn own_records(branch: &BranchInfo) -> u64 {
    branch.head.seq.0.saturating_sub(branch.first_own().previous().0)
}

/// An error unless `branch` goes on from where `there` ends.
async fn continues(from: &Journal, source: &SessionInfo, branch: &BranchInfo, there: &BranchInfo) -> Result<()> {
    let (name, ends) = (&branch.branch, there.head.seq);
    if there.parent != branch.parent {
        return Err(differs(format!("branch {name} was forked elsewhere in the session that is there already")));
    }
    if there.head == branch.head {
        return Ok(());
    }
    let lengths = format!("its branch {name} ends at record {ends}, the one to copy at {}", branch.head.seq);
    if ends > branch.head.seq {
        return Err(differs(format!("a longer history is there already: {lengths}")));
    }
    if ends == branch.head.seq {
        return Err(differs(format!("another history is there already: {lengths}")));
    }
    if branch.base.is_some_and(|base| ends < base.seq) {
        return Err(differs(format!("the copy that is there ends before what was pruned here: {lengths}")));
    }
    match ends_a_frame(from, source, branch, there.head).await? {
        true => Ok(()),
        false => Err(differs(format!("another history is there already: {lengths}"))),
    }
}

/// Whether `head` is where the branch was once. A chain hash covers everything before it.
async fn ends_a_frame(from: &Journal, source: &SessionInfo, branch: &BranchInfo, head: Head) -> Result<bool> {
    if branch.base == Some(head) {
        return Ok(true);
    }
    if head.seq == branch.first_own().previous() {
        let start = match &branch.parent {
            Some(_) => from.stored_start(source, branch).await?,
            None => Some(source.header.genesis),
        };
        return Ok(start == Some(head.hash));
    }
    let read = ReadFrames::all(source.header.key.clone(), branch.branch.clone())
        .with_range(head.seq, head.seq.max(Seq(1)))
        .with_limit(1);
    let page = from.store().read(&read).await?;
    let ends = |frame: &crate::codec::Frame| frame.last == head.seq && frame.hash == head.hash;
    match page.slots.into_iter().next() {
        Some(Slot::Whole(frame)) => Ok(ends(&frame)),
        Some(Slot::Damaged(damage)) => Err(damage.to_error(&source.header.key)),
        None => Ok(false),
    }
}

fn differs(message: String) -> Error {
    Error::new(ErrorKind::AlreadyExists, message)
}
