//! Data keys of encrypted sessions: where they are looked up, and what a crash leaves of them.

mod listed;
mod raced;
mod stopped;
mod unreadable;

use std::sync::Arc;

use rekindle_core::codec::{Codec, KeyRing};
use rekindle_core::{BranchId, Journal, Result, SessionHeader, SessionId, SessionKey, Store, Target};
use rekindle_store::{SystemClock, system_ids};
use rekindle_testkit::message;

fn key(id: &str) -> SessionKey {
    SessionId::new(id).unwrap().into()
}

/// A journal that encrypts with the key `first`.
fn encrypting(store: Arc<dyn Store>) -> Journal {
    encrypting_with(store, KeyRing::new("first", [1; 32]).unwrap())
}

fn encrypting_with(store: Arc<dyn Store>, ring: KeyRing) -> Journal {
    Journal::new(store, Codec::new().with_encryption(ring), Arc::new(SystemClock), system_ids().unwrap())
}

/// A session with a title and a record.
async fn written(journal: &Journal, id: &str) -> Result<()> {
    let header = SessionHeader { title: Some(format!("title of {id}")), ..SessionHeader::new(key(id)) };
    let head = journal.create(header).await?.branch(&BranchId::main())?.head;
    journal.append(&Target::new(key(id), BranchId::main(), head), &[message("secret")]).await.map(drop)
}
