//! Segments that somebody or something altered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle_core::values::{Change, Changed, ValueKey, ValueKind, ValueQuery};
use rekindle_core::{
    Append, BranchId, DamageKind, ErrorKind, Head, LeaseAction, LeaseRequest, Namespace, NewSession, OwnerId,
    ReadFrames, Seq, SessionInfo, Slot, Store, StoreExt,
};
use rekindle_store::files::disk::Disk as _;
use rekindle_store::{FileStore, StoreOptions};
use tempfile::TempDir;

use crate::script::{frame, head_of, header, key};
use crate::simulated_disk::SimulatedDisk;

const COUNT: u64 = 6;

/// A session of six records in a store on the real disk.
pub struct Victim {
    directory: TempDir,
}

impl Victim {
    pub async fn new() -> Self {
        let victim = Self { directory: tempfile::tempdir().unwrap() };
        let store = victim.store();
        let mut head = genesis(&store.create(&NewSession::new(header("s"))).await.unwrap());
        for number in 1..=COUNT {
            head = append(&store, head, &format!("record number {number}")).await.unwrap();
        }
        victim
    }

    pub fn store(&self) -> FileStore {
        FileStore::open(self.directory.path(), StoreOptions::new()).unwrap()
    }

    pub fn session(&self) -> PathBuf {
        self.directory.path().join("sessions/default/s")
    }

    pub fn segment(&self) -> PathBuf {
        self.session().join("branches/main/00000000000000000001.jsonl")
    }

