//! The file store on the real disk: what stays, who may share it, what its files look like.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rekindle_core::{
    Append, BranchId, ErrorKind, Head, Namespace, NewSession, ReadFrames, Removal, SessionHeader, SessionId,
    SessionKey, SessionQuery, Slot, Store, StoreExt,
};
use rekindle_store::{FileStore, StoreOptions};

use crate::script::{Script, User, frame, header, key};
use crate::simulated_disk::{Fault, SimulatedDisk};

fn open(directory: &Path) -> FileStore {
    FileStore::open(directory, StoreOptions::new()).unwrap()
}

async fn head(store: &FileStore, session: &SessionKey) -> Head {
    store.open(session).await.unwrap().branch(&BranchId::main()).unwrap().head
}

fn next(session: &SessionKey, head: Head, text: &str) -> Append {
    Append::new(session.clone(), BranchId::main(), head, vec![frame(session, &BranchId::main(), head, text)])
}

#[tokio::test]
async fn every_step_survives_reopening() {
    let script = Script::everything().await;
    let directory = tempfile::tempdir().unwrap();
    let mut epoch = None;
    for (index, step) in script.steps.iter().enumerate() {
        let mut user = User::new(FileStore::open(directory.path(), script.options()).unwrap());
        assert_eq!(user.see(&script.session).await, script.seen[index]);
        script.clock.set(index as u64);
        user.epoch = epoch;
        user.take(step).await.unwrap();
        epoch = user.epoch;
    }
    assert!(fs::read_dir(directory.path().join("trash")).unwrap().next().is_none());
}

