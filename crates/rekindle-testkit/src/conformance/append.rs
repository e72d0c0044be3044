//! Appending and reading: atomic, ordered, compared, safe to repeat, isolated.

use std::sync::Arc;

use rekindle_core::record::RegisterSet;
use rekindle_core::{
    BranchId, Entry, ErrorKind, Journal, Json, Marks, Namespace, ReadFrames, RegisterKey, Seq, SessionHeader,
    SessionId, SessionKey, Slot, Status, StoreExt as _, Target,
};

use crate::fixture::{Harness, key};
use crate::history::{History, checkpoint, message, register};

/// `create` refuses what exists, `open` what does not, and `open_or_create` neither.
pub async fn create_open_and_open_or_create_differ(harness: &Harness) {
    let journal = harness.journal().await;
    let missing = journal.open(&key("typo")).await.unwrap_err();
    assert_eq!(*missing.kind(), ErrorKind::NotFound);
    assert_eq!(missing.session(), Some(&key("typo")));
    let created = harness.session(&journal, "a").await;
    assert_eq!(created.status(), Status::Idle);
    let again = journal.create(SessionHeader::new(key("a"))).await.unwrap_err();
    assert_eq!(*again.kind(), ErrorKind::AlreadyExists);
    let opened = journal.open_or_create(SessionHeader::new(key("a"))).await.unwrap();
    assert_eq!(opened.header, created.header);
    journal.open_or_create(SessionHeader::new(key("b"))).await.unwrap();
    assert_eq!(journal.open(&key("b")).await.unwrap().branches.len(), 2);
}

/// Everything acknowledged is there for the next process, in order, once.
pub async fn acknowledged_survives_reopening(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(20).await.unwrap();
    let mut fork = history.fork("side", 7).await.unwrap();
    fork.append_steps(3).await.unwrap();
    drop(journal);
    let journal = harness.journal().await;
    for written in [&history, &fork] {
        let position = rekindle_core::Position::new(written.branch.clone(), written.head.seq);
        let restored = journal.load(&key("a"), Some(&position)).await.unwrap();
        assert_eq!(restored.head, written.head);
        assert_eq!(restored.state, written.state_after(usize::MAX));
    }
}

/// A batch is there whole or not at all, and so are the status and header that go with it.
pub async fn append_is_atomic(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append(vec![message("1"), message("2")]).await.unwrap();
    // Two frames of which the second does not continue the first.
    let good = journal.prepare(&history.target(), &[message("3")]).unwrap();
    let mut broken = good.clone();
    broken.frames.push(good.frames[0].clone());
    broken.status = Some(Status::Failed);
    assert_eq!(*journal.store().append(&broken).await.unwrap_err().kind(), ErrorKind::Invalid);
    // A conflict takes status and header with it.
    let mut late = journal
        .prepare(
            &Target { expected: rekindle_core::Head { seq: Seq(1), ..history.head }, ..history.target() },
            &[message("x")],
        )
        .unwrap();
    late.status = Some(Status::Failed);
    assert!(matches!(journal.store().append(&late).await.unwrap_err().kind(), ErrorKind::Conflict { .. }));
    let info = journal.open(&key("a")).await.unwrap();
    assert_eq!(info.status(), Status::Idle);
    assert_eq!(info.branch(&BranchId::main()).unwrap().head, history.head);
    // Several frames in one append are one append.
    let second = journal.prepare(&Target { expected: good.head(), ..history.target() }, &[message("4")]).unwrap();
    let mut both = good;
    both.frames.extend(second.frames);
    journal.store().append(&both).await.unwrap();
    assert_eq!(journal.load(&key("a"), None).await.unwrap().head.seq, Seq(4));
}

/// Frames come back in the order of their numbers, without gaps, from any point.
pub async fn order_is_kept(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(30).await.unwrap();
    let total = history.records().len() as u64;
    for from in [1, 2, 17, total, total + 1] {
        let entries = journal.read(&key("a"), &BranchId::main(), Seq(from), 1_000).await.unwrap();
        let mut expected = None;
        for entry in &entries {
            let Entry::Batch(batch) = entry else { panic!("nothing is damaged: {entry:?}") };
            assert!(batch.last >= Seq(from));
            assert_eq!(expected.unwrap_or(batch.first), batch.first);
            expected = Some(batch.last.next());
        }
        assert_eq!(expected.is_none(), from > total);
        assert!(expected.is_none_or(|next| next.0 == total + 1));
    }
}

