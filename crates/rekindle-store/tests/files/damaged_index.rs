//! `session.json` altered, cut, removed or lost: the session is never left out, and what can be rebuilt is.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rekindle_core::{
    BranchId, DamageKind, ErrorKind, Fork, Hash, NewSession, OwnerId, Position, Removal, Seq, SessionHeader, SessionId,
    SessionInfo, SessionKey, SessionQuery, Store, StoreExt,
};
use rekindle_store::FileStore;

use crate::damage::{Victim, append, genesis, kinds};
use crate::script::{header, key};

fn original(victim: &Victim) -> PathBuf {
    victim.session().join("session.json")
}

fn copy(victim: &Victim) -> PathBuf {
    victim.session().join("session.copy")
}

async fn listed(store: &FileStore) -> Vec<SessionInfo> {
    store.list_all(&SessionQuery::new(Default::default())).await.unwrap()
}

fn fork(name: &str) -> Fork {
    let branch = BranchId::new(name).unwrap();
    let from = Position::new(BranchId::main(), Seq(3));
    let genesis = crate::script::header("s").genesis;
    Fork { session: key("s"), genesis, branch, from, hash: Hash::of(b"fork"), base: None }
}

/// The info as far as it does not tell when it was looked at or that something is damaged.
fn plain(info: &SessionInfo) -> SessionInfo {
    let mut info = SessionInfo { damage: Vec::new(), observed_at: info.created_at, ..info.clone() };
    info.branches.iter_mut().for_each(|branch| branch.epoch = Default::default());
    info
}

/// Every byte altered in turn, and every length the file may be cut to.
fn damages(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let altered = (0..bytes.len()).map(|index| {
        let mut altered = bytes.to_vec();
        altered[index] ^= 1 << (index % 7);
        (format!("byte {index} altered"), altered)
    });
    // Without its newline the line is still whole.
    let cut = (0..bytes.len() - 1).map(|len| (format!("cut to {len} bytes"), bytes[..len].to_vec()));
    altered.chain(cut).collect()
}

#[tokio::test]
async fn no_damaged_byte_and_no_cut_hides_a_session() {
    let victim = Victim::new().await;
    victim.store().fork(&fork("aside")).await.unwrap();
    let whole = plain(&victim.store().open(&key("s")).await.unwrap());
    let bytes = fs::read(original(&victim)).unwrap();
    for (name, damaged) in damages(&bytes) {
        fs::write(original(&victim), &damaged).unwrap();
        let store = victim.store();
        let found = listed(&store).await;
        assert_eq!((found.len(), found.first().map(plain).as_ref()), (1, Some(&whole)), "{name}");
        assert_eq!(kinds(&found[0]), [DamageKind::Index], "{name}");
        let opened = store.open(&key("s")).await.unwrap();
        assert_eq!((plain(&opened), kinds(&opened)), (whole.clone(), vec![DamageKind::Index]), "{name}");
        assert!(!opened.damage[0].affects_records(), "{name}");
    }
    fs::remove_file(original(&victim)).unwrap();
    assert_eq!(kinds(&listed(&victim.store()).await[0]), [DamageKind::Index]);
    for (name, damaged) in damages(&fs::read(copy(&victim)).unwrap()) {
        fs::write(copy(&victim), &damaged).unwrap();
        fs::write(original(&victim), &bytes).unwrap();
        let opened = victim.store().open(&key("s")).await.unwrap();
        assert_eq!((plain(&opened), kinds(&opened)), (whole.clone(), vec![]), "{name}, in the copy");
        fs::write(original(&victim), "garbage").unwrap();
        match victim.store().open(&key("s")).await {
            Ok(opened) => assert_eq!(plain(&opened), whole, "{name}, in both"),
            Err(error) => assert_eq!(*error.kind(), ErrorKind::Corrupt, "{name}, in both: {error:?}"),
        }
    }
}

