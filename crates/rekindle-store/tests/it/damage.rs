//! Damaged bytes in every store that has bytes: each kind of damage gives its own error with
//! session and position, `verify` lists it exactly, and the rest stays readable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rekindle_core::codec::{Codec, KeyRing, Place, Stamp, object_to_line};
use rekindle_core::record::{CheckpointMarked, CheckpointRemoved};
use rekindle_core::retention::Policy;
use rekindle_core::{
    BranchId, CheckpointId, DamageKind, Entry, ErrorKind, Head, IdSource, Journal, Position, Seq, SessionHeader,
    SessionId, SessionKey, Store, Target,
};
use rekindle_store::{FileStore, MeteredStore, Observation, SqliteStore, StoreObserver, StoreOptions, SystemClock};
use rekindle_testkit::{History, checkpoint, message};
use serde_json::Value;
use tempfile::TempDir;

/// A store on disk whose bytes can be reached from outside.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Files,
    Sqlite,
}

struct Victim {
    kind: Kind,
    directory: TempDir,
}

fn session() -> SessionKey {
    SessionId::new("victim").unwrap().into()
}

impl Victim {
    /// Ten batches: a message and a checkpoint each.
    async fn new(kind: Kind, codec: Codec) -> (Self, History) {
        let victim = Self { kind, directory: tempfile::tempdir().unwrap() };
        let journal = victim.journal(codec);
        journal.create(SessionHeader::new(session())).await.unwrap();
        let mut history = History::begin(&journal, &session()).await;
        for n in 1..=10 {
            history.append(vec![message(&format!("message {n}")), checkpoint(&format!("c{n}"))]).await.unwrap();
        }
        (victim, history)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn store(&self) -> Arc<dyn Store> {
        match self.kind {
            Kind::Files => Arc::new(FileStore::open(self.path(), StoreOptions::new()).unwrap()),
            Kind::Sqlite => Arc::new(SqliteStore::open(self.path(), StoreOptions::new()).unwrap()),
        }
    }

    fn journal(&self, codec: Codec) -> Journal {
        Journal::new(self.store(), codec, Arc::new(SystemClock), IdSource::seeded([1; 32]))
    }

    /// The stored bytes of every frame of `main`, in order; without the newline for files.
    fn frames(&self) -> Vec<Vec<u8>> {
        match self.kind {
            Kind::Files => {
                let bytes = std::fs::read(self.segment()).unwrap();
                bytes.split_inclusive(|byte| *byte == b'\n').map(|line| line[..line.len() - 1].to_vec()).collect()
            }
            Kind::Sqlite => {
                let connection = rusqlite::Connection::open(self.path()).unwrap();
                let mut statement = connection.prepare("SELECT body FROM frames ORDER BY last").unwrap();
                statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            }
        }
    }

    /// Puts other bytes in place of frames; an empty one is removed.
    fn replace(&self, frames: &[Vec<u8>]) {
        match self.kind {
            Kind::Files => {
                let lines = frames.iter().filter(|frame| !frame.is_empty());
                let bytes: Vec<u8> = lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
                std::fs::write(self.segment(), bytes).unwrap();
            }
            Kind::Sqlite => {
                let connection = rusqlite::Connection::open(self.path()).unwrap();
                for (index, frame) in frames.iter().enumerate() {
                    let last = 2 * (index as i64 + 1);
                    let changed = match frame.is_empty() {
                        true => connection.execute("DELETE FROM frames WHERE last = ?1", [last]),
                        false => connection.execute("UPDATE frames SET body = ?1 WHERE last = ?2", (frame, last)),
                    };
                    assert_eq!(changed.unwrap(), 1);
                }
            }
        }
    }

    fn segment(&self) -> PathBuf {
        fn find(path: &Path) -> Option<PathBuf> {
            let mut entries: Vec<_> = std::fs::read_dir(path).ok()?.map(|entry| entry.unwrap().path()).collect();
            entries.sort();
            entries.into_iter().find_map(|path| match path.is_dir() {
                true => find(&path),
                false => path.to_string_lossy().contains("branches/main/").then_some(path),
            })
        }
        find(&self.path()).unwrap()
    }
}

/// Damages batch 6 (records 11 and 12) and checks what everybody sees. `damaged` are the
/// batches that cannot be read any more.
async fn check(kind: Kind, name: &str, damage: impl Fn(&Victim, &mut Vec<Vec<u8>>), expected: &[(DamageKind, u64)]) {
    let (victim, history) = Victim::new(kind, Codec::new()).await;
    let mut frames = victim.frames();
    assert_eq!(frames.len(), 10);
    damage(&victim, &mut frames);
    victim.replace(&frames);
    let journal = victim.journal(Codec::new());
    let context = format!("{kind:?}, {name}");

    let error = journal.load(&session(), None).await.unwrap_err();
    let right_kind = match expected[0].0 {
        DamageKind::Version => matches!(error.kind(), ErrorKind::VersionTooNew { found: 9, supported: 2, .. }),
        _ => *error.kind() == ErrorKind::Corrupt,
    };
    assert!(right_kind, "{context}: {error:?}");
    assert_eq!(error.session(), Some(&session()), "{context}");
    assert_eq!(error.position().map(|position| position.seq), Some(Seq(expected[0].1)), "{context}: {error:?}");

    let report = journal.verify(&session(), &Default::default()).await.unwrap();
    let found: Vec<_> = report.damage.iter().map(|damage| (damage.kind, damage.first.0)).collect();
    assert_eq!(found, expected, "{context}");

    let before = Position::new(BranchId::main(), Seq(10));
    assert_eq!(journal.load(&session(), Some(&before)).await.unwrap().state, history.state_after(10), "{context}");
    let entries = journal.read(&session(), &BranchId::main(), Seq(1), 100).await.unwrap();
    let readable = entries.iter().filter(|entry| matches!(entry, Entry::Batch(_))).count();
    assert!(readable >= 8, "{context}: {readable} of 10 readable");
    if *error.kind() == ErrorKind::Corrupt {
        assert!(error.next_step().contains("c5 at main:10"), "{context}: {}", error.next_step());
        let (restored, because) = journal.load_or_fall_back(&session(), None).await.unwrap();
        assert_eq!(restored.position, before, "{context}");
        assert_eq!(because.unwrap().kind(), error.kind(), "{context}");
    }
}

/// A frame that a program without keys could have written in place of batch 6.
fn forged(victim: &Victim) -> Vec<u8> {
    let session = session();
    let place = Place { session: &session, branch: &BranchId::main() };
    let fifth = match victim.kind {
        Kind::Files => rekindle_core::codec::Frame::from_line::<Value>(&victim.frames()[4]).unwrap().0,
        Kind::Sqlite => rekindle_core::codec::Frame::from_bytes(victim.frames()[4].clone().into()).unwrap(),
    };
    let stamp = Stamp { after: Head { seq: fifth.last, hash: fifth.hash }, at: fifth.at, nonce: [0; 16] };
    let frame = Codec::new().encode(place, stamp, &[message("forged"), checkpoint("c6")]).unwrap();
    match victim.kind {
        Kind::Files => frame.to_line(Some(Value::Null)).map(|line| line[..line.len() - 1].to_vec()).unwrap(),
        Kind::Sqlite => frame.to_bytes().to_vec(),
    }
}

fn newer(kind: Kind, frame: &[u8]) -> Vec<u8> {
    match kind {
        Kind::Files => {
            let mut line: serde_json::Map<String, Value> = serde_json::from_slice(frame).unwrap();
            line.remove("crc");
            line.remove("len");
            line.insert("v".into(), 9.into());
            let line = object_to_line(&line).unwrap();
            line[..line.len() - 1].to_vec()
        }
        Kind::Sqlite => {
            let mut frame = frame.to_vec();
            frame[3] = 9;
            frame
        }
    }
}

#[tokio::test]
async fn every_kind_of_damage_is_named_and_contained() {
    use DamageKind::*;
    for kind in [Kind::Files, Kind::Sqlite] {
        check(
            kind,
            "bit flipped",
            |_, frames| {
                let middle = frames[5].len() * 3 / 4;
                frames[5][middle] ^= 0x10;
            },
            &[(Checksum, 11)],
        )
        .await;
        check(
            kind,
            "truncated",
            |_, frames| {
                let length = frames[5].len();
                frames[5].truncate(length - 7);
            },
            &[(
                match kind {
                    Kind::Files => Format,
                    Kind::Sqlite => Checksum,
                },
                11,
            )],
        )
        .await;
        check(kind, "zero-filled", |_, frames| frames[5].fill(0), &[(Format, 11)]).await;
        check(kind, "newer version", |victim, frames| frames[5] = newer(victim.kind, &frames[5]), &[(Version, 11)])
            .await;
        check(kind, "removed", |_, frames| frames[5].clear(), &[(Missing, 11)]).await;
    }
}

#[tokio::test]
async fn forged_frames_break_the_chain() {
    for kind in [Kind::Files, Kind::Sqlite] {
        let forge = |victim: &Victim, frames: &mut Vec<Vec<u8>>| frames[5] = forged(victim);
        // The forgery itself continues what is before it; what is behind it does not continue it.
        let (victim, _) = Victim::new(kind, Codec::new()).await;
        let mut frames = victim.frames();
        forge(&victim, &mut frames);
        victim.replace(&frames);
        let journal = victim.journal(Codec::new());
        let error = journal.load(&session(), None).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{kind:?}");
        assert_eq!(error.position().unwrap().seq, Seq(13), "{kind:?}: {error:?}");
        let report = journal.verify(&session(), &Default::default()).await.unwrap();
        let found: Vec<_> = report.damage.iter().map(|damage| (damage.kind, damage.first.0)).collect();
        assert_eq!(found, [(DamageKind::Chain, 13)], "{kind:?}");
    }
}

#[tokio::test]
async fn swapped_and_replayed_frames_are_noticed() {
    for kind in [Kind::Files, Kind::Sqlite] {
        for (name, change) in [
            ("swapped", (|frames: &mut Vec<Vec<u8>>| frames.swap(5, 7)) as fn(&mut Vec<Vec<u8>>)),
            ("replayed", |frames| frames[7] = frames[5].clone()),
        ] {
            let (victim, history) = Victim::new(kind, Codec::new()).await;
            let mut frames = victim.frames();
            change(&mut frames);
            victim.replace(&frames);
            let journal = victim.journal(Codec::new());
            // Lines of a file that merely stand in the wrong order can still be read in the right one.
            match journal.load(&session(), None).await {
                Ok(restored) => {
                    assert!(matches!(kind, Kind::Files) && name == "swapped");
                    assert_eq!(restored.state, history.state_after(usize::MAX));
                }
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Corrupt, "{kind:?} {name}: {error:?}"),
            }
            let report = journal.verify(&session(), &Default::default()).await.unwrap();
            assert!(!report.is_sound(), "{kind:?} {name}");
            let before = Position::new(BranchId::main(), Seq(10));
            assert_eq!(journal.load(&session(), Some(&before)).await.unwrap().state, history.state_after(10));
        }
    }
}