/// Pages of any size, in both directions, with and without a filter, cover everything once.
pub async fn pages_cover_everything_once(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(25).await.unwrap();
    let spans = |slots: Vec<Slot>| slots.iter().map(Slot::span).collect::<Vec<_>>();
    let all = ReadFrames::all(key("a"), BranchId::main());
    let expected = spans(journal.store().read_all(&all).await.unwrap());
    assert_eq!(expected.len(), 25);
    for limit in [1, 7, 1_000] {
        assert_eq!(spans(journal.store().read_all(&all.clone().with_limit(limit)).await.unwrap()), expected);
        let newest_first = all.clone().with_limit(limit).with_newest_first();
        let mut backwards = spans(journal.store().read_all(&newest_first).await.unwrap());
        backwards.reverse();
        assert_eq!(backwards, expected);
        let marked = all.clone().with_limit(limit).with_marks(Marks::CHECKPOINT);
        assert_eq!(journal.store().read_all(&marked).await.unwrap().len(), 9);
    }
    for limit in [0, 1_001] {
        let error = journal.store().read(&all.clone().with_limit(limit)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }));
    }
}

/// Of writers at one head one wins, the others are told, and what each had acknowledged is there.
pub async fn two_writers_one_winner(harness: &Harness) {
    const EACH: usize = 10;
    let first = harness.journal().await;
    let second = harness.journal().await;
    // Where a second handle cannot share the data, the same one is used twice.
    harness.session(&first, "a").await;
    let second = if second.open(&key("a")).await.is_ok() { second } else { first.clone() };
    let writer = |journal: Journal, name: &'static str| async move {
        let (mut written, mut conflicts) = (0, 0);
        while written < EACH {
            let head = journal.open(&key("a")).await.unwrap().branch(&BranchId::main()).unwrap().head;
            tokio::task::yield_now().await;
            let target = Target::new(key("a"), BranchId::main(), head);
            match journal.append(&target, &[message(&format!("{name} {written}"))]).await {
                Ok(appended) => {
                    assert_eq!(appended.head.seq, head.seq.next());
                    written += 1;
                }
                Err(error) => {
                    let ErrorKind::Conflict { expected, actual } = error.kind() else { panic!("{error:?}") };
                    assert!(actual > expected);
                    conflicts += 1;
                }
            }
        }
        conflicts
    };
    let (_, _) = tokio::join!(tokio::spawn(writer(first.clone(), "one")), tokio::spawn(writer(second, "two")));
    let restored = first.load(&key("a"), None).await.unwrap();
    let texts: Vec<String> =
        restored.state.logs().flat_map(|(_, items)| items.iter().map(|item| item.decode().unwrap())).collect();
    assert_eq!(texts.len(), 2 * EACH);
    for name in ["one", "two"] {
        let own: Vec<_> = texts.iter().filter(|text| text.starts_with(name)).cloned().collect();
        assert_eq!(own, (0..EACH).map(|n| format!("{name} {n}")).collect::<Vec<_>>());
    }
}

/// Many sessions appending at once: each has exactly what it wrote.
pub async fn many_sessions_at_once_lose_nothing(harness: &Harness) {
    let journal = harness.journal().await;
    let writers = (0..20).map(|n| {
        let journal = journal.clone();
        tokio::spawn(async move {
            let id = key(&format!("s{n}"));
            journal.create(SessionHeader::new(id.clone())).await.unwrap();
            let mut history = History::begin(&journal, &id).await;
            history.append_steps(10).await.unwrap();
            history
        })
    });
    let mut histories = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        histories.push(writer.await.unwrap());
    }
    for history in histories {
        let restored = journal.load(&history.session, None).await.unwrap();
        assert_eq!(restored.state, history.state_after(usize::MAX));
    }
}

/// Repeating an append that succeeded, because the caller saw an error, changes nothing: not
/// right away, not after others appended, not after the lease was lost.
pub async fn repeated_append_is_not_duplicated(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(2).await.unwrap();
    let append = journal.prepare(&history.target(), &[message("once"), register("k", "v")]).unwrap();
    let first = journal.store().append(&append).await.unwrap();
    assert_eq!(journal.store().append(&append).await.unwrap(), first);
    history.head = first.head;
    history.batches.push(vec![message("once"), register("k", "v")]);
    history.append_steps(2).await.unwrap();
    assert_eq!(journal.store().append(&append).await.unwrap(), first);
    let owner = rekindle_core::OwnerId::new("other").unwrap();
    journal.store().acquire(&key("a"), &BranchId::main(), &owner, std::time::Duration::from_secs(60)).await.unwrap();
    assert_eq!(journal.store().append(&append).await.unwrap(), first);
    let restored = journal.load(&key("a"), None).await.unwrap();
    assert_eq!(restored.state, history.state_after(usize::MAX));
    // The same content in another append is another append.
    let twin = journal
        .prepare(&Target::new(key("a"), BranchId::main(), append.expected), &[message("once"), register("k", "v")])
        .unwrap();
    assert!(journal.store().append(&twin).await.is_err());
}

