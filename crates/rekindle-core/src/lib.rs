//! The heart of Rekindle: what is stored, how it folds to state, and the contract every store
//! keeps. There is no I/O here, no clock, no runtime.
//!
//! * [`record`]: the records a journal consists of.
//! * [`State`]: what a session knows at a position, a pure fold of records; [`StateDiff`] of two.
//! * [`Store`]: the contract backends implement, over opaque frames.
//! * [`queue`]: what workers take their work from.
//! * [`values`]: small values beside the journals.
//! * [`high_water`]: marks of the highest heads, by which a rollback is noticed.
//! * [`Journal`]: typed access to any store, for everybody else.
//! * [`codec`]: from records to frames: limits, redaction, compression, encryption, hash chain.
//! * [`retention`]: what may be pruned, and what is protected and why.
//! * [`Error`]: one error type with stable codes.

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

pub mod codec;
mod error;
pub mod high_water;
mod id;
mod identity;
mod journal;
mod json;
pub mod orphans;
mod position;
pub mod queue;
pub mod record;
pub mod retention;
mod session;
mod state;
mod status;
mod store;
mod time;
pub mod values;

pub use error::{CATALOG, CatalogEntry, Error, ErrorKind, Result, Retry};
pub use id::{
    BranchId, CheckpointId, EffectId, IdSource, LogName, MAX_ID_BYTES, MessageId, Namespace, OwnerId, QueueName,
    RegisterKey, RunId, SessionId, SessionKey, WaitId, file_name,
};
pub use identity::Identity;
pub use journal::{
    CheckpointInfo, CopyOptions, CopyOutcome, CopyProgress, CopyReport, DeletePlan, Diverged, EXPORT_VERSION, Entry,
    Exported, ImportOptions, Journal, KeyOwner, OrphanedKey, OrphanedKeys, PruneResult, Receipt, ReceiptBranch,
    ReceiptKey, ReceiptSignature, Restored, Rewrapped, Target, Transferred, VerifyReport,
};
pub use json::Json;
pub use position::{Epoch, Hash, Head, Position, Seq};
pub use record::{Marks, Record};
pub use session::{
    BranchInfo, Cursor, Damage, DamageKind, LeaseInfo, MAX_PAGE, SessionHeader, SessionInfo, SessionPage, SessionQuery,
};
pub use state::{EffectState, LogDiff, RegisterChange, RegisterDiff, RunInfo, State, StateDiff, WaitState};
pub use status::Status;
pub use store::{
    Append, Appended, Base, Capabilities, Condition, Decided, Defect, Fork, FramePage, Holds, Indexed, Lease,
    LeaseAction, LeaseRequest, MAX_FRAMES, MAX_LEASE, NewSession, PAGE_BYTES, ReadFrames, Removal, Removed, Retries,
    Section, Slot, Store, StoreExt, already_running, fenced,
};
pub use time::{BootTime, Clock, Moment, Timestamp};