    pub fn lines(&self) -> Vec<Vec<u8>> {
        fs::read(self.segment()).unwrap().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    pub fn write(&self, lines: &[Vec<u8>]) {
        fs::write(self.segment(), lines.concat()).unwrap();
    }

    /// What can be read, one way and the other, and what the session says.
    pub async fn look(&self) -> (Vec<Slot>, SessionInfo) {
        let store = self.store();
        let read = ReadFrames::all(key("s"), BranchId::main());
        let slots = store.read_all(&read).await.unwrap();
        let mut reversed = store.read_all(&read.clone().with_newest_first().with_limit(1)).await.unwrap();
        reversed.reverse();
        assert_eq!(reversed, slots);
        assert_eq!(store.read_all(&read.with_limit(2)).await.unwrap(), slots);
        (slots, store.open(&key("s")).await.unwrap())
    }

    /// Appends behind whatever the head is now.
    pub async fn go_on(&self) -> rekindle_core::Result<Head> {
        let store = self.store();
        let info = store.open(&key("s")).await.unwrap();
        append(&store, genesis(&info), "later").await
    }
}

pub fn genesis(info: &SessionInfo) -> Head {
    info.branch(&BranchId::main()).unwrap().head
}

pub async fn append(store: &FileStore, head: Head, text: &str) -> rekindle_core::Result<Head> {
    let frame = frame(&key("s"), &BranchId::main(), head, text);
    let next = head_of(&frame);
    store.append(&Append::new(key("s"), BranchId::main(), head, vec![frame])).await?;
    Ok(next)
}

pub fn whole(slots: &[Slot]) -> Vec<u64> {
    slots.iter().filter(|slot| matches!(slot, Slot::Whole(_))).map(|slot| slot.span().0.0).collect()
}

pub fn damaged(slots: &[Slot]) -> Vec<(DamageKind, u64, u64)> {
    let damaged = slots.iter().filter_map(|slot| match slot {
        Slot::Damaged(damage) => Some((damage.kind, damage.first.0, damage.last.0)),
        Slot::Whole(_) => None,
    });
    damaged.collect()
}

pub fn kinds(info: &SessionInfo) -> Vec<DamageKind> {
    info.damage.iter().map(|damage| damage.kind).collect()
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_the_middle_costs_one_record() {
    let victim = Victim::new().await;
    let lines = victim.lines();
    for index in 0..lines[2].len() {
        let mut altered = lines.clone();
        altered[2][index] ^= 1 << (index % 7);
        victim.write(&altered);
        let (slots, info) = victim.look().await;
        let (whole, damaged) = (whole(&slots), damaged(&slots));
        let lost = if index + 1 == lines[2].len() { vec![3, 4] } else { vec![3] };
        let left: Vec<u64> = (1..=COUNT).filter(|number| !lost.contains(number)).collect();
        assert_eq!(whole, left, "byte {index}");
        assert_eq!((damaged[0].1, damaged[0].2, damaged.len()), (lost[0], *lost.last().unwrap(), 1), "byte {index}");
        assert_eq!(genesis(&info).seq, Seq(COUNT));
        assert!(!info.damage.is_empty());
    }
    victim.go_on().await.unwrap();
}

#[tokio::test]
async fn a_flipped_bit_in_the_last_record_is_never_cut_off() {
    let victim = Victim::new().await;
    let lines = victim.lines();
    for index in 0..lines[5].len() {
        let mut altered = lines.clone();
        altered[5][index] ^= 1 << (index % 7);
        victim.write(&altered);
        let (slots, info) = victim.look().await;
        assert_eq!(whole(&slots), [1, 2, 3, 4, 5], "byte {index}");
        // The number of its last record may be what was altered.
        let (_, first, last) = damaged(&slots)[0];
        assert!(first == 6 && (6..=7).contains(&last), "byte {index}: {first} to {last}");
        assert!(!info.damage.is_empty());
        let error = victim.go_on().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "byte {index}: {error:?}");
        assert_eq!((error.session(), error.position().unwrap().seq), (Some(&key("s")), Seq(6)));
        assert_eq!(victim.lines(), altered, "nothing may be cut");
    }
}

#[tokio::test]
async fn a_damaged_last_frame_names_all_its_records() {
    let victim = Victim::new().await;
    let store = victim.store();
    let head = genesis(&store.open(&key("s")).await.unwrap());
    let record = rekindle_core::record::LogAppend::new(rekindle_core::LogName::new("l").unwrap(), Vec::new());
    let place = rekindle_core::codec::Place { session: &key("s"), branch: &BranchId::main() };
    let stamp = rekindle_core::codec::Stamp { after: head, at: rekindle_core::Timestamp(1), nonce: [1; 16] };
    let frame = rekindle_core::codec::Codec::new().encode(place, stamp, &vec![record.into(); 3]).unwrap();
    store.append(&Append::new(key("s"), BranchId::main(), head, vec![frame])).await.unwrap();
    let mut lines = victim.lines();
    let middle = lines[6].len() / 2;
    lines[6][middle] ^= 1;
    victim.write(&lines);
    let (slots, info) = victim.look().await;
    assert_eq!(damaged(&slots), [(DamageKind::Checksum, 7, 9)]);
    let found: Vec<_> = info.damage.iter().map(|damage| (damage.first, damage.last)).collect();
    assert_eq!((genesis(&info).seq, found), (Seq(6), vec![(Seq(7), Seq(9))]));
    assert_eq!(*victim.go_on().await.unwrap_err().kind(), ErrorKind::Corrupt);
    // What became of the branch can be decided by going on beside it.
    let from = rekindle_core::Position::new(BranchId::main(), Seq(6));
    let branch = BranchId::new("aside").unwrap();
    let fork = rekindle_core::Fork {
        session: key("s"),
        genesis: info.header.genesis,
        branch: branch.clone(),
        from,
        hash: genesis(&info).hash,
        base: None,
    };
    let start = victim.store().fork(&fork).await.unwrap().head;
    let frame = crate::script::frame(&key("s"), &branch, start, "aside");
    victim.store().append(&Append::new(key("s"), branch, start, vec![frame])).await.unwrap();
    assert_eq!(victim.lines(), lines, "nothing is cut");
}

#[tokio::test]
async fn a_torn_tail_is_set_aside_and_reported() {
    let lines = Victim::new().await.lines();
    for kept in 1..lines[5].len() {
        let victim = Victim::new().await;
        let last = &victim.lines()[5][..kept];
        victim.write(&[victim.lines()[..5].concat(), last.to_vec()]);
        let (slots, info) = victim.look().await;
        assert_eq!((whole(&slots), damaged(&slots)), (vec![1, 2, 3, 4, 5], vec![]));
        assert_eq!(kinds(&info), [DamageKind::Torn]);
        victim.go_on().await.unwrap();
        let (slots, info) = victim.look().await;
        assert_eq!((whole(&slots), kinds(&info)), (vec![1, 2, 3, 4, 5, 6], vec![DamageKind::Torn]));
        let quarantine: Vec<_> = fs::read_dir(victim.segment().with_file_name("quarantine")).unwrap().collect();
        assert_eq!(quarantine.len(), 1);
        assert_eq!(fs::read(quarantine[0].as_ref().unwrap().path()).unwrap(), last);
        if kept > 40 {
            break;
        }
    }
}

#[tokio::test]
async fn zeros_at_the_end_are_an_unfinished_write() {
    for zeros in [1, 100, 5_000] {
        let victim = Victim::new().await;
        victim.write(&[victim.lines().concat(), vec![0; zeros]]);
        let (slots, info) = victim.look().await;
        assert_eq!((whole(&slots).len() as u64, damaged(&slots)), (COUNT, vec![]));
        assert_eq!(kinds(&info), [DamageKind::Torn]);
        victim.go_on().await.unwrap();
        assert_eq!(whole(&victim.look().await.0).len() as u64, COUNT + 1);
    }
}

#[tokio::test]
async fn a_write_of_the_same_length_in_place_of_a_torn_one_is_noticed() {
    let victim = Victim::new().await;
    let lines = victim.lines();
    victim.write(&[lines[..5].concat(), vec![0; lines[5].len()]]);
    let (first, second) = (victim.store(), victim.store());
    let before = genesis(&first.open(&key("s")).await.unwrap());
    let after = append(&second, before, "record number 6").await.unwrap();
    assert_eq!(victim.lines().concat().len(), lines.concat().len(), "the case this is about");
    append(&first, after, "record number 7").await.unwrap();
    assert_eq!(whole(&victim.look().await.0), [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn damage_in_older_segments_is_named_exactly() {
    let disk = SimulatedDisk::new();
    let open = || FileStore::open_on(Arc::new(disk.clone()), "/store", StoreOptions::new(), 1_000).unwrap();
    let store = open();
    let mut head = genesis(&store.create(&NewSession::new(header("s"))).await.unwrap());
    for number in 1..=12 {
        head = append(&store, head, &format!("record number {number}")).await.unwrap();
    }
    let directory = Path::new("/store/sessions/default/s/branches/main");
    let mut segments: Vec<_> =
        disk.list(directory).unwrap().into_iter().filter(|name| name.ends_with(".jsonl")).collect();
    segments.sort();
    let first_of = |index: usize| segments[index][..20].parse::<u64>().unwrap();
    assert!(segments.len() >= 5);
    // The first line of the first segment is altered, the second segment gone, the last line of the third cut in half.
    disk.tamper(&directory.join(&segments[0]), |bytes| bytes[100] ^= 1);
    disk.remove_file(&directory.join(&segments[1])).unwrap();
    disk.tamper(&directory.join(&segments[2]), |bytes| bytes.truncate(bytes.len() - 200));
    let store = open();
    let slots = store.read_all(&ReadFrames::all(key("s"), BranchId::main()).with_limit(2)).await.unwrap();
    let expected = [(1, 1), (first_of(1), first_of(2) - 1), (first_of(3) - 1, first_of(3) - 1)];
    assert_eq!(damaged(&slots).iter().map(|found| (found.1, found.2)).collect::<Vec<_>>(), expected);
    assert!(slots.windows(2).all(|pair| pair[0].span().1.next() == pair[1].span().0));
    append(&store, head, "the end is whole").await.unwrap();
    disk.remove_file(&directory.join(&segments[0])).unwrap();
    let slots = open().read_all(&ReadFrames::all(key("s"), BranchId::main())).await.unwrap();
    assert_eq!(damaged(&slots)[0], (DamageKind::Missing, 1, first_of(2) - 1));
}

#[tokio::test]
async fn newer_sessions_are_left_alone() {
    let victim = Victim::new().await;
    let path = victim.session().join("session.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"version\":1", "\"version\":7");
    let value: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let value: serde_json::Map<_, _> = value.into_iter().filter(|(name, _)| name != "crc" && name != "len").collect();
    fs::write(&path, rekindle_core::codec::object_to_line(&value).unwrap()).unwrap();
    let store = victim.store();
    let removal = rekindle_core::Removal::Session { session: key("s") };
    for error in [store.open(&key("s")).await.unwrap_err(), store.remove(&removal).await.unwrap_err()] {
        assert!(matches!(error.kind(), ErrorKind::VersionTooNew { found: 7, .. }), "{error:?}");
    }
    assert!(path.exists());
}

#[tokio::test]
async fn missing_swapped_and_repeated_lines_are_noticed() {
    let victim = Victim::new().await;
    let lines = victim.lines();
    let order = |order: &[usize]| order.iter().map(|index| lines[*index].clone()).collect::<Vec<_>>();
    victim.write(&order(&[0, 1, 3, 4, 5]));
    let (slots, _) = victim.look().await;
    assert_eq!((whole(&slots), damaged(&slots)), (vec![1, 2, 4, 5, 6], vec![(DamageKind::Missing, 3, 3)]));
    for altered in [[0, 2, 1, 3, 4, 5].as_slice(), &[0, 1, 1, 2, 3, 4, 5], &[5, 0, 1, 2, 3, 4], &[0, 1, 2, 3, 4, 5, 5]]
    {
        victim.write(&order(altered));
        let (slots, info) = victim.look().await;
        assert_eq!((whole(&slots), damaged(&slots)), (vec![1, 2, 3, 4, 5, 6], vec![]), "{altered:?}");
        assert!(kinds(&info).contains(&DamageKind::Format), "{altered:?}");
    }
    victim.write(&[lines[0].clone(), b"{\"not\":\"a frame\"}\n".to_vec(), lines[1..].concat()]);
    let (slots, info) = victim.look().await;
    assert_eq!((whole(&slots).len(), kinds(&info)), (6, vec![DamageKind::Format]));
}

#[tokio::test]
async fn a_recorded_head_that_is_gone_is_damage() {
    for delete in [false, true] {
        let victim = Victim::new().await;
        let store = victim.store();
        let owner = OwnerId::new("o").unwrap();
        let lease =
            store.acquire(&key("s"), &BranchId::main(), &owner, std::time::Duration::from_secs(9)).await.unwrap();
        store.release(&lease).await.unwrap();
        if delete {
            fs::remove_file(victim.segment()).unwrap();
        } else {
            victim.write(&[victim.lines()[..4].concat()]);
        }
        let (slots, info) = victim.look().await;
        let first = if delete { 1 } else { 5 };
        assert_eq!(damaged(&slots), [(DamageKind::Missing, first, COUNT)]);
        assert_eq!(genesis(&info).seq, Seq(COUNT));
        assert_eq!(*victim.go_on().await.unwrap_err().kind(), ErrorKind::Corrupt);
        // Writing session.json again must not make the loss look right.
        let action = LeaseAction::Acquire { owner, ttl: std::time::Duration::ZERO, whole_session: true };
        victim.store().lease(&LeaseRequest { session: key("s"), branch: BranchId::main(), action }).await.unwrap();
        assert_eq!(*victim.go_on().await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn a_head_that_was_replaced_is_damage() {
    let victim = Victim::new().await;
    let store = victim.store();
    let owner = OwnerId::new("o").unwrap();
    let lease = store.acquire(&key("s"), &BranchId::main(), &owner, std::time::Duration::from_secs(9)).await.unwrap();
    store.release(&lease).await.unwrap();
    let forged =
        frame(&key("s"), &BranchId::main(), Head { seq: Seq(5), ..lease.head }, "forged").to_line(None::<()>).unwrap();
    victim.write(&[victim.lines()[..5].concat(), forged]);
    assert_eq!(kinds(&victim.look().await.1), [DamageKind::Head]);
    assert_eq!(*victim.go_on().await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_damaged_session_harms_no_other() {
    for content in ["", "garbage", "{\"crc\":\"00000000\",\"len\":\"00000001\",}", "[[[["] {
        let victim = Victim::new().await;
        victim.store().create(&NewSession::new(header("other"))).await.unwrap();
        fs::write(victim.session().join("session.json"), content).unwrap();
        fs::write(victim.session().join("session.copy"), content).unwrap();
        let store = victim.store();
        let error = store.open(&key("s")).await.unwrap_err();
        assert_eq!((error.kind(), error.session()), (&ErrorKind::Corrupt, Some(&key("s"))));
        let listed = store.list_all(&rekindle_core::SessionQuery::new(Default::default())).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|info| (info.header.key.clone(), kinds(info))).collect();
        assert_eq!(listed, [(key("other"), vec![]), (key("s"), vec![DamageKind::Index])]);
        assert_eq!(*store.create(&NewSession::new(header("s"))).await.unwrap_err().kind(), ErrorKind::Corrupt);
        store.remove(&rekindle_core::Removal::Session { session: key("s") }).await.unwrap();
        store.create(&NewSession::new(header("s"))).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_without_its_file_is_not_taken_for_a_new_one() {
    let victim = Victim::new().await;
    for name in ["session.json", "session.copy"] {
        fs::remove_file(victim.session().join(name)).unwrap();
    }
    let store = victim.store();
    assert_eq!(*store.open(&key("s")).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(*store.create(&NewSession::new(header("s"))).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_directory_that_is_another_sessions_is_refused() {
    let victim = Victim::new().await;
    copy(&victim.session(), &victim.session().with_file_name("t"));
    assert_eq!(*victim.store().open(&key("t")).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let listed = victim.store().list_all(&rekindle_core::SessionQuery::new(Default::default())).await.unwrap();
    let damaged = listed.iter().find(|info| info.header.key == key("t")).unwrap();
    assert_eq!(kinds(damaged), [DamageKind::Index]);
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => fs::copy(entry.path(), to).map(drop).unwrap(),
        }
    }
}

#[tokio::test]
async fn an_altered_value_is_never_taken_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let open = |options| FileStore::open(directory.path(), options).unwrap();
    let name = |key: &str| ValueKey::new(Namespace::default(), ValueKind::DATA_KEY, key).unwrap();
    let store = open(StoreOptions::new());
    let values = store.values().unwrap();
    for key in ["one", "two"] {
        let changed = values.change(&Change::set(name(key), format!("the value of {key}"))).await.unwrap();
        assert_eq!(changed, Changed::Done);
    }
    let folder = directory.path().join("values/default/data-key");
    let (one, two) = (folder.join("one.json"), folder.join("two.json"));
    let intact = fs::read(&one).unwrap();
    let listed = ValueQuery::new(Namespace::default(), ValueKind::DATA_KEY);
    let check = async |what: &str| {
        for error in [values.get(&name("one")).await.unwrap_err(), values.list(&listed).await.unwrap_err()] {
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
            assert!(error.message().contains("one.json"), "{what}: {error:?}");
        }
        // Nothing is decided on what cannot be read.
        let change = Change::set(name("one"), "new").if_is(None);
        assert_eq!(*values.change(&change).await.unwrap_err().kind(), ErrorKind::Corrupt, "{what}");
        assert!(values.get(&name("two")).await.unwrap().is_some(), "{what}");
    };
    for at in 0..intact.len() - 1 {
        let mut altered = intact.clone();
        altered[at] ^= 0x10;
        fs::write(&one, altered).unwrap();
        check(&format!("byte {at}")).await;
        fs::write(&one, &intact[..at]).unwrap();
        check(&format!("cut at {at}")).await;
    }
    fs::copy(&two, &one).unwrap();
    check("the file of another").await;
    fs::write(&one, &intact).unwrap();
    let reader = open(StoreOptions::new().with_read_only(true));
    let values = reader.values().unwrap();
    assert_eq!(values.get(&name("one")).await.unwrap().as_deref(), Some(&b"the value of one"[..]));
    assert!(values.change(&Change::delete(name("one"))).await.is_err());
}