/// Records with nothing in them and records of megabytes come back as they were.
pub async fn empty_and_huge_records(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    let huge = pseudo_random_text(3 << 20);
    let many: Vec<_> = (0..500).map(|n| register(&format!("k{n}"), "")).collect();
    for records in
        [vec![message("")], vec![message(&huge)], many, vec![message(&"a".repeat(5 << 20))], vec![message("end")]]
    {
        history.append(records).await.unwrap();
    }
    let journal = harness.journal_over(journal.store().clone());
    let restored = journal.load(&key("a"), None).await.unwrap();
    assert_eq!(restored.state, history.state_after(usize::MAX));
    assert!(journal.verify(&key("a"), &Default::default()).await.unwrap().is_sound());
}

fn pseudo_random_text(bytes: usize) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b' ' + u8::try_from(state % 95).expect("95 is small"))
    };
    (0..bytes).map(|_| next()).collect()
}

/// What is refused for its size or depth changes nothing.
pub async fn what_is_over_a_limit_leaves_no_trace(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let mut history = History::begin(&journal, &key("a")).await;
    history.append_steps(1).await.unwrap();
    let deep = Json::parse(format!("{}{}", "[".repeat(500), "]".repeat(500))).unwrap();
    let oversized = [
        vec![message(&"x".repeat(17 << 20))],
        vec![RegisterSet::new(RegisterKey::new("deep").unwrap(), deep).into()],
        vec![register("k", "v"); 10_001],
    ];
    for records in oversized {
        let error = journal.append(&history.target(), &records).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error:?}");
        assert_eq!(error.session(), Some(&key("a")));
        assert!(error.position().is_some());
    }
    assert_eq!(*journal.append(&history.target(), &[]).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(journal.load(&key("a"), None).await.unwrap().head, history.head);
}

/// The same session id in two namespaces, and two sessions in one, have nothing in common.
pub async fn namespaces_and_sessions_are_isolated(harness: &Harness) {
    let journal = harness.journal().await;
    let keys: Vec<SessionKey> = [("one", "a"), ("two", "a"), ("one", "b"), ("default", "a")]
        .map(|(namespace, id)| SessionKey::new(Namespace::new(namespace).unwrap(), SessionId::new(id).unwrap()))
        .into();
    for (index, session) in keys.iter().enumerate() {
        journal.create(SessionHeader::new(session.clone())).await.unwrap();
        let mut history = History::begin(&journal, session).await;
        history.append(vec![message(&format!("only {index}"))]).await.unwrap();
    }
    let other = SessionKey::new(Namespace::new("two").unwrap(), SessionId::new("b").unwrap());
    assert_eq!(*journal.open(&other).await.unwrap_err().kind(), ErrorKind::NotFound);
    journal.clear_session(&keys[1]).await.unwrap();
    for (index, session) in keys.iter().enumerate().filter(|(index, _)| *index != 1) {
        let restored = journal.load(session, None).await.unwrap();
        let (_, items) = restored.state.logs().next().unwrap();
        assert_eq!(items, [Json::from(format!("only {index}").as_str())]);
    }
    // A frame of one session is not a frame of another.
    let mut history = History::begin(&journal, &keys[0]).await;
    history.head = journal.open(&keys[0]).await.unwrap().branch(&BranchId::main()).unwrap().head;
    let mut stolen = journal.prepare(&history.target(), &[message("moved")]).unwrap();
    stolen.session = keys[2].clone();
    assert!(matches!(journal.store().append(&stolen).await.unwrap_err().kind(), ErrorKind::Conflict { .. }));
}

/// Any legal id works and leads nowhere else.
pub async fn any_legal_id(harness: &Harness) {
    let journal = harness.journal().await;
    let long = ["x".repeat(256), "x".repeat(255), "é".repeat(128), format!("{}y", "x".repeat(255))];
    let mut ids: Vec<&str> = vec![
        "../../etc/passwd",
        "..",
        ".",
        "a/b",
        "a\\b",
        "%2e%2e",
        "%",
        "'; DROP TABLE frames; --",
        "A",
        "a",
        "🦀👩‍👩‍👧",
        "con",
        "-x",
        "*",
        "a b",
        "\"",
        "~",
        "$HOME",
        "ß",
        "main",
    ];
    ids.extend(long.iter().map(String::as_str));
    for id in &ids {
        let session = SessionKey::new(Namespace::new(id).unwrap(), SessionId::new(id).unwrap());
        journal.create(SessionHeader::new(session.clone())).await.unwrap();
        let mut history = History::begin(&journal, &session).await;
        history.append(vec![message(id), checkpoint(id), register(id, id)]).await.unwrap();
        if *id != "main" {
            let mut fork = history.fork(id, 3).await.unwrap();
            fork.append(vec![message("on the fork")]).await.unwrap();
        }
    }
    let journal: Arc<Journal> = Arc::new(harness.journal_over(journal.store().clone()));
    for id in ids {
        let session = SessionKey::new(Namespace::new(id).unwrap(), SessionId::new(id).unwrap());
        let restored = journal.load(&session, None).await.unwrap();
        assert_eq!(restored.state.register(id), Some(&Json::from(id)));
        assert_eq!(restored.info.header.key, session);
        let page = journal.list(&rekindle_core::SessionQuery::new(session.namespace.clone())).await.unwrap();
        assert_eq!(page.sessions.len(), 1, "{id}");
    }
}

