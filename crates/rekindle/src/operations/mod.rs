//! Everything people can do to sessions, in one place: every front end calls this and adds
//! nothing but words. Each operation takes plain typed arguments and gives back something that
//! can be written as JSON, or an error that says what happened and the way out.
//!
//! | to | call |
//! | --- | --- |
//! | find sessions | [`list`], [`show`], [`waits`] |
//! | look back | [`history`], [`history_where`], [`log`], [`milestones`], [`records`], [`inspect`], [`diff`], [`replay`], [`compare`] |
//! | go elsewhere | [`fork`], [`edit`], [`changes_of_patch`], [`checkpoint`], [`pin`], [`tag`] |
//! | run | [`begin`], [`start`], [`resume`] |
//! | have workers run | [`enqueue`], [`go_on`], [`run`], [`cancel_run`], [`dequeue`], [`jobs`], [`job`], [`queues`], [`workers`], [`give_up`] |
//! | tell a run | [`pause`], [`interrupt`], [`cancel`], [`send`], [`answer`], [`signal`] |
//! | mend | [`settle`], [`verify`], [`accept_rollback`] |
//! | tidy up | [`gc`], [`repair`], [`plan_prune`], [`prune`], [`delete_older_than`], [`delete_checkpoints`], [`delete_inactive`], [`clear_session`], [`erase_session`] |
//! | move | [`copy`], [`export`], [`import`] |
//! | put away | [`plan_archive`], [`archive`], [`archives`], [`restore`] |
//! | tend keys | [`rewrap_keys`], [`prune_keys`] |
//! | keep results or state yourself | [`pending`], [`save_state`], [`saved_state`] |
//!
//! What is changed by hand is changed by one atomic append at the end of a branch that nobody
//! runs. A running session is never written to: it is sent a message, a command or an answer.

mod accept;
mod answer;
mod archive;
mod at;
mod begin;
mod change;
mod checkpoint;
mod compare;
mod control;
mod copy;
mod fork;
mod gc;
mod give_up;
mod go_on;
mod history;
mod inbox;
mod inspect;
mod jobs;
mod keys;
mod line;
mod list;
mod milestones;
mod patch;
pub mod pending;
mod plain;
mod replay;
mod resume;
mod retention;
mod run;
mod saved;
mod send;
mod settle;
mod show;
mod stopping;
mod transfer;
mod waits;
mod write;

pub use accept::{AcceptedState, Found, accept_rollback};
pub use answer::{Answer, Answered, answer, signal};
pub use archive::{
    ArchiveEntry, ArchiveOptions, ArchivePlace, ArchivePlan, Archived, Archives, RestoreOptions, Restored, archive,
    archives, plan_archive, restore,
};
pub use at::At;
pub use begin::begin;
pub use change::Change;
pub use checkpoint::{Marked, checkpoint, pin, tag};
pub use compare::{Comparison, Deed, Difference, compare};
pub use control::{ControlOptions, Controlled, cancel, interrupt, pause};
pub use copy::copy;
pub use fork::{Edited, ForkOptions, Forked, edit, fork};
pub use gc::{Garbage, GcOptions, OLD_ENOUGH, Repaired, gc, repair};
pub use give_up::{GivenUp, give_up};
pub use go_on::{GoOn, GoingOn, go_on};
pub use history::{
    BranchLog, HistoryOptions, HistoryPage, RecordPage, RecordsOptions, SessionLog, StoredRecord, history,
    history_where, log, records,
};
pub use inspect::{Diff, DiffSide, Inspected, diff, inspect, view};
pub(crate) use jobs::queue_of;
pub use jobs::{Enqueue, EnqueuedJob, JobInput, JobView, Jobs, dequeue, enqueue, job, jobs, queues, workers};
pub use keys::{PrunedKeys, RewrappedKeys, prune_keys, rewrap_keys};
pub use list::list;
pub use milestones::{Milestones, milestones, milestones_known};
pub use patch::changes_of_patch;
pub use replay::{By, ReplayStep, Replayed, StepEnd, replay};
pub use resume::{resume, start};
pub use retention::{
    Cleared, Deleted, Freed, Pruned, Unmarked, clear_session, delete_checkpoints, delete_inactive, delete_inactive_of,
    delete_older_than, erase_session, plan_prune, prune,
};
pub use run::{RunPhase, RunProgress, cancel_run, run};
pub use saved::{Saved, SavedState, save_state, saved_state};
pub use send::{Sent, send};
pub use settle::{Settled, Settlement, settle};
pub use show::{EffectView, Owner, Related, Resumable, RunView, Shown, Spending, WaitView, show};
pub use transfer::{Moved, Verified, check, export, import, unlisted, verify};
pub use waits::{OpenWait, OpenWaits, waits, waits_of};
