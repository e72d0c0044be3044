//! Reads of a few records in the middle of a long history: they answer what a scan answers,
//! whatever is damaged, and cost little where nothing is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle_core::codec::{Codec, Frame, Place, Stamp};
use rekindle_core::record::RegisterSet;
use rekindle_core::{
    Append, BranchId, Head, Json, NewSession, ReadFrames, Record, RegisterKey, Seq, Slot, Store, StoreExt, Timestamp,
};
use rekindle_store::files::disk::Disk as _;
use rekindle_store::{FileStore, StoreOptions};

use crate::script::{head_of, header, key};
use crate::simulated_disk::SimulatedDisk;

const SEGMENT: usize = 100_000;

/// A session of several segments on a simulated disk.
struct Long {
    disk: SimulatedDisk,
    segment_bytes: usize,
    appends: Vec<Append>,
}

impl Long {
    /// Groups of frames of these sizes, until there are `segments` segments.
    async fn new(segment_bytes: usize, segments: usize, groups: &[&[usize]]) -> Self {
        let mut long = Self { disk: SimulatedDisk::new(), segment_bytes, appends: Vec::new() };
        let store = long.store();
        let mut head = store.create(&NewSession::new(header("s"))).await.unwrap().branches[0].head;
        for sizes in groups.iter().cycle() {
            let append = group(head, sizes);
            head = store.append(&append).await.unwrap().head;
            long.appends.push(append);
            if long.segments().len() == segments {
                break;
            }
        }
        long
    }

    fn store(&self) -> FileStore {
        let disk = Arc::new(self.disk.clone());
        FileStore::open_on(disk, "/store", StoreOptions::new(), self.segment_bytes as u64).unwrap()
    }

    fn segments(&self) -> Vec<PathBuf> {
        let directory = Path::new("/store/sessions/default/s/branches/main");
        let mut names = self.disk.list(directory).unwrap_or_default();
        names.retain(|name| name.ends_with(".jsonl"));
        names.sort();
        names.into_iter().map(|name| directory.join(name)).collect()
    }

    fn last(&self) -> u64 {
        self.appends.last().unwrap().head().seq.0
    }

    /// Everything, as scans find it.
    async fn scanned(&self) -> Vec<Slot> {
        self.store().read_all(&all()).await.unwrap()
    }

    /// Checks that reading the records from `first` to `last`, which nobody has read before,
    /// gives what is among `scanned`.
    async fn check(&self, scanned: &[Slot], first: u64, last: u64, context: &str) {
        let read = all().with_range(Seq(first), Seq(last));
        let expected: Vec<_> = scanned.iter().filter(|slot| touches(slot, first, last)).cloned().collect();
        let found = self.store().read(&read).await.unwrap();
        assert_eq!((&found.slots, found.more), (&expected, false), "{context}, {first} to {last}");
        let page = self.store().read(&read.clone().with_limit(1)).await.unwrap();
        assert_eq!((page.slots.first(), page.more), (expected.first(), expected.len() > 1), "{context}, {first}");
        let page = self.store().read(&read.with_limit(1).with_newest_first()).await.unwrap();
        assert_eq!((page.slots.first(), page.more), (expected.last(), expected.len() > 1), "{context}, {last}");
    }
}

fn all() -> ReadFrames {
    ReadFrames::all(key("s"), BranchId::main())
}

fn touches(slot: &Slot, first: u64, last: u64) -> bool {
    slot.span().1 >= Seq(first) && slot.span().0 <= Seq(last)
}

fn group(expected: Head, sizes: &[usize]) -> Append {
    let mut head = expected;
    let frames = sizes.iter().map(|size| {
        let frame = frame(head, *size);
        head = head_of(&frame);
        frame
    });
    let frames = frames.collect();
    Append::new(key("s"), BranchId::main(), expected, frames)
}

/// A frame of one to three records.
fn frame(after: Head, size: usize) -> Frame {
    let record = |text: &str| Record::from(RegisterSet::new(RegisterKey::new("k").unwrap(), Json::from(text)));
    let mut records = vec![record(&"x".repeat(size))];
    records.resize(1 + size % 3, record("y"));
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&after.seq.0.to_le_bytes());
    let stamp = Stamp { after, at: Timestamp(7), nonce };
    let place = Place { session: &key("s"), branch: &BranchId::main() };
    Codec::new().without_compression().encode(place, stamp, &records).unwrap()
}

/// Small lines, large ones, one larger than what is read at once, alone and in groups.
const MIXED: &[&[usize]] =
    &[&[100], &[2_000, 1_501, 3_002], &[700], &[40_001], &[10, 20, 30, 40], &[5_000], &[1_000; 12], &[333]];

#[tokio::test]
async fn every_position_reads_as_in_a_scan() {
    let long = Long::new(SEGMENT, 4, MIXED).await;
    let scanned = long.scanned().await;
    assert!(scanned.iter().all(|slot| matches!(slot, Slot::Whole(_))));
    for seq in 1..=long.last() {
        long.check(&scanned, seq, seq, "whole").await;
    }
    for seq in (1..=long.last()).step_by(7) {
        long.check(&scanned, seq, seq + 5, "whole").await;
        long.check(&scanned, seq, seq + 15, "whole").await;
    }
}