/// What the redaction takes out is nowhere in the store.
pub async fn secrets_are_not_stored(harness: &Harness) {
    let journal = harness.journal().await;
    let mut header = SessionHeader::new(key("a"));
    header.metadata.insert("api_key".into(), Json::from("sk-secret-1"));
    journal.create(header).await.unwrap();
    let mut history = History::begin(&journal, &key("a")).await;
    let value = Json::parse(r#"{"call":{"Access-Token":"sk-secret-2","x":1}}"#).unwrap();
    let log = rekindle_core::LogName::new("messages").unwrap();
    let records =
        vec![register("credentials", "sk-secret-3"), rekindle_core::record::LogAppend::new(log, vec![value]).into()];
    history.append(records).await.unwrap();
    let restored = journal.load(&key("a"), None).await.unwrap();
    let shown = format!("{:?} {:?}", restored.state, restored.info.header);
    assert!(!shown.contains("sk-secret"), "{shown}");
    assert!(shown.contains("$redacted"));
    assert!(shown.contains(r#""x":1"#));
}

/// JSON with line breaks in it is stored, reopened, exported and imported like any other.
pub async fn json_over_several_lines_survives(harness: &Harness) {
    let journal = harness.journal().await;
    let pretty = Json::parse("{\n  \"a\": [\r\n    1, \"x\\ny\"\n  ]\n}").unwrap();
    let mut header = SessionHeader::new(key("a"));
    header.metadata.insert("pretty".into(), pretty.clone());
    journal.create(header).await.unwrap();
    let mut history = History::begin(&journal, &key("a")).await;
    let record = || RegisterSet::new(RegisterKey::new("pretty").unwrap(), pretty.clone()).into();
    history.append(vec![record()]).await.unwrap();
    history.append(vec![record(), message("behind")]).await.unwrap();
    drop(journal);
    let journal = harness.journal().await;
    let mut file = Vec::new();
    journal.export(&key("a"), &mut file).await.unwrap();
    let rename = rekindle_core::ImportOptions { rename: Some(key("b")), ..Default::default() };
    journal.import(&mut file.as_slice(), &rename).await.unwrap();
    for name in ["a", "b"] {
        let restored = journal.load(&key(name), None).await.unwrap();
        let value = restored.state.register("pretty").unwrap().to_value().unwrap();
        assert_eq!(value, pretty.to_value().unwrap());
        assert_eq!(restored.info.header.metadata["pretty"].to_value().unwrap(), value);
        assert!(journal.verify(&key(name), &Default::default()).await.unwrap().is_sound());
    }
}

/// What was meant for a session that is gone does not reach a later one of the same name: no
/// append, no renewal, no release.
pub async fn a_session_made_again_is_another_one(harness: &Harness) {
    let journal = harness.journal().await;
    harness.session(&journal, "a").await;
    let history = History::begin(&journal, &key("a")).await;
    let (owner, ttl) = (rekindle_core::OwnerId::new("old").unwrap(), std::time::Duration::from_secs(9));
    let lease = journal.store().acquire(&key("a"), &BranchId::main(), &owner, ttl).await.unwrap();
    let late = journal.prepare(&history.target().with_fence(lease.info.epoch), &[message("late")]).unwrap();
    harness.clock.advance(ttl);
    journal.clear_session(&key("a")).await.unwrap();
    harness.session(&journal, "a").await;
    let owner = rekindle_core::OwnerId::new("new").unwrap();
    journal.store().acquire(&key("a"), &BranchId::main(), &owner, ttl).await.unwrap();
    assert!(matches!(journal.store().append(&late).await.unwrap_err().kind(), ErrorKind::Fenced { .. }));
    assert!(journal.store().renew(&lease, ttl).await.is_err());
    assert!(journal.store().release(&lease).await.is_err());
    assert_eq!(journal.load(&key("a"), None).await.unwrap().head.seq, Seq::ZERO);
}
