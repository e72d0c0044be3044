//! Exports that are small as files and large once they are decompressed.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::codec::Codec;
use rekindle_core::record::{Checkpoint, LogAppend};
use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{
    BranchId, CheckpointId, ErrorKind, ImportOptions, Journal, Json, LogName, OwnerId, SessionHeader, SessionId,
    SessionKey, StoreExt as _, Target,
};
use rekindle_store::{MemoryStore, StoreOptions, SystemClock, system_ids};

fn journal() -> Journal {
    Journal::new(
        Arc::new(MemoryStore::new(StoreOptions::new())),
        Codec::new(),
        Arc::new(SystemClock),
        system_ids().unwrap(),
    )
}

/// A file of some kilobytes that holds 40 batches of a megabyte, or a beginning of 40 megabytes.
async fn bomb(pruned: bool) -> Vec<u8> {
    let journal = journal();
    let session: SessionKey = SessionId::new("bomb").unwrap().into();
    journal.create(SessionHeader::new(session.clone())).await.unwrap();
    let owner = OwnerId::new("owner").unwrap();
    let lease = journal.store().acquire(&session, &BranchId::main(), &owner, Duration::from_secs(60)).await.unwrap();
    let mut head = lease.head;
    let text = Json::from("a".repeat(1 << 20).as_str());
    for _ in 0..40 {
        let record = LogAppend::new(LogName::new("messages").unwrap(), vec![text.clone()]);
        let target = Target::new(session.clone(), BranchId::main(), head).with_fence(lease.info.epoch);
        head = journal.append(&target, &[record.into()]).await.unwrap().head;
    }
    if pruned {
        for id in ["first", "last"] {
            let checkpoint = Checkpoint::new(CheckpointId::new(id).unwrap());
            let target = Target::new(session.clone(), BranchId::main(), head).with_fence(lease.info.epoch);
            head = journal.append(&target, &[checkpoint.into()]).await.unwrap().head;
        }
        journal.store().release(&lease).await.unwrap();
        journal.prune(&session, &Policy::new([Rule::LastN(1)])).await.unwrap();
    }
    let mut file = Vec::new();
    journal.export_stored(&session, &mut file).await.unwrap();
    assert!(file.len() < 64 << 10, "{} bytes", file.len());
    file
}

#[tokio::test]
async fn what_a_file_decompresses_to_is_counted_over_all_of_it() {
    let file = bomb(false).await;
    let import = async |most: Option<u64>| {
        let options = ImportOptions { max_decompressed: most, ..ImportOptions::default() };
        journal().import(&mut file.as_slice(), &options).await
    };
    let refused = import(Some(10 << 20)).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Limit { .. }), "{refused:?}");
    assert!(refused.to_string().contains(&(10_u64 << 20).to_string()), "{refused}");
    assert!(refused.next_step().contains("--max-size"), "{}", refused.next_step());
    assert_eq!(import(None).await.unwrap().frames, 40);
}

/// The beginning of a branch is held in memory as a whole, so it has a smaller limit.
#[tokio::test]
async fn the_beginning_of_a_branch_is_counted_by_itself() {
    let file = bomb(true).await;
    for (most, accepted) in [(100 << 20, false), (300 << 20, true)] {
        let options = ImportOptions { max_decompressed: Some(most), ..ImportOptions::default() };
        match journal().import(&mut file.as_slice(), &options).await {
            Ok(_) => assert!(accepted, "{most}"),
            Err(error) => {
                assert!(!accepted && matches!(error.kind(), ErrorKind::Limit { .. }), "{most}: {error:?}");
                assert!(error.to_string().contains("the beginning of a branch"), "{error}");
            }
        }
    }
}
