//! The codec against honest and hostile bytes.

use super::*;
use crate::id::{RegisterKey, SessionId};
use crate::json::Json;
use crate::record::RegisterSet;

fn session(name: &str) -> SessionKey {
    SessionId::new(name).unwrap().into()
}

fn stamp() -> Stamp {
    Stamp { after: Head { seq: Seq(4), hash: Hash::of(b"before") }, at: Timestamp(7), nonce: [1; 16] }
}

fn records(size: usize) -> Vec<Record> {
    let key = RegisterKey::new("k").unwrap();
    vec![
        RegisterSet::new(key.clone(), Json::from("x".repeat(size).as_str())).into(),
        RegisterSet::new(key, Json::null()).into(),
    ]
}

fn ring(id: &str) -> KeyRing {
    KeyRing::new(id, [id.len() as u8; 32]).unwrap()
}

fn codecs() -> Vec<Codec> {
    vec![
        Codec::new(),
        Codec::new().without_compression(),
        Codec::new().with_signing(ring("s")),
        Codec::new().with_encryption(ring("e")),
        Codec::new().with_encryption(ring("e")).with_compression(0, 1),
    ]
}

#[test]
fn batches_round_trip_under_every_configuration() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    for codec in codecs() {
        for size in [0, 10, 100_000] {
            let frame = codec.encode(place, stamp(), &records(size)).unwrap();
            let read = Frame::from_bytes(frame.to_bytes()).unwrap();
            codec.check_link(place, &read, stamp().after, true).unwrap();
            let batch = codec.decode(place, &read).unwrap();
            assert_eq!((batch.first, batch.last, batch.records), (Seq(5), Seq(6), records(size)));
        }
    }
}

#[test]
fn encoding_is_deterministic_and_the_chain_ignores_compression() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let hash = |codec: Codec| codec.encode(place, stamp(), &records(50_000)).unwrap().hash;
    assert_eq!(hash(Codec::new()), hash(Codec::new().without_compression()));
    assert_ne!(hash(Codec::new()), hash(Codec::new().with_signing(ring("s"))));
    let codec = Codec::new().with_encryption(ring("e"));
    let twice = [(); 2].map(|()| codec.encode(place, stamp(), &records(9)).unwrap().to_bytes());
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn a_frame_opens_only_where_it_was_written() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let (other_key, other_branch) = (session("b"), BranchId::new("fork").unwrap());
    let codec = Codec::new().with_encryption(ring("e"));
    let frame = codec.encode(place, stamp(), &records(9)).unwrap();
    for wrong in [Place { session: &other_key, branch: &main }, Place { session: &key, branch: &other_branch }] {
        assert_eq!(codec.decode(wrong, &frame).unwrap_err().kind, DamageKind::Sealed);
    }
    let moved = Frame { first: Seq(6), last: Seq(7), ..frame.clone() };
    assert_eq!(codec.decode(place, &moved).unwrap_err().kind, DamageKind::Sealed);
    let replayed = Frame { prev: Hash::of(b"elsewhere"), ..frame };
    assert_eq!(codec.decode(place, &replayed).unwrap_err().kind, DamageKind::Sealed);
}

#[test]
fn signed_frames_notice_edits_even_with_a_right_checksum() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let codec = Codec::new().with_signing(ring("s"));
    let frame = codec.encode(place, stamp(), &records(9)).unwrap();
    let text = String::from_utf8(frame.payload.to_vec()).unwrap().replace("xxx", "yyy");
    let forged = Frame { payload: text.into(), ..frame };
    let forged = Frame::from_bytes(forged.to_bytes()).unwrap();
    assert_eq!(codec.decode(place, &forged).unwrap_err().kind, DamageKind::Sealed);
    assert!(Codec::new().decode(place, &forged).is_ok(), "without the key it is only text");
    assert_eq!(Codec::new().check_link(place, &forged, stamp().after, true).unwrap_err().kind, DamageKind::Key);
}

