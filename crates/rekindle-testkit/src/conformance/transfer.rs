//! Moving sessions out and in, and verifying them.

use std::io::Cursor;

use rekindle_core::retention::{Policy, Rule};
use rekindle_core::{DamageKind, ErrorKind, Head, ImportOptions, Journal, Position, Seq, SessionHeader, StoreExt as _};

use crate::fixture::{CodecKind, Harness, key};
use crate::history::{History, message};

/// A session with forks, a pruned branch, an inbox and a description.
async fn rich_session(harness: &Harness, journal: &Journal) -> Vec<History> {
    let mut header = SessionHeader::new(key("rich"));
    header.title = Some("Rich".into());
    header.agent = Some("tester".into());
    header.tags = vec!["t".into()];
    journal.create(header).await.unwrap();
    let mut main = History::begin(journal, &key("rich")).await;
    main.append_steps(40).await.unwrap();
    journal.prune(&key("rich"), &Policy::new([Rule::LastN(4)])).await.unwrap();
    main.append_steps(3).await.unwrap();
    let mut side = main.fork("side", main.head.seq.0 - 2).await.unwrap();
    side.append_steps(2).await.unwrap();
    let empty = side.fork("empty", side.head.seq.0).await.unwrap();
    let owner = rekindle_core::OwnerId::new("owner").unwrap();
    let ttl = std::time::Duration::from_secs(9);
    let lease = journal.store().acquire(&key("rich"), &side.branch, &owner, ttl).await.unwrap();
    journal.store().release(&lease).await.unwrap();
    harness.clock.advance(std::time::Duration::from_secs(5));
    vec![main, side, empty]
}

async fn exported(journal: &Journal) -> Vec<u8> {
    let mut file = Vec::new();
    journal.export(&key("rich"), &mut file).await.unwrap();
    file
}

/// A session exported and imported, under its own and another name, is the same session.
pub async fn export_and_import_round_trip(harness: &Harness) {
    let journal = harness.journal().await;
    let histories = rich_session(harness, &journal).await;
    let file = exported(&journal).await;
    let original = journal.open(&key("rich")).await.unwrap();
    let renamed = ImportOptions { rename: Some(key("copy")), ..Default::default() };
    let moved = journal.import(&mut Cursor::new(&file), &renamed).await.unwrap();
    assert_eq!(moved.session, key("copy"));
    assert!(moved.same_hashes || harness.codec() == CodecKind::Encrypted, "the keys are the same");
    journal.clear_session(&key("rich")).await.unwrap();
    journal.import(&mut Cursor::new(&file), &ImportOptions::default()).await.unwrap();
    for name in ["rich", "copy"] {
        let info = journal.open(&key(name)).await.unwrap();
        assert_eq!(info.header.title, original.header.title);
        assert_eq!(info.header.tags, original.header.tags);
        assert_eq!(info.created_at, original.created_at);
        assert_eq!(info.current, original.current);
        for history in &histories {
            let position = Position::new(history.branch.clone(), history.head.seq);
            let restored = journal.load(&key(name), Some(&position)).await.unwrap();
            assert_eq!(restored.state, history.state_after(usize::MAX), "{name} {position}");
            // What is encrypted gets another data key, and other hashes with it.
            let same = restored.head == history.head;
            assert!(restored.head.seq == history.head.seq && (same || harness.codec() == CodecKind::Encrypted));
            let parent = &restored.info.branch(&history.branch).unwrap().parent;
            assert_eq!(*parent, original.branch(&history.branch).unwrap().parent);
        }
        let report = journal.verify(&key(name), &Default::default()).await.unwrap();
        assert!(report.is_sound(), "{report:?}");
    }
    // It can be continued.
    let mut main = histories[0].clone();
    main.head = journal.open(&key("rich")).await.unwrap().branch(&main.branch).unwrap().head;
    main.append_steps(1).await.unwrap();
    let other = journal.create(SessionHeader::new(key("taken"))).await;
    assert!(other.is_ok());
    let taken = ImportOptions { rename: Some(key("taken")), ..Default::default() };
    let error = journal.import(&mut Cursor::new(&file), &taken).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::AlreadyExists);
}