#[tokio::test]
async fn a_signed_chain_notices_a_forged_end() {
    // Without a key a forged last frame of a file is as good as a real one; with a key it is not.
    for kind in [Kind::Files, Kind::Sqlite] {
        let codec = || Codec::new().with_signing(KeyRing::new("k", [5; 32]).unwrap());
        let (victim, _) = Victim::new(kind, codec()).await;
        let mut frames = victim.frames();
        frames.truncate(6);
        let mut cut = victim.frames();
        cut[5] = forged(&victim);
        victim.replace(&cut);
        let journal = victim.journal(codec());
        let error = journal.load(&session(), None).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{kind:?}: {error:?}");
        assert_eq!(error.position().unwrap().seq, Seq(11), "{kind:?}: {error:?}");
        let report = journal.verify(&session(), &Default::default()).await.unwrap();
        assert!(
            report.damage.iter().any(|damage| damage.kind == DamageKind::Unprotected && damage.first == Seq(11)),
            "{report:?}"
        );
    }
}

#[tokio::test]
async fn wrong_and_missing_keys_are_told_apart() {
    let ring = |id: &str, byte| KeyRing::new(id, [byte; 32]).unwrap();
    for kind in [Kind::Files, Kind::Sqlite] {
        let (victim, history) = Victim::new(kind, Codec::new().with_encryption(ring("first", 1))).await;
        for stored in victim.frames() {
            assert!(!String::from_utf8_lossy(&stored).contains("message"), "{kind:?}");
        }
        for (codec, key, told) in [
            (Codec::new(), "d1", "no encryption key was given"),
            (Codec::new().with_encryption(ring("other", 1)), "first", "the key `first`, which was not given"),
            (Codec::new().with_encryption(ring("first", 2)), "d1", "does not open under the key `first`"),
        ] {
            let missing = victim.journal(codec).load(&session(), None).await.unwrap_err();
            assert_eq!(*missing.kind(), ErrorKind::KeyMissing { key: key.into() }, "{kind:?}: {missing:?}");
            assert!(missing.message().contains(told), "{kind:?}: {missing:?}");
        }
        let rotated = KeyRing::new("second", [2; 32]).unwrap().with_old("first", [1; 32]).unwrap();
        let journal = victim.journal(Codec::new().with_encryption(rotated));
        let mut history = History { journal: journal.clone(), ..history };
        journal.open(&session()).await.unwrap();
        history.append(vec![message("after the rotation")]).await.unwrap();
        assert_eq!(journal.load(&session(), None).await.unwrap().state, history.state_after(usize::MAX), "{kind:?}");
        assert!(journal.verify(&session(), &Default::default()).await.unwrap().is_sound(), "{kind:?}");
    }
}