#[test]
fn keys_rotate_and_missing_ones_are_named() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let old = Codec::new().with_encryption(ring("old"));
    let new = Codec::new().with_encryption(KeyRing::new("new", [9; 32]).unwrap().with_old("old", [3; 32]).unwrap());
    let frame = old.encode(place, stamp(), &records(9)).unwrap();
    assert!(new.decode(place, &frame).is_ok());
    let frame = new.encode(place, stamp(), &records(9)).unwrap();
    let error = old.decode(place, &frame).unwrap_err().to_error(&key);
    assert_eq!(*error.kind(), ErrorKind::KeyMissing { key: "new".into() });
    let wrong = Codec::new().with_encryption(KeyRing::new("new", [8; 32]).unwrap());
    assert_eq!(wrong.decode(place, &frame).unwrap_err().kind, DamageKind::Sealed);
}

#[test]
fn a_frame_that_names_an_unknown_key_is_not_taken_for_signed() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let plain = Codec::new().encode(place, stamp(), &records(9)).unwrap();
    let forged = Frame { flags: KEYED, key: "nobody has it".into(), ..plain };
    for codec in [Codec::new().with_signing(ring("s")), Codec::new().with_encryption(ring("e"))] {
        assert_eq!(codec.decode(place, &forged).unwrap_err().kind, DamageKind::Key);
        assert_eq!(codec.accepting_unprotected().decode(place, &forged).unwrap_err().kind, DamageKind::Key);
    }
}

#[test]
fn line_breaks_between_tokens_become_spaces() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let pretty = Json::parse("{\n  \"a\": [\r\n1, \"x\\ny\"]\n}").unwrap();
    let record = RegisterSet::new(RegisterKey::new("k").unwrap(), pretty.clone()).into();
    for codec in codecs() {
        let frame = codec.encode(place, stamp(), std::slice::from_ref(&record)).unwrap();
        let line = frame.to_line(None::<()>).unwrap();
        assert_eq!(memchr::memchr_iter(b'\n', &line).collect::<Vec<_>>(), [line.len() - 1]);
        let (read, _) = Frame::from_line::<()>(&line[..line.len() - 1]).unwrap();
        let Record::RegisterSet(set) = &codec.decode(place, &read).unwrap().records[0] else { panic!("a register") };
        assert_eq!(set.value.to_value().unwrap(), pretty.to_value().unwrap());
    }
}

#[test]
fn the_same_records_elsewhere_or_compressed_otherwise_have_another_nonce() {
    let (here, there, main) = (session("a"), session("b"), BranchId::main());
    let codec = |level| Codec::new().with_compression(0, level).with_encryption(ring("e"));
    let frame =
        |session, level| codec(level).encode(Place { session, branch: &main }, stamp(), &records(5_000)).unwrap();
    let frames = [frame(&here, 1), frame(&there, 1), frame(&here, 19)];
    assert!(frames.iter().all(|frame| frame.hash == frames[0].hash), "the chain does not care");
    let nonces: std::collections::HashSet<_> = frames.iter().map(|frame| frame.payload[..24].to_vec()).collect();
    assert_eq!(nonces.len(), 3);
}

#[test]
fn redaction_never_makes_a_batch_unreadable() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let codec = Codec::new().with_limits(Limits::default().with_batch_bytes(20_000));
    let items = Json::parse(format!("[{}]", vec![r#"{"api_key":1}"#; 1_000].join(","))).unwrap();
    let record: Record = RegisterSet::new(RegisterKey::new("k").unwrap(), items).into();
    let error = codec.encode(place, stamp(), &[record]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error:?}");
}

#[test]
fn unprotected_frames_are_refused_once_a_key_is_set() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let plain = Codec::new().encode(place, stamp(), &records(9)).unwrap();
    let strict = Codec::new().with_encryption(ring("e"));
    assert_eq!(strict.decode(place, &plain).unwrap_err().kind, DamageKind::Unprotected);
    assert!(strict.accepting_unprotected().decode(place, &plain).is_ok());
}

#[test]
fn limits_are_enforced_on_the_way_in_and_out() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let small = || Codec::new().with_limits(Limits::default().with_record_bytes(100).with_batch_bytes(150));
    for (codec, records, what) in [
        (small(), records(200), "bytes of a `register_set` record"),
        (small(), [records(40), records(40)].concat(), "bytes per batch"),
        (Codec::new(), deep(200), "depth of a value"),
    ] {
        let error = codec.encode(place, stamp(), &records).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { what: found, .. } if found == what), "{error:?}");
        assert_eq!(error.session(), Some(&key));
    }
    assert_eq!(Codec::new().encode(place, stamp(), &[]).unwrap_err().code(), "RK0001");
    let bomb = Codec::new().encode(place, stamp(), &records(1_000_000)).unwrap();
    let damage = small().decode(place, &bomb).unwrap_err();
    assert!(damage.detail.contains("decompresses to more than"), "{damage:?}");
}

