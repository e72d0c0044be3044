//! The SQLite store as its callers see it: durability, other processes, damage, odd files. What
//! holds for every store is checked by the conformance suite.
#![cfg(feature = "sqlite")]
// A test that meets an error it does not expect ends there.
#![allow(clippy::unwrap_used)]

mod branches;
mod checked;
mod damage;
mod index;
mod leases;
mod list;
mod opening;
mod reads;
mod replaced;
mod site;
mod writes;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rekindle_core::codec::{Codec, Frame, Place, Stamp};
use rekindle_core::record::{RegisterSet, SessionDescribed};
use rekindle_core::values::{Change, Changed, ValueKey, ValueKind};
use rekindle_core::{
    Append, Base, BranchId, Clock, DamageKind, Epoch, Error, ErrorKind, Fork, Hash, Head, Json, LeaseAction,
    LeaseRequest, Marks, Namespace, NewSession, OwnerId, Position, ReadFrames, RegisterKey, Removal, Removed, Seq,
    SessionHeader, SessionId, SessionKey, SessionPage, SessionQuery, Slot, Status, Store, StoreExt, Timestamp,
};
use rekindle_store::{SqliteStore, StoreOptions};
use rusqlite::Connection;
use tempfile::TempDir;

use self::site::*;