#[tokio::test]
async fn damaged_history_is_not_exported() {
    for kind in [Kind::Files, Kind::Sqlite] {
        let (victim, _) = Victim::new(kind, Codec::new()).await;
        let mut frames = victim.frames();
        frames[5] = forged(&victim);
        victim.replace(&frames);
        let mut file = Vec::new();
        let error = victim.journal(Codec::new()).export(&session(), &mut file).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{kind:?}: {error:?}");
    }
}

#[tokio::test]
async fn nothing_is_pruned_while_a_pin_cannot_be_read() {
    let first = || KeyRing::new("first", [1; 32]).unwrap();
    for kind in [Kind::Files, Kind::Sqlite] {
        let (victim, _) = Victim::new(kind, Codec::new().with_signing(first())).await;
        let both = KeyRing::new("second", [2; 32]).unwrap().with_old("first", [1; 32]).unwrap();
        let pin = CheckpointMarked::pinned(CheckpointId::new("c3").unwrap(), true);
        victim.journal(Codec::new().with_signing(both)).send(&session(), &[pin.into()]).await.unwrap();
        let journal = victim.journal(Codec::new().with_signing(first()));
        let error = journal.prune(&session(), &Policy::default()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::KeyMissing { key: "second".into() }, "{kind:?}: {error:?}");
        assert_eq!(journal.checkpoints(&session(), None, None, 100).await.unwrap().len(), 10, "{kind:?}");
    }
}