fn deep(levels: usize) -> Vec<Record> {
    let json = Json::parse(format!("{}{}", "[".repeat(levels), "]".repeat(levels))).unwrap();
    vec![RegisterSet::new(RegisterKey::new("k").unwrap(), json).into()]
}

#[test]
fn headers_are_redacted_sealed_and_bound_to_their_session() {
    let mut header = SessionHeader::new(session("a"));
    header.title = Some("secret plan".into());
    header.metadata.insert("api_key".into(), Json::from("sk-1"));
    header.labels.insert("access-token".into(), "sk-1".into());
    let codec = Codec::new().with_encryption(ring("e"));
    header.genesis = codec.genesis(&header);
    let stored = codec.seal_header(&header, &Described::default()).unwrap();
    let written = serde_json::to_string(&stored).unwrap();
    assert!(!written.contains("secret plan") && !written.contains("sk-1"), "{written}");
    let opened = codec.open_header(stored.clone()).unwrap();
    assert_eq!(opened.title.as_deref(), Some("secret plan"));
    assert!(!opened.metadata["api_key"].as_str().contains("sk-1"));
    assert!(codec.check_genesis(&opened));
    let moved = SessionHeader { key: session("b"), ..stored.clone() };
    assert_eq!(codec.open_header(moved).unwrap_err().code(), "RK0011");
    assert!(matches!(Codec::new().open_header(stored).unwrap_err().kind(), ErrorKind::KeyMissing { .. }));
    let forged = SessionHeader { agent: Some("other".into()), ..opened.clone() };
    assert!(!codec.check_genesis(&forged));
    let in_clear = SessionHeader { title: Some("forged".into()), sealed: None, ..opened };
    assert_eq!(codec.open_header(in_clear).unwrap_err().code(), "RK0011");
}

/// A codec with a data key for the session `a`.
fn with_data_key() -> Codec {
    let codec = Codec::new().with_encryption(ring("e")).strict();
    learn(&codec, [5; 32]);
    codec
}

fn learn(codec: &Codec, secret: [u8; 32]) {
    let key = DataKey::new("d1".into(), "first".into(), &secret);
    codec.learn(&SessionHeader::new(session("a")), Standing::Data(Arc::new(key)));
}

#[test]
fn without_its_data_key_a_frame_can_still_be_put_in_order() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let codec = with_data_key();
    let frame = codec.encode(place, stamp(), &records(5_000)).unwrap();
    assert_eq!((frame.key_id(), frame.is_protected(), frame.has_data_key()), ("d1", true, true));
    let bytes = frame.to_bytes();
    let main_key = Codec::new().with_encryption(ring("e")).encode(place, stamp(), &records(5_000)).unwrap();
    assert_eq!(bytes.len(), main_key.to_bytes().len() + 1, "one byte, since `d1` is longer than `e`");
    for read in [
        Frame::from_bytes(bytes).unwrap(),
        Frame::from_line::<()>(frame.to_line(None::<()>).unwrap().trim_ascii_end()).unwrap().0,
    ] {
        assert_eq!(codec.decode(place, &read).unwrap().records, records(5_000));
        codec.check_link(place, &read, stamp().after, true).unwrap();
        // Nobody has the key any more.
        let shredded = Codec::new().with_encryption(ring("e")).strict();
        shredded.check_link(place, &read, stamp().after, true).unwrap();
        assert_eq!(shredded.decode(place, &read).unwrap_err().kind, DamageKind::Key);
        let mut payload = read.payload.to_vec();
        payload[40] ^= 1;
        let altered = Frame { payload: payload.into(), ..read.clone() };
        assert_eq!(shredded.check_link(place, &altered, stamp().after, true).unwrap_err().kind, DamageKind::Chain);
        // Whoever makes the hash fit does not have the key.
        let forged = Frame { hash: sealed_hash(&main, &altered), ..altered };
        assert_eq!(codec.check_link(place, &forged, stamp().after, true).unwrap_err().kind, DamageKind::Sealed);
        let moved = Frame { prev: Hash::of(b"elsewhere"), ..read.clone() };
        assert_eq!(codec.decode(place, &moved).unwrap_err().kind, DamageKind::Sealed);
    }
    let other = Codec::new().with_encryption(ring("e"));
    learn(&other, [6; 32]);
    assert_eq!(other.decode(place, &frame).unwrap_err().kind, DamageKind::Sealed);
}