type Tamper = fn(&mut Vec<Vec<u8>>, usize);

const TAMPERS: &[(&str, Tamper)] = &[
    ("a flipped bit", |lines, at| {
        let middle = lines[at].len() / 2;
        lines[at][middle] ^= 1;
    }),
    ("a lost newline", |lines, at| {
        lines[at].pop();
    }),
    ("a line too many", |lines, at| lines.insert(at, b"{\"not\":\"a frame\"}\n".to_vec())),
    ("a missing line", |lines, at| {
        lines.remove(at);
    }),
    ("a repeated line", |lines, at| lines.insert(at, lines[at].clone())),
    ("swapped lines", |lines, at| {
        let other = at.checked_sub(1).unwrap_or(1);
        lines.swap(at, other);
    }),
    ("a lost sector", |lines, at| {
        let start: usize = lines[..at].iter().map(Vec::len).sum();
        let end = lines[at].len().min(512 - start % 512);
        lines[at][..end].fill(0);
    }),
    ("a cut", |lines, at| {
        lines.truncate(at + 1);
        let half = lines[at].len() / 2;
        lines[at].truncate(half);
    }),
];

/// The lines that halving a segment meets first, and those at its ends.
fn probed(lines: &[Vec<u8>]) -> Vec<usize> {
    let len: usize = lines.iter().map(Vec::len).sum();
    let line_at = |offset: usize| {
        let mut ends = lines.iter().scan(0, |end, line| {
            *end += line.len();
            Some(*end)
        });
        ends.position(|end| end > offset).unwrap()
    };
    let middles = [len / 4, len / 2, len * 3 / 4].into_iter().flat_map(|offset| [line_at(offset), line_at(offset) + 1]);
    let mut probed: Vec<_> = middles.chain([0, lines.len() - 3, lines.len() - 1]).collect();
    probed.sort_unstable();
    probed.dedup();
    probed
}

#[tokio::test]
async fn damage_reads_as_in_a_scan() {
    let long = Long::new(SEGMENT, 3, MIXED).await;
    let segment = &long.segments()[1];
    let mut whole = Vec::new();
    long.disk.tamper(segment, |bytes| whole.clone_from(bytes));
    let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let records = |line: &[u8]| {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        (value["first"].as_u64().unwrap(), value["last"].as_u64().unwrap())
    };
    for at in probed(&lines) {
        for (name, tamper) in TAMPERS {
            let mut altered = lines.clone();
            tamper(&mut altered, at);
            long.disk.tamper(segment, |bytes| *bytes = altered.concat());
            let scanned = long.scanned().await;
            let context = format!("{name} at line {at}");
            let around = [at.saturating_sub(1), at, (at + 1).min(lines.len() - 1), 1, lines.len() / 2, lines.len() - 1];
            for (first, last) in around.map(|line| records(&lines[line])) {
                long.check(&scanned, first, first, &context).await;
                long.check(&scanned, last, last + 2, &context).await;
            }
        }
    }
}

#[tokio::test]
async fn what_is_whole_at_the_end_of_an_older_segment_stays_readable() {
    let long = Long::new(20_000, 2, &[&[1_000; 5]]).await;
    let segment = &long.segments()[0];
    let last_line = |bytes: &[u8]| bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let before = long.scanned().await;
    long.disk.tamper(segment, |bytes| {
        let start = last_line(bytes);
        bytes[start..].fill(0);
    });
    let after = long.scanned().await;
    let damaged = after.iter().filter(|slot| matches!(slot, Slot::Damaged(_))).count();
    assert_eq!((after.len(), damaged), (before.len(), 1));
}

/// The bytes that `work` reads from a store that knows the end of the session and nothing else.
async fn bytes_read<T>(long: &Long, work: impl AsyncFnOnce(FileStore) -> T) -> usize {
    let store = long.store();
    store.open(&key("s")).await.unwrap();
    let before = long.disk.bytes_read();
    work(store).await;
    long.disk.bytes_read() - before
}

#[tokio::test]
async fn one_frame_of_a_large_segment_costs_little() {
    let long = Long::new(2_000_000, 3, &[&[2_000; 200]]).await;
    for append in long.appends.iter().step_by(3) {
        let seq = append.frames[append.frames.len() / 2].first;
        let read = bytes_read(&long, async |store| store.read(&all().with_range(seq, seq)).await.unwrap()).await;
        assert!((2_000..150_000).contains(&read), "{read} bytes were read to read record {seq}");
        let repeated = bytes_read(&long, async |store| store.append(append).await.unwrap()).await;
        assert!(repeated < 700_000, "{repeated} bytes were read to recognise a repetition");
    }
}

#[tokio::test]
async fn page_after_page_reads_a_segment_once() {
    let long = Long::new(SEGMENT, 4, MIXED).await;
    let stored: u64 = long.segments().iter().map(|segment| long.disk.size(segment).unwrap()).sum();
    for read in [all().with_limit(2), all().with_limit(2).with_newest_first()] {
        let bytes = bytes_read(&long, async |store| store.read_all(&read).await.unwrap()).await;
        // Once to know its lines, once to give them out; and a little for the lock on each page.
        assert!(bytes as u64 <= 2 * stored + 40 * long.last(), "{bytes} bytes were read of {stored}");
    }
}