/// A reader that fails after some bytes, as a broken connection would.
struct Breaks<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl std::io::Read for Breaks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at >= self.end {
            return Err(std::io::Error::other("broken"));
        }
        let count = buffer.len().min(self.end - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// An import that broke off anywhere is finished by repeating it.
pub async fn an_import_that_stopped_goes_on(harness: &Harness) {
    let journal = harness.journal().await;
    let histories = rich_session(harness, &journal).await;
    let file = exported(&journal).await;
    journal.clear_session(&key("rich")).await.unwrap();
    for tenth in 1..10 {
        let broken = Breaks { bytes: &file, at: 0, end: file.len() * tenth / 10 };
        let mut reader = std::io::BufReader::new(broken);
        assert!(journal.import(&mut reader, &ImportOptions::default()).await.is_err());
    }
    journal.import(&mut Cursor::new(&file), &ImportOptions::default()).await.unwrap();
    for history in &histories {
        let position = Position::new(history.branch.clone(), history.head.seq);
        let restored = journal.load(&key("rich"), Some(&position)).await.unwrap();
        assert_eq!(restored.state, history.state_after(usize::MAX));
    }
    assert!(journal.verify(&key("rich"), &Default::default()).await.unwrap().is_sound());
}

/// Who has seen a session goes on seeing it after somebody else removed it and imported it again: under the same name
/// it has another key.
pub async fn an_import_in_place_of_a_known_session_is_read(harness: &Harness) {
    let journal = harness.journal().await;
    let histories = rich_session(harness, &journal).await;
    let file = exported(&journal).await;
    let other = harness.journal().await;
    other.clear_session(&key("rich")).await.unwrap();
    other.import(&mut Cursor::new(&file), &ImportOptions::default()).await.unwrap();
    for history in &histories {
        let position = Position::new(history.branch.clone(), history.head.seq);
        let restored = journal.load(&key("rich"), Some(&position)).await.unwrap();
        assert_eq!(restored.state, history.state_after(usize::MAX));
    }
    let mut main = histories[0].clone();
    main.head = journal.open(&key("rich")).await.unwrap().branch(&main.branch).unwrap().head;
    main.append_steps(1).await.unwrap();
    assert!(other.verify(&key("rich"), &Default::default()).await.unwrap().is_sound());
}

/// A file with a changed, missing or swapped line is refused.
pub async fn a_damaged_export_is_refused(harness: &Harness) {
    let journal = harness.journal().await;
    rich_session(harness, &journal).await;
    let file = exported(&journal).await;
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let mut flipped = file.clone();
    flipped[file.len() / 2] ^= 1;
    let mut swapped = lines.clone();
    swapped.swap(3, 4);
    let mut dropped = lines.clone();
    dropped.remove(lines.len() / 2);
    let mut extended = lines.clone();
    extended.push(lines[1]);
    for (index, damaged) in [
        flipped,
        swapped.concat(),
        dropped.concat(),
        extended.concat(),
        file[..file.len() - 5].to_vec(),
        Vec::new(),
        b"{}\n".to_vec(),
    ]
    .into_iter()
    .enumerate()
    {
        let rename = ImportOptions { rename: Some(key(&format!("damaged {index}"))), ..Default::default() };
        let error = journal.import(&mut Cursor::new(&damaged), &rename).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{index}: {error:?}");
    }
}

/// A file whose records were changed and whose checksums were made to fit is refused: the chain
/// does not fit.
pub async fn a_forged_export_is_refused(harness: &Harness) {
    let journal = harness.journal().await;
    rich_session(harness, &journal).await;
    let file = exported(&journal).await;
    let mut lines: Vec<Vec<u8>> = file.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let end = lines.pop().unwrap();
    let target = lines.iter().position(|line| contains(line, b"main 42")).unwrap();
    let text = String::from_utf8(lines[target].clone()).unwrap().replace("main 42", "forged!");
    lines[target] = checked_again(&text);
    let hash = rekindle_core::Hash::of(&lines.concat());
    let end = String::from_utf8(end).unwrap();
    let (before, after) = end.split_once(r#""hash":""#).unwrap();
    lines.push(checked_again(&format!(r#"{before}"hash":"{hash}{}"#, &after[64..])));
    let rename = ImportOptions { rename: Some(key("forged")), ..Default::default() };
    let error = journal.import(&mut Cursor::new(lines.concat()), &rename).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error:?}");
    let trusting = ImportOptions { accept_unverified: true, ..rename };
    assert!(journal.import(&mut Cursor::new(lines.concat()), &trusting).await.is_err(), "the key is known");
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len()).any(|window| window == text)
}

/// The line with the checksum and the length that fit it.
fn checked_again(line: &str) -> Vec<u8> {
    let mut object: std::collections::BTreeMap<String, rekindle_core::Json> =
        rekindle_core::Json::parse(line.trim()).unwrap().decode().unwrap();
    object.remove("crc");
    object.remove("len");
    rekindle_core::codec::object_to_line(&object).unwrap()
}

/// Verification reads everything and has nothing to say about a sound session.
pub async fn verify_is_content_with_sound_sessions(harness: &Harness) {
    let journal = harness.journal().await;
    rich_session(harness, &journal).await;
    harness.session(&journal, "empty").await;
    let report = journal.verify(&key("rich"), &Default::default()).await.unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    assert!(report.frames > 5 && report.records > 10 && report.bytes > 1_000, "{report:?}");
    let again = journal.verify(&key("rich"), &report.heads).await.unwrap();
    assert!(again.damage.is_empty());
    assert!(journal.verify(&key("empty"), &Default::default()).await.unwrap().damage.is_empty());
}

/// Heads kept elsewhere reveal that a store is older than it was, or tells another story.
pub async fn verify_notices_a_store_set_back(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(3).await.unwrap();
    let mut seen = journal.verify(&key("a"), &Default::default()).await.unwrap().heads;
    history.append(vec![message("later")]).await.unwrap();
    assert!(journal.verify(&key("a"), &seen).await.unwrap().is_sound());
    // What a store that lost its newest records looks like to somebody who saw them.
    let future = Head { seq: Seq(history.head.seq.0 + 2), hash: history.head.hash };
    seen.insert(history.branch.clone(), future);
    let report = journal.verify(&key("a"), &seen).await.unwrap();
    assert_eq!(report.damage.iter().map(|damage| damage.kind).collect::<Vec<_>>(), [DamageKind::Missing]);
    seen.insert(history.branch.clone(), Head { seq: history.head.seq, hash: rekindle_core::Hash::of(b"other") });
    let report = journal.verify(&key("a"), &seen).await.unwrap();
    assert_eq!(report.damage.iter().map(|damage| damage.kind).collect::<Vec<_>>(), [DamageKind::Chain]);
}