/// Frames under a data key are read as what was written, or not at all, with and without the key.
#[test]
fn fuzzed_frames_with_data_keys() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let codec = with_data_key();
    let frames = [1, 2_000].map(|size| codec.encode(place, stamp(), &records(size)).unwrap());
    let written = frames.each_ref().map(|frame| codec.decode(place, frame).unwrap());
    let shredded = Codec::new().with_encryption(ring("e")).strict();
    let seeds = frames.each_ref().map(|frame| frame.to_bytes().to_vec());
    let repair = rekindle_fuzz::repair::frame;
    rekindle_fuzz::fuzz!("frame-data-key").seeds(seeds).repair(repair).memory(4 << 20, 256).bytes(|bytes| {
        let frame = Frame::from_bytes(bytes.to_vec().into()).ok()?;
        let batch = codec.decode(place, &frame).ok();
        // The hash covers the seal and not the other way round: it is the link that checks it.
        let linked = codec.check_link(place, &frame, stamp().after, true).is_ok();
        let is_written = |batch: &Batch| {
            let same = |known: &Batch| known.records == batch.records && (!linked || known == batch);
            written.iter().any(same)
        };
        assert!(batch.as_ref().is_none_or(is_written), "{batch:?}");
        assert!(!frame.has_data_key() || shredded.decode(place, &frame).is_err());
        if frame.has_data_key() && linked {
            assert!(shredded.check_link(place, &frame, stamp().after, true).is_ok() && batch.is_some());
        }
        batch
    });
}

/// The same of headers.
#[test]
fn fuzzed_headers_with_data_keys() {
    let codec = with_data_key();
    let mut header = SessionHeader::new(session("a"));
    header.title = Some("title".into());
    header.incarnation = "first".into();
    header.genesis = codec.genesis(&header);
    let stored = codec.seal_header(&header, &Described::default()).unwrap();
    rekindle_fuzz::fuzz!("header-data-key").seeds([serde_json::to_vec(&stored).unwrap()]).bytes(|bytes| {
        let read: SessionHeader = serde_json::from_slice(bytes).ok()?;
        let _ = (read.key_named(), read.is_protected());
        let opened = codec.open_header(read).ok().filter(|opened| codec.check_genesis(opened))?;
        assert_eq!(opened, header);
        Some(())
    });
}

#[test]
fn nothing_is_written_without_the_key_of_a_session() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let never_opened = Codec::new().with_encryption(ring("e")).strict();
    assert_eq!(*never_opened.encode(place, stamp(), &records(1)).unwrap_err().kind(), ErrorKind::Invalid);
    let mut header = SessionHeader::new(key.clone());
    let check = |writer: Codec, reader: Codec, expected: Option<&str>, header: &mut SessionHeader| {
        header.genesis = writer.genesis(header);
        let stored = writer.seal_header(header, &Described::default()).unwrap();
        reader.learn(&stored, reader.standing_without_data_key(&stored));
        let written = reader.encode(place, stamp(), &records(1));
        let missing = written.err().map(|error| match error.kind() {
            ErrorKind::KeyMissing { key } => key.clone(),
            other => format!("{other:?}"),
        });
        assert_eq!(missing.as_deref(), expected);
        reader.seal_header(header, &Described::default()).err().is_some()
    };
    let signing = || Codec::new().with_signing(ring("s"));
    assert!(!check(Codec::new(), Codec::new(), None, &mut header));
    assert!(!check(signing(), signing(), None, &mut header));
    assert!(check(signing(), Codec::new(), Some("s"), &mut header));
    assert!(check(signing(), Codec::new().with_signing(ring("other")), Some("s"), &mut header));
    assert!(check(Codec::new().with_encryption(ring("e")), Codec::new(), Some("e"), &mut header));
    assert!(check(with_data_key(), Codec::new(), Some("d1"), &mut header));
    assert!(check(with_data_key(), Codec::new().with_encryption(ring("e")), Some("d1"), &mut header));
}