#[derive(Debug, Default)]
struct FramesRead(AtomicU64);

impl StoreObserver for FramesRead {
    fn observed(&self, observation: Observation) {
        if observation.operation == "read" {
            self.0.fetch_add(observation.frames, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn falling_back_costs_two_folds_however_many_checkpoints_are_behind_the_damage() {
    const BATCHES: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = || SqliteStore::open(&path, StoreOptions::new()).unwrap();
    let journal =
        |store: Arc<dyn Store>| Journal::new(store, Codec::new(), Arc::new(SystemClock), IdSource::seeded([1; 32]));
    let writer = journal(Arc::new(store()));
    writer.create(SessionHeader::new(session())).await.unwrap();
    let mut history = History::begin(&writer, &session()).await;
    for n in 1..=BATCHES {
        history.append(vec![message(&format!("message {n}")), checkpoint(&format!("c{n}"))]).await.unwrap();
    }
    let end = Position::new(BranchId::main(), Seq(2 * BATCHES));
    let branch = BranchId::new("other").unwrap();
    let forked = writer.fork(&session(), &end, branch.clone()).await.unwrap();
    let mut target = Target::new(session(), branch.clone(), forked.head);
    for n in 1..=BATCHES {
        target.expected = writer.append(&target, &[checkpoint(&format!("d{n}"))]).await.unwrap().head;
    }
    let damaged = 2 * (BATCHES - 5);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let changed = connection.execute("UPDATE frames SET body = zeroblob(10) WHERE last = ?1", [damaged as i64]);
    assert_eq!(changed.unwrap(), 1);

    let read = Arc::new(FramesRead::default());
    let reader = journal(Arc::new(MeteredStore::new(store(), read.clone())));
    let wanted = Position::new(branch, target.expected.seq);
    let (restored, error) = reader.load_or_fall_back(&session(), Some(&wanted)).await.unwrap();
    assert_eq!(restored.position, Position::new(BranchId::main(), Seq(damaged - 2)));
    assert_eq!(*error.unwrap().kind(), ErrorKind::Corrupt);
    let (read, most) = (read.0.load(Ordering::SeqCst), 2 * BATCHES + 200);
    assert!(read <= most, "{read} frames were read, not at most {most}");
}

#[tokio::test]
async fn falling_back_passes_over_checkpoints_that_were_removed() {
    let (victim, history) = Victim::new(Kind::Sqlite, Codec::new()).await;
    let mut frames = victim.frames();
    frames[5].fill(0);
    victim.replace(&frames);
    let journal = victim.journal(Codec::new());
    let checkpoints = vec![CheckpointId::new("c5").unwrap()];
    let gone = CheckpointRemoved { checkpoints, reason: "not needed".into(), extra: Default::default() };
    journal.send(&session(), &[gone.into()]).await.unwrap();
    let (restored, _) = journal.load_or_fall_back(&session(), None).await.unwrap();
    assert_eq!(restored.position.seq, Seq(8));
    assert_eq!(restored.state, history.state_after(8));
}
