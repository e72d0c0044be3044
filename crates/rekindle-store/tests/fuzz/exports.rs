//! Exported files and receipts, which travel between machines.

use std::sync::Arc;

use rekindle_core::codec::Codec;
use rekindle_core::{Hash, ImportOptions, Journal, Receipt};
use rekindle_fuzz::{Fuzz, fuzz, repair};
use rekindle_store::{MemoryStore, StoreOptions};

use super::{block_on, journal, records, sealing, session, signing, write};

fn memory(codec: Codec) -> Journal {
    journal(Arc::new(MemoryStore::new(StoreOptions::new())), codec)
}

/// A session as a file: its records in plain text, and as they are stored.
fn exports(codec: Codec) -> Vec<Vec<u8>> {
    block_on(async {
        let journal = memory(codec);
        write(&journal).await;
        let (mut plain, mut stored) = (Vec::new(), Vec::new());
        journal.export(&session(), &mut plain).await.unwrap();
        journal.export_stored(&session(), &mut stored).await.unwrap();
        vec![plain, stored]
    })
}

/// Puts checksums right, and the last line with the number of frames and the hash of everything before.
fn repaired(bytes: &mut Vec<u8>) {
    repair::lines(bytes);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let Some((last, before)) = lines.split_last() else { return };
    if !last.windows(6).any(|window| window == b"\"end\":") {
        return;
    }
    let frames = before.iter().filter(|line| line.windows(8).any(|window| window == b"\"nonce\":")).count();
    let mut all = before.concat();
    let (end, hash) = (all.len(), Hash::of(&all));
    let body =
        format!("{{\"crc\":\"00000000\",\"len\":\"00000000\",\"end\":true,\"frames\":{frames},\"hash\":\"{hash}\"}}\n");
    let mut line = body.into_bytes();
    repair::lines(&mut line);
    all.truncate(end);
    all.extend(line);
    *bytes = all;
}

/// Fuzzes the import into journals of that codec: of a session with keys, what is imported is what was exported.
fn check(fuzz: Fuzz, codec: fn() -> Codec) {
    let original = block_on(write(&memory(codec())));
    fuzz.seeds(exports(codec())).repair(repaired).costly(4).memory(8 << 20, 256).bytes(|bytes| {
        let _ = Journal::read_export(&mut &*bytes);
        block_on(async {
            let journal = memory(codec());
            // Sealed frames need the data key of the journal that wrote them.
            let imported = journal.import(&mut &*bytes, &ImportOptions::default()).await.is_ok();
            if imported && journal.codec().protects() {
                assert_eq!(records(&journal).await.as_ref(), Some(&original));
            }
            imported || journal.codec().encrypts()
        })
    });
}

#[test]
fn plain() {
    check(fuzz!("export-plain"), Codec::new);
}

#[test]
fn signed() {
    check(fuzz!("export-signed"), signing);
}

#[test]
fn sealed() {
    check(fuzz!("export-sealed"), sealing);
}

#[test]
fn receipts() {
    let journal = memory(signing());
    let receipt = block_on(async {
        write(&journal).await;
        journal.erase(&session(), Some("ada".into())).await.unwrap().0
    });
    fuzz!("receipt-signed").seeds([serde_json::to_vec(&receipt).unwrap()]).bytes(|bytes| {
        let read: Receipt = serde_json::from_slice(bytes).ok()?;
        let accepted = journal.check_receipt(&read).ok()?;
        assert!(!accepted || read == receipt, "{read:?}");
        Some(())
    });
}