#[test]
fn a_header_fits_only_its_own_session_and_only_whole() {
    let mut header = SessionHeader::new(session("a"));
    header.agent = Some("payer".into());
    header.title = Some("title".into());
    header.tags = vec!["x".into(), "y".into()];
    header.labels.insert("team".into(), "one".into());
    header.metadata.insert("definition".into(), Json::from("agent.yaml"));
    header.incarnation = "first".into();
    let described = Described { at: Seq(7), current: BranchId::new("other").unwrap() };
    for codec in [Codec::new(), Codec::new().with_signing(ring("s")), with_data_key()] {
        let header = SessionHeader { genesis: codec.genesis(&header), ..header.clone() };
        let stored = codec.seal_header(&header, &described).unwrap();
        assert_eq!(codec.open_described(stored.clone()).unwrap(), (header.clone(), Some(described.clone())));
        let check = |change: &dyn Fn(&mut SessionHeader)| {
            let mut changed = stored.clone();
            change(&mut changed);
            assert!(codec.open_header(changed.clone()).is_err(), "{changed:?}");
        };
        check(&|header| header.agent = Some("other".into()));
        check(&|header| header.title = Some("other".into()));
        check(&|header| header.tags = vec!["xy".into()]);
        check(&|header| drop(header.labels.insert("team".into(), "two".into())));
        check(&|header| drop(header.metadata.insert("definition".into(), Json::from("evil.yaml"))));
        check(&|header| header.key = session("b"));
        check(&|header| header.incarnation = "second".into());
        check(&|header| header.parent = Some(session("p")));
        check(&|header| header.sealed = header.sealed.take().map(|seal| seal.replace("\"at\":7", "\"at\":8")));
        check(&|header| header.sealed = header.sealed.take().map(|seal| seal.replace("other", "third")));
        check(&|header| header.sealed = Some("{".into()));
        // Without a key there is nothing to hold on to.
        if codec.protects() {
            check(&|header| header.sealed = None);
            let plain = Codec::new().seal_header(&header, &described).unwrap();
            assert!(codec.open_header(plain).is_err());
        }
    }
}

#[test]
fn only_who_has_the_key_begins_a_branch() {
    let mut header = SessionHeader::new(session("a"));
    let (fork, from) = (BranchId::new("fork").unwrap(), Position::new(BranchId::main(), Seq(4)));
    let hash = Hash::of(b"at 4");
    let starts = [Codec::new(), Codec::new().with_signing(ring("s")), with_data_key()].map(|codec| {
        header.genesis = codec.genesis(&header);
        assert!(codec.check_genesis(&header));
        let start = codec.root(&header).fork_start(&fork, &from, hash).unwrap();
        if codec.protects() {
            assert_eq!(Codec::new().root(&header).fork_start(&fork, &from, hash), None);
            let other = codec.root(&header).fork_start(&fork, &Position::new(BranchId::main(), Seq(3)), hash);
            assert_ne!(other, Some(start));
        }
        start
    });
    assert_eq!(starts[0], hash, "plain sessions keep their chain");
    assert!(starts[1] != hash && starts[2] != hash && starts[1] != starts[2]);
    // What was begun before headers were sealed stays as it was.
    let signing = Codec::new().with_signing(ring("s"));
    header.genesis = signing.first_genesis(&header);
    assert_eq!(signing.root(&header).fork_start(&fork, &from, hash), Some(hash));
}

