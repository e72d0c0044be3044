//! Golden bytes: what each release wrote must still be read, and what this one writes must not
//! change by accident. `records.v1.jsonl` holds one record of every kind; `frames.v1.txt` holds
//! frames in their binary form, as hex, and as lines.
//!
//! To add a record or a field, add to the end of `examples`, run with `UPDATE_GOLDEN=1` and
//! check the difference; a line that is already there must never change.

use std::fmt::Write as _;
use std::path::PathBuf;

use rekindle_core::codec::{Codec, Frame, KeyRing, Place, Stamp};
use rekindle_core::record::*;
use rekindle_core::*;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn check(name: &str, written: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden(name), written).unwrap();
    }
    let kept = std::fs::read_to_string(golden(name)).unwrap();
    assert_eq!(kept, written, "the stored form changed; see the head of golden.rs");
}

fn id<T: std::str::FromStr<Err = Error>>(text: &str) -> T {
    text.parse().unwrap()
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn extra() -> Extra {
    Extra::new()
}

/// One record of every kind with every field set, and one of each with as little as possible.
fn examples() -> Vec<Record> {
    let usage = Usage { input_tokens: 1200, output_tokens: 34, cost_micros: 5600 };
    let hash = Hash::of(b"golden");
    vec![
        LogAppend::new(id("messages"), vec![json(r#"{"role":"user","content":"hi"}"#), json("1.0")]).into(),
        LogAppendOutcomes::new(id("messages"), vec![id("call_1"), id("call_2")]).into(),
        LogSplice::new(id("messages"), 3, 1, vec![json("\"edited\"")]).into(),
        RegisterSet::new(id("loop"), json(r#"{"iteration":3}"#)).into(),
        RegisterUnset::new(id("loop")).into(),
        EffectIntent {
            effect: id("call_1"),
            kind: EffectKind::Tool,
            name: "send_mail".into(),
            version: Some("2".into()),
            arguments_hash: hash,
            arguments: Some(json(r#"{"to":"a@example.org"}"#)),
            attempt: 2,
            idempotency_key: "run_1/call_1".into(),
            policy: InDoubtPolicy::Idempotent,
            run: Some(id("run_1")),
            step: Some("7".into()),
            child: Some(SessionKey::new(id("default"), id("ses_child"))),
            extra: extra(),
        }
        .into(),
        EffectOutcome {
            effect: id("call_1"),
            attempt: 2,
            status: OutcomeStatus::ToolError,
            value: Some(json("[null]")),
            error: Some("refused".into()),
            duration_micros: 1500,
            usage,
            synthetic: true,
            extra: extra(),
        }
        .into(),
        EffectPartial { effect: id("call_1"), attempt: 2, value: json("\"Once upon\""), extra: extra() }.into(),
        Checkpoint {
            parent: Some(id("ckpt_0")),
            source: CheckpointSource::Input,
            trigger: CheckpointTrigger::Manual,
            kind: CheckpointType::NodeComplete,
            step: 9,
            description: "before the mail goes out".into(),
            run: Some(id("run_1")),
            active_micros: 42,
            usage,
            clean: false,
            resumable: false,
            fingerprint: Some(hash),
            pinned: true,
            tags: vec!["release".into()],
            ..Checkpoint::new(id("ckpt_1"))
        }
        .into(),
        Checkpoint::new(id("ckpt_2")).into(),
        CheckpointRemoved { checkpoints: vec![id("ckpt_1")], reason: "retention".into(), extra: extra() }.into(),
        CheckpointMarked { checkpoint: id("ckpt_2"), pinned: Some(false), tags: Some(vec![]), extra: extra() }.into(),
        CheckpointSubstituted {
            wanted: id("ckpt_2"),
            used: id("ckpt_0"),
            reason: "damaged".into(),
            author: Some("ada".into()),
            extra: extra(),
        }
        .into(),
        RunStarted {
            run: id("run_2"),
            executor: "agent".into(),
            continues: Some(id("run_1")),
            fingerprint: Some(hash),
            durability: Durability::Exit,
            weakened: vec!["pending_writes=false".into()],
            evicted: None,
            extra: extra(),
        }
        .into(),
        RunState { run: id("run_2"), state: RunStateKind::Waiting, extra: extra() }.into(),
        RunEnded {
            run: id("run_2"),
            outcome: RunOutcome::Failed,
            reason: "the model is gone".into(),
            code: Some("RK0016".into()),
            extra: extra(),
        }
        .into(),
        WaitOpened {
            wait: id("wait_1"),
            kind: WaitKind::Approval,
            prompt: "send it?".into(),
            effect: Some(id("call_1")),
            arguments: Some(json("{}")),
            digest: Some(hash),
            schema: Some(json(r#"{"type":"boolean"}"#)),
            approvals: 2,
            remind_at: Some(Timestamp(1)),
            expires_at: Some(Timestamp(2)),
            default: Some(json("false")),
            run: Some(id("run_2")),
            extra: extra(),
        }
        .into(),
        WaitDecision {
            wait: id("wait_1"),
            decision: Decision::Approve,
            author: "ada".into(),
            credential: None,
            claimed: false,
            value: Some(json("true")),
            arguments: Some(json("{}")),
            digest: Some(hash),
            reason: "fine".into(),
            extra: extra(),
        }
        .into(),
        WaitReminded { wait: id("wait_1"), extra: extra() }.into(),
        WaitClosed { wait: id("wait_1"), reason: WaitCloseReason::Expired, value: Some(json("false")), extra: extra() }
            .into(),
        InboxMessage {
            message: id("msg_1"),
            mode: InboxMode::Steer,
            content: json("\"shorter, please\""),
            author: Some("ada".into()),
            run: None,
            extra: extra(),
        }
        .into(),
        InboxCommand {
            message: id("msg_2"),
            command: Command::Interrupt,
            only_run: Some(id("run_2")),
            author: Some("ada".into()),
            reason: "enough".into(),
            extra: extra(),
        }
        .into(),
        InboxAnswer {
            message: id("msg_3"),
            wait: id("wait_1"),
            decision: Decision::Reject,
            author: "bob".into(),
            credential: None,
            claimed: false,
            value: None,
            arguments: None,
            digest: Some(hash),
            reason: "no".into(),
            extra: extra(),
        }
        .into(),
        InboxTaken { through: Seq(3), extra: extra() }.into(),
        Edit { author: "ada".into(), reason: "typo".into(), extra: extra() }.into(),
        DriftAccepted {
            from: hash,
            to: Hash::of(b"new"),
            changes: vec!["tool `x` removed".into()],
            author: "ada".into(),
            reason: "planned".into(),
            extra: extra(),
        }
        .into(),
        StaleAccepted {
            expected: Head { seq: Seq(4), hash },
            actual: Head { seq: Seq(5), hash },
            author: "ada".into(),
            reason: String::new(),
            extra: extra(),
        }
        .into(),
        BudgetRaised {
            budget: "tokens".into(),
            from: json("1000"),
            to: json("2000"),
            author: "ada".into(),
            reason: "more".into(),
            extra: extra(),
        }
        .into(),
        SessionDescribed {
            title: Some("Mail".into()),
            tags: Some(vec!["a".into()]),
            labels: Some([("team".to_owned(), "x".to_owned())].into()),
            metadata: Some([("n".to_owned(), json("[1]"))].into()),
            current: None,
            extra: extra(),
        }
        .into(),
        RunStarted { evicted: Some(id("vm/1-2/4711/99/own_1")), ..RunStarted::new(id("run_3"), "agent") }.into(),
        WaitExpired { wait: id("wait_1"), extra: extra() }.into(),
        Accepted {
            what: Accepted::ROLLED_BACK.into(),
            author: "ada".into(),
            reason: "the disk was restored".into(),
            heads_before: [(BranchId::main(), Head { seq: Seq(9), hash })].into(),
            extra: extra(),
        }
        .into(),
        SessionDescribed { current: Some(id("fork")), ..SessionDescribed::default() }.into(),
        HistoryLost {
            branch: BranchId::main(),
            from: Seq(41),
            through: Seq(44),
            detail: "the checksum does not fit the bytes".into(),
            calls: vec![id("call_1")],
            turn: Some(2),
            author: Some("maria".into()),
            extra: extra(),
        }
        .into(),
        HistoryLost::new(BranchId::inbox(), Seq(3), Seq(3)).into(),
    ]
}

#[test]
fn every_kind_of_record_keeps_its_form() {
    let mut written = String::new();
    for record in examples() {
        writeln!(written, "{}", serde_json::to_string(&record).unwrap()).unwrap();
    }
    check("records.v1.jsonl", &written);
    for (line, record) in written.lines().zip(examples()) {
        assert_eq!(serde_json::from_str::<Record>(line).unwrap(), record);
    }
    for kind in Record::KINDS {
        assert!(examples().iter().any(|record| record.kind() == *kind), "no example of `{kind}`");
    }
}

#[test]
fn checkpoints_of_graphs_name_their_node_and_what_comes_next() {
    let record: Record = Checkpoint {
        kind: CheckpointType::NodeComplete,
        node: Some("fetch".into()),
        next: vec!["judge".into()],
        ..Checkpoint::new(id("ckpt_3"))
    }
    .into();
    let text = r#"{"checkpoint":{"id":"ckpt_3","type":"node_complete","node":"fetch","next":["judge"]}}"#;
    assert_eq!(serde_json::to_string(&record).unwrap(), text);
    assert_eq!(serde_json::from_str::<Record>(text).unwrap(), record);
}

#[test]
fn messages_of_the_inbox_may_name_the_run_that_begins_with_them() {
    let record: Record =
        InboxMessage { run: Some(id("run_3")), ..InboxMessage::new(id("msg_4"), json("\"hello\"")) }.into();
    let text = r#"{"inbox_message":{"message":"msg_4","mode":"queue","content":"hello","run":"run_3"}}"#;
    assert_eq!(serde_json::to_string(&record).unwrap(), text);
    assert_eq!(serde_json::from_str::<Record>(text).unwrap(), record);
}

#[test]
fn frames_keep_their_bytes_under_every_codec() {
    let session: SessionKey = id::<SessionId>("golden").into();
    let branch = BranchId::main();
    let place = Place { session: &session, branch: &branch };
    let stamp = Stamp {
        after: Head { seq: Seq(10), hash: Hash::of(b"before") },
        at: Timestamp(1_794_740_400_123_456),
        nonce: [7; 16],
    };
    let ring = || KeyRing::new("golden-key", [3; 32]).unwrap();
    let codecs = [
        ("plain", Codec::new().without_compression()),
        ("signed", Codec::new().without_compression().with_signing(ring())),
        ("sealed", Codec::new().without_compression().with_encryption(ring())),
    ];
    let mut written = String::new();
    for (name, codec) in &codecs {
        let frame = codec.encode(place, stamp, &examples()[..4]).unwrap();
        let hex: String = frame.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let line = String::from_utf8(frame.to_line(Some("store")).unwrap()).unwrap();
        write!(written, "{name} {hex}\n{line}").unwrap();
    }
    check("frames.v1.txt", &written);
    let lines: Vec<&str> = written.lines().collect();
    for (pair, (_, codec)) in lines.chunks_exact(2).zip(&codecs) {
        let hex = pair[0].split_once(' ').unwrap().1;
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
        let binary = Frame::from_bytes(bytes.into()).unwrap();
        let (line, store) = Frame::from_line::<String>(pair[1].as_bytes()).unwrap();
        assert_eq!((&line, store.as_deref()), (&binary, Some("store")));
        codec.check_link(place, &binary, stamp.after, true).unwrap();
        assert_eq!(codec.decode(place, &binary).unwrap().records, examples()[..4]);
    }
}

/// zstd's output may change between its versions, so compressed bytes are only read.
#[test]
fn compressed_frames_of_every_release_are_read() {
    let session: SessionKey = id::<SessionId>("golden").into();
    let branch = BranchId::main();
    let place = Place { session: &session, branch: &branch };
    let stamp = Stamp { after: Head { seq: Seq(0), hash: Hash::of(b"before") }, at: Timestamp(1), nonce: [7; 16] };
    let codec = Codec::new().with_compression(0, 3);
    let path = golden("compressed.v1.bin");
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !path.exists() {
        std::fs::write(&path, codec.encode(place, stamp, &examples()).unwrap().to_bytes()).unwrap();
    }
    let frame = Frame::from_bytes(std::fs::read(path).unwrap().into()).unwrap();
    codec.check_link(place, &frame, stamp.after, true).unwrap();
    // Examples that were added since stand behind those it holds.
    let records = codec.decode(place, &frame).unwrap().records;
    assert!(records.len() >= 28, "{}", records.len());
    assert_eq!(records, examples()[..records.len()]);
}