#[tokio::test]
async fn two_handles_see_each_others_steps() {
    let script = Script::everything().await;
    let directory = tempfile::tempdir().unwrap();
    let handle = || User::new(FileStore::open(directory.path(), script.options()).unwrap());
    let mut users = [handle(), handle()];
    for (index, step) in script.steps.iter().enumerate() {
        script.clock.set(index as u64);
        users[index % 2].take(step).await.unwrap();
        let epoch = users[index % 2].epoch;
        for user in &mut users {
            user.epoch = epoch;
            assert_eq!(user.see(&script.session).await, script.seen[index + 1], "after step {index}");
            let listed = user.store.list_all(&SessionQuery::new(Namespace::default())).await.unwrap();
            let heads = listed.first().map(|info| info.branches.iter().map(|branch| branch.head).collect::<Vec<_>>());
            let expected =
                script.seen[index + 1].as_ref().map(|seen| seen.branches.iter().map(|(info, ..)| info.head).collect());
            assert_eq!(heads, expected, "listed after step {index}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_handles_lose_and_repeat_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let session = key("shared");
    open(directory.path()).create(&NewSession::new(header("shared"))).await.unwrap();
    let mut writers = Vec::new();
    for writer in 0..4 {
        let store = Arc::new(open(directory.path()));
        let session = session.clone();
        writers.push(tokio::spawn(async move {
            let mut done = 0;
            while done < 25 {
                let append = next(&session, head(&store, &session).await, &format!("{writer}-{done}"));
                match store.append(&append).await {
                    Ok(_) => done += 1,
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error:?}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let slots = open(directory.path()).read_all(&ReadFrames::all(session, BranchId::main())).await.unwrap();
    let frames: Vec<_> =
        slots.iter().map(|slot| if let Slot::Whole(frame) = slot { frame } else { panic!("{slot:?}") }).collect();
    assert_eq!(frames.len(), 100);
    assert!(frames.windows(2).all(|pair| pair[0].hash == pair[1].prev));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_may_be_removed_and_made_again_while_others_use_it() {
    let directory = tempfile::tempdir().unwrap();
    let session = key("phoenix");
    let (writer, remover) = (open(directory.path()), open(directory.path()));
    remover.create(&NewSession::new(header("phoenix"))).await.unwrap();
    let background = {
        let session = session.clone();
        tokio::spawn(async move {
            for _ in 0..30 {
                remover.remove(&Removal::Session { session: session.clone() }).await.unwrap();
                remover.create(&NewSession::new(header("phoenix"))).await.unwrap();
            }
        })
    };
    while !background.is_finished() {
        let Ok(info) = writer.open(&session).await else { continue };
        let append = next(&session, info.branch(&BranchId::main()).unwrap().head, "text");
        if let Err(error) = writer.append(&append).await {
            assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict { .. }), "{error:?}");
        }
    }
    background.await.unwrap();
    writer.append(&next(&session, head(&writer, &session).await, "at last")).await.unwrap();
    let info = open(directory.path()).open(&session).await.unwrap();
    assert!(info.damage.is_empty() && info.branch(&BranchId::main()).unwrap().head.seq.0 >= 1);
}

#[tokio::test]
async fn any_legal_id_is_kept_apart_from_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("store");
    let long = "x".repeat(256);
    let almost = format!("{}y", "x".repeat(255));
    let ids = ["../../x", "..", ".", "/etc/passwd", "a/b", "a", "A", "🦀👩‍👩‍👧", "nul", "a%2fb", "lock", &long, &almost];
    for namespace in ["default", "../..", "Default"] {
        for id in ids {
            let store = open(&root);
            let session = SessionKey::new(Namespace::new(namespace).unwrap(), SessionId::new(id).unwrap());
            store.create(&NewSession::new(SessionHeader::new(session.clone()))).await.unwrap();
            let append = next(&session, head(&store, &session).await, id);
            store.append(&append).await.unwrap();
        }
    }
    for namespace in ["default", "../..", "Default"] {
        let listed = open(&root).list_all(&SessionQuery::new(Namespace::new(namespace).unwrap())).await.unwrap();
        assert_eq!(listed.len(), ids.len());
        assert!(listed.iter().all(|info| info.branch(&BranchId::main()).unwrap().head.seq.0 == 1));
    }
    let beside: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "nothing was written outside the store");
}

#[tokio::test]
async fn people_can_read_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.create(&NewSession::new(header("plain"))).await.unwrap();
    let session = key("plain");
    for text in ["hello world", "how are you"] {
        store.append(&next(&session, head(&store, &session).await, text)).await.unwrap();
    }
    let text =
        fs::read_to_string(directory.path().join("sessions/default/plain/branches/main/00000000000000000001.jsonl"))
            .unwrap();
    let values: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values.len(), 2);
    assert!(values[0]["records"].to_string().contains("hello world"));
    assert!(values[1]["store"]["at"].is_number());
    let session = fs::read_to_string(directory.path().join("sessions/default/plain/session.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&session).unwrap()["header"]["key"]["id"], "plain");
}

#[tokio::test]
async fn unusable_directories_give_clear_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "text").unwrap();
    let kind = |path: &Path, options| FileStore::open(path, options).unwrap_err().kind().clone();
    assert_eq!(kind(&file, StoreOptions::new()), ErrorKind::Invalid);
    assert_eq!(kind(&file.join("below"), StoreOptions::new()), ErrorKind::Invalid);
    let nowhere = directory.path().join("nowhere");
    assert_eq!(kind(&nowhere, StoreOptions::new().with_create(false)), ErrorKind::NotFound);
    assert_eq!(kind(&nowhere, StoreOptions::new().with_read_only(true)), ErrorKind::NotFound);
    assert!(!nowhere.exists());
    let made = directory.path().join("a/b/c");
    drop(open(&made));
    fs::write(made.join("rekindle.json"), "{\"format\":\"rekindle file store\",\"layout\":9}").unwrap();
    assert!(matches!(kind(&made, StoreOptions::new()), ErrorKind::VersionTooNew { found: 9, .. }));
    fs::write(made.join("rekindle.json"), "nonsense").unwrap();
    assert_eq!(kind(&made, StoreOptions::new()), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_store_opened_to_read_only_writes_nothing() {
    let script = Script::everything().await;
    let disk = SimulatedDisk::new();
    let open = |options| FileStore::open_on(Arc::new(disk.clone()), "/store", options, 2_000);
    let mut user = User::new(open(script.options()).unwrap());
    for (index, step) in script.steps.iter().take(8).enumerate() {
        script.clock.set(index as u64);
        user.take(step).await.unwrap();
    }
    let operations = disk.operations();
    let reader = User::new(open(script.options().with_read_only(true)).unwrap());
    assert_eq!(reader.see(&script.session).await, script.seen[8]);
    assert_eq!(reader.store.list_all(&SessionQuery::new(Namespace::default())).await.unwrap().len(), 1);
    let error = reader.store.create(&NewSession::new(header("new"))).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Invalid);
    assert_eq!(disk.operations(), operations);
}

#[tokio::test]
async fn a_disk_that_forbids_writing_is_an_error_not_a_panic() {
    let disk = SimulatedDisk::new();
    disk.set_fault(Fault::From(1, std::io::ErrorKind::PermissionDenied));
    let error = FileStore::open_on(Arc::new(disk), "/store", StoreOptions::new(), 2_000).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PersistFailed);
}

#[tokio::test]
async fn the_index_is_never_needed_and_never_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for number in 0..20 {
        store.create(&NewSession::new(header(&format!("s{number}")))).await.unwrap();
    }
    let query = SessionQuery::new(Namespace::default());
    assert_eq!(store.list_all(&query).await.unwrap().len(), 20);
    let index = directory.path().join("sessions/default/index.jsonl");
    assert!(index.exists());
    store.append(&next(&key("s3"), head(&store, &key("s3")).await, "text")).await.unwrap();
    store.remove(&Removal::Session { session: key("s4") }).await.unwrap();
    let stale = fs::read(&index).unwrap();
    for content in [Some(stale.clone()), Some(stale[..stale.len() / 2].to_vec()), Some(b"garbage\n\0\n".to_vec()), None]
    {
        match content {
            Some(content) => fs::write(&index, content).unwrap(),
            None => fs::remove_file(&index).unwrap(),
        }
        let listed = open(directory.path()).list_all(&query).await.unwrap();
        assert_eq!(listed.len(), 19);
        let changed = listed.iter().find(|info| info.header.key == key("s3")).unwrap();
        assert_eq!(changed.branch(&BranchId::main()).unwrap().head, head(&store, &key("s3")).await);
    }
}
