//! Finding a run in the journal: newest first, only what is about runs, and no further than needed.

use std::ops::ControlFlow;

use rekindle_core::codec::{Batch, Place};
use rekindle_core::record::{RunEnded, RunOutcome, RunStarted};
use rekindle_core::{
    BranchId, BranchInfo, Damage, Error, Marks, ReadFrames, Record, Result, RunId, Seq, SessionInfo, Slot,
    StoreExt as _, Timestamp,
};

use crate::engine::Engine;

/// How many runs of one session are looked through at most.
const MOST: usize = 50_000;

/// A run as its first and last record say.
#[derive(Clone, Debug)]
pub(in crate::operations) struct SeenRun {
    pub(in crate::operations) run: RunId,
    pub(in crate::operations) continues: Option<RunId>,
    pub(in crate::operations) branch: BranchId,
    /// When it began.
    pub(in crate::operations) at: Timestamp,
    /// The first record of the next run of its branch.
    pub(in crate::operations) followed_at: Option<Seq>,
    pub(in crate::operations) ended: Option<Ended>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(in crate::operations) struct Ended {
    pub(in crate::operations) record: RunEnded,
    pub(in crate::operations) seq: Seq,
    pub(in crate::operations) at: Timestamp,
}

impl SeenRun {
    /// Whether nothing can go on from it any more: whoever waited for it has been told.
    fn is_over(&self) -> bool {
        let over = |outcome| !matches!(outcome, RunOutcome::Paused | RunOutcome::Waiting);
        self.ended.as_ref().is_some_and(|ended| over(ended.record.outcome))
    }
}

/// A run with the last one that went on from it.
#[derive(Debug)]
pub(in crate::operations) struct Line {
    pub(in crate::operations) started_at: Timestamp,
    pub(in crate::operations) latest: SeenRun,
}

impl Line {
    /// Finds a run on any branch, the current one first.
    pub(in crate::operations) async fn find(engine: &Engine, info: &SessionInfo, run: &RunId) -> Result<Option<Self>> {
        let mut branches: Vec<&BranchInfo> = info.branches.iter().filter(|branch| !branch.branch.is_inbox()).collect();
        branches.sort_by_key(|branch| branch.branch != info.current);
        let (mut seen, mut damage, mut rest) = (Vec::new(), None, branches.into_iter());
        let mut found = None;
        for branch in rest.by_ref() {
            let unread = read(engine, info, &branch.branch, Some(run), &mut seen).await?;
            damage = damage.or(unread);
            found = seen.iter().find(|known| known.run == *run).cloned();
            if found.is_some() {
                break;
            }
        }
        // It may stand in what cannot be read.
        let Some(first) = found else {
            return damage.map_or(Ok(None), |damage| Err(damage.to_error(&info.header.key)));
        };
        let mut latest = follow(&seen, first.clone());
        if !latest.is_over() && latest.followed_at.is_none() {
            for branch in rest {
                read(engine, info, &branch.branch, None, &mut seen).await?;
            }
            latest = follow(&seen, latest);
        }
        Ok(Some(Self { started_at: first.at, latest }))
    }
}

/// The last run that went on from a run, on its own branch if there is one.
fn follow(seen: &[SeenRun], from: SeenRun) -> SeenRun {
    let mut latest = from;
    // Each step leads to another run; more steps than runs would be a circle.
    for _ in 0..seen.len() {
        if latest.is_over() {
            break;
        }
        let goes_on = |known: &&SeenRun| known.continues.as_ref() == Some(&latest.run);
        let own = seen.iter().filter(goes_on).find(|known| known.branch == latest.branch);
        let Some(next) = own.or_else(|| seen.iter().find(goes_on)) else { break };
        latest = next.clone();
    }
    latest
}

/// Reads the runs of a branch, newest first, until one of that id; gives the first damage that was passed over.
async fn read(
    engine: &Engine,
    info: &SessionInfo,
    branch: &BranchId,
    until: Option<&RunId>,
    seen: &mut Vec<SeenRun>,
) -> Result<Option<Damage>> {
    let (journal, session) = (engine.journal(), &info.header.key);
    let place = Place { session, branch };
    let mut reader = Reader { branch, until, seen, ended: None, followed_at: None };
    let read = ReadFrames::all(session.clone(), branch.clone()).with_marks(Marks::RUN).with_newest_first();
    let mut passed_over = None;
    let mut visit = |slots: Vec<Slot>| {
        for slot in slots {
            let decoded = match slot {
                Slot::Whole(frame) => journal.codec().decode(place, &frame),
                Slot::Damaged(damage) => Err(damage),
            };
            // What cannot be read must not hide the rest.
            let batch = match decoded {
                Ok(batch) => batch,
                Err(damage) => {
                    passed_over.get_or_insert(damage);
                    continue;
                }
            };
            if reader.take(&batch)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    };
    journal.store().read_pages(&read, &mut visit).await?;
    Ok(passed_over)
}

struct Reader<'a> {
    branch: &'a BranchId,
    until: Option<&'a RunId>,
    seen: &'a mut Vec<SeenRun>,
    ended: Option<Ended>,
    followed_at: Option<Seq>,
}

impl Reader<'_> {
    fn take(&mut self, batch: &Batch) -> Result<ControlFlow<()>> {
        let records: Vec<_> = batch.numbered().collect();
        for (seq, record) in records.into_iter().rev() {
            match record {
                // A run that was stopped may have been ended for good later: its last word counts.
                Record::RunEnded(ended) if self.ended.is_none() => {
                    self.ended = Some(Ended { record: ended.clone(), seq, at: batch.at });
                }
                Record::RunStarted(started) if self.begin(started, seq, batch.at)? => {
                    return Ok(ControlFlow::Break(()));
                }
                _ => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes note of a run; whether it is the one that was looked for.
    fn begin(&mut self, started: &RunStarted, seq: Seq, at: Timestamp) -> Result<bool> {
        if self.seen.len() >= MOST {
            let error = Error::limit("runs of a session that are looked through", MOST as u64 + 1, MOST as u64);
            return Err(error.hint("look at the session's log instead"));
        }
        let ended = self.ended.take().filter(|ended| ended.record.run == started.run);
        self.seen.push(SeenRun {
            run: started.run.clone(),
            continues: started.continues.clone(),
            branch: self.branch.clone(),
            at,
            followed_at: self.followed_at.replace(seq),
            ended,
        });
        Ok(self.until == Some(&started.run))
    }
}