proptest::proptest! {
    #[test]
    fn no_seal_makes_the_reader_panic(text: String, at: u64) {
        for text in [text.clone(), format!("{{\"v\":2,\"at\":{at},\"data\":{text:?}}}"), format!("{{\"v\":2,\"sealed\":{text:?},\"key\":\"e\"}}")] {
            let header = SessionHeader { sealed: Some(text), ..SessionHeader::new(session("a")) };
            let _ = (header.is_encrypted(), header.key_named());
            for codec in codecs() {
                let _ = codec.open_header(header.clone());
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, flags: u8, payload: Vec<u8>) {
        let (key, main) = (session("a"), BranchId::main());
        let place = Place { session: &key, branch: &main };
        let _ = Frame::from_bytes(bytes.clone().into());
        let _ = Frame::from_line::<()>(&bytes);
        let frame = Frame { flags: flags & 63, payload: payload.into(), key: "e".into(), ..frame::example() };
        for codec in codecs() {
            let _ = codec.accepting_unprotected().decode(place, &frame);
        }
    }
}

#[test]
fn damage_names_version_and_key_whatever_its_text_says() {
    let (key, main) = (session("a"), BranchId::main());
    let damage = |kind, text| Damage::new(kind, main.clone(), Seq(7), Seq(8), text);
    let check = |damage: Damage, expected: ErrorKind| {
        assert_eq!(*damage.to_error(&key).kind(), expected);
        let text = serde_json::to_string(&damage).unwrap();
        assert_eq!(serde_json::from_str::<Damage>(&text).unwrap(), damage);
    };
    let supported = u32::from(FORMAT_VERSION);
    let newer = |found| ErrorKind::VersionTooNew { what: "frame".into(), found, supported };
    let version = damage(DamageKind::Version, "the line at byte 4711 has format version 9");
    check(Damage { found_version: Some(9), ..version.clone() }, newer(9));
    check(version, newer(supported + 1));
    let missing = damage(DamageKind::Key, "is encrypted with a key that was not given");
    check(Damage { key: Some("a`b".into()), ..missing.clone() }, ErrorKind::KeyMissing { key: "a`b".into() });
    check(missing, ErrorKind::KeyMissing { key: String::new() });
}

#[test]
fn damage_as_it_was_written_before_is_still_read() {
    let text = r#"{"kind":"key","branch":"main","first":3,"last":4,"detail":"is sealed"}"#;
    let damage: Damage = serde_json::from_str(text).unwrap();
    assert_eq!((damage.found_version, &damage.key), (None, &None));
    assert_eq!(serde_json::to_string(&damage).unwrap(), text);
}

/// The bytes of what sessions with keys have since they have data keys: `tests/golden/sealed.v2.txt`.
#[test]
fn sealed_sessions_keep_their_bytes() {
    use std::fmt::Write as _;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/sealed.v2.txt");
    let mut header = SessionHeader::new(session("a"));
    header.title = Some("title".into());
    header.metadata.insert("n".into(), Json::from("1"));
    header.incarnation = "first".into();
    let described = Described { at: Seq(3), current: BranchId::new("fork").unwrap() };
    let (fork, from) = (BranchId::new("fork").unwrap(), Position::new(BranchId::main(), Seq(4)));
    let place = Place { session: &session("a"), branch: &BranchId::main() };
    let mut written = String::new();
    for (name, codec) in
        [("plain", Codec::new()), ("signed", Codec::new().with_signing(ring("s"))), ("sealed", with_data_key())]
    {
        header.genesis = codec.genesis(&header);
        let seal = codec.seal_header(&header, &described).unwrap().sealed.unwrap();
        let start = codec.root(&header).fork_start(&fork, &from, Hash::of(b"at 4")).unwrap();
        writeln!(written, "{name} genesis {}\n{name} fork {start}\n{name} seal {seal}", header.genesis).unwrap();
    }
    let frame = with_data_key().encode(place, stamp(), &records(9)).unwrap();
    let hex: String = frame.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let line = String::from_utf8(frame.to_line(None::<()>).unwrap()).unwrap();
    write!(written, "frame {hex}\nline {line}").unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &written).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), written);
}