#[tokio::test]
async fn the_next_change_writes_the_index_anew_and_keeps_the_damaged_one() {
    let victim = Victim::new().await;
    let owner = |name: &str| OwnerId::new(name).unwrap();
    let store = victim.store();
    let before = store.acquire(&key("s"), &BranchId::main(), &owner("a"), Duration::from_secs(9)).await.unwrap();
    store.release(&before).await.unwrap();
    fs::write(original(&victim), "garbage").unwrap();
    let store = victim.store();
    // Owners whose epochs the copy may not know of are fenced out.
    let after = store.acquire(&key("s"), &BranchId::main(), &owner("b"), Duration::from_secs(9)).await.unwrap();
    assert!(after.info.epoch.0 > before.info.epoch.0 + 1_000, "{:?} {:?}", before.info, after.info);
    store.release(&after).await.unwrap();
    assert_eq!(kinds(&victim.store().open(&key("s")).await.unwrap()), []);
    let kept: Vec<_> = fs::read_dir(victim.session().join("quarantine")).unwrap().map(Result::unwrap).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::read(kept[0].path()).unwrap(), b"garbage");
    victim.go_on().await.unwrap();
}

#[tokio::test]
async fn a_session_of_an_earlier_version_gets_its_copy_with_its_first_change() {
    let victim = Victim::new().await;
    fs::remove_file(copy(&victim)).unwrap();
    victim.go_on().await.unwrap();
    fs::write(original(&victim), "").unwrap();
    assert_eq!(genesis(&victim.store().open(&key("s")).await.unwrap()).seq, Seq(7));
}

#[tokio::test]
async fn a_branch_that_an_older_copy_does_not_know_is_reported_for_good() {
    let victim = Victim::new().await;
    let older = fs::read(copy(&victim)).unwrap();
    let store = victim.store();
    let branch = store.fork(&fork("aside")).await.unwrap();
    let frame = crate::script::frame(&key("s"), &branch.branch, branch.head, "text");
    store.append(&rekindle_core::Append::new(key("s"), branch.branch.clone(), branch.head, vec![frame])).await.unwrap();
    append(&store, genesis(&store.open(&key("s")).await.unwrap()), "text").await.unwrap();
    fs::write(original(&victim), "garbage").unwrap();
    fs::write(copy(&victim), older).unwrap();

    let lost = |info: &SessionInfo| info.damage.iter().filter(|damage| damage.branch == branch.branch).count();
    let store = victim.store();
    let info = store.open(&key("s")).await.unwrap();
    assert_eq!((genesis(&info).seq, lost(&info)), (Seq(7), 1), "{:?}", info.damage);
    assert!(info.damage[0].detail.contains("may be older"), "{:?}", info.damage);
    // A change makes `session.json` anew, but not what was lost with it.
    store.fork(&fork("other")).await.unwrap();
    assert_eq!(lost(&victim.store().open(&key("s")).await.unwrap()), 1);
    let error = victim.store().fork(&fork("aside")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(victim.session().join("branches/aside/00000000000000000004.jsonl").exists());
    let removal = Removal::Branch { session: key("s"), branch: branch.branch.clone() };
    victim.store().remove(&removal).await.unwrap();
    let info = victim.store().open(&key("s")).await.unwrap();
    assert_eq!(kinds(&info), []);
}

#[tokio::test]
async fn a_session_that_cannot_be_rebuilt_is_named() {
    let victim = Victim::new().await;
    let long: SessionKey = SessionId::new("x".repeat(200)).unwrap().into();
    victim.store().create(&NewSession::new(SessionHeader::new(long.clone()))).await.unwrap();
    victim.store().create(&NewSession::new(header("empty"))).await.unwrap();
    for session in fs::read_dir(victim.session().parent().unwrap()).unwrap() {
        for name in ["session.json", "session.copy"] {
            fs::write(session.as_ref().unwrap().path().join(name), "garbage").unwrap();
        }
    }
    // Others' directories are none of ours.
    fs::create_dir(victim.session().with_file_name("notes")).unwrap();
    let store = victim.store();
    let found = listed(&store).await;
    assert_eq!(found.len(), 3, "{found:?}");
    for info in found {
        assert_eq!(kinds(&info), [DamageKind::Index]);
        let error = store.open(&info.header.key).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error:?}");
    }
    assert!(!victim.session().with_file_name("notes").join("lock").exists());
}
