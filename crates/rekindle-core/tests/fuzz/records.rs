//! Records of every kind, unknown ones too, and what they fold to.

use rekindle_core::codec::{Codec, Place, Redaction, Stamp};
use rekindle_core::*;
use rekindle_fuzz::fuzz;

use super::{before, golden_lines, json, session};

fn tags() -> Vec<String> {
    let tags =
        Record::KINDS.iter().flat_map(|kind| [format!("{{\"{kind}\":{{"), format!("{kind}@2"), format!("{kind}@0")]);
    tags.chain(["{\"new_kind\":{".to_owned()]).collect()
}

#[test]
fn each() {
    fuzz!("record").seeds(golden_lines("records.v1.jsonl")).words(tags()).bytes(|bytes| {
        let record = json::<Record>(bytes)?;
        let _ = (record.kind().to_owned(), Marks::of(std::slice::from_ref(&record)));
        let mut state = State::default();
        let _ = state.apply(&record);
        Some(())
    });
}

/// Lines of records as a whole session: each is applied, and the state is looked at and written again.
#[test]
fn folded() {
    let lines = golden_lines("records.v1.jsonl");
    let seeds = [lines.join("\n"), lines[..8].join("\n"), lines[8..].join("\n")];
    fuzz!("record-fold").seeds(seeds).words(tags()).memory(4 << 20, 512).text(|text| {
        let mut state = State::default();
        for line in text.lines() {
            let Ok(record) = serde_json::from_str::<Record>(line) else { continue };
            let _ = state.apply(&record);
        }
        let _ = (state.status(), state.open_effects().count(), state.waits().count());
        let _ = state.to_value();
        let _ = StateDiff::between(&State::default(), &state);
    });
}

/// Everything that can be written can be read: with limits, redaction and compression in between.
#[test]
fn through_the_codec() {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let plain = Codec::new().with_redaction(Redaction::none()).with_compression(0, 1);
    let codec = Codec::new();
    let stamp = || Stamp { after: before(), at: Timestamp(1), nonce: [3; 16] };
    let secret = r#"{"register_set":{"key":"k","value":{"api_key":"sk-1234567890abcdef","Authorization":"Bearer x"}}}"#;
    let seeds = golden_lines("records.v1.jsonl").into_iter().chain([secret.to_owned()]);
    let words =
        tags().into_iter().chain(["\"password\":", "\"token\":\"", "sk-ant-api03-", "Bearer "].map(String::from));
    fuzz!("record-codec").seeds(seeds).words(words).memory(8 << 20, 512).bytes(|bytes| {
        let Ok(record) = serde_json::from_slice::<Record>(bytes) else { return };
        let records = [record];
        if let Ok(frame) = plain.encode(place, stamp(), &records) {
            assert_eq!(plain.decode(place, &frame).unwrap().records, records);
        }
        if let Ok(frame) = codec.encode(place, stamp(), &records) {
            codec.check_link(place, &frame, before(), true).unwrap();
            let redacted = codec.decode(place, &frame).unwrap().records;
            let again = codec.encode(place, stamp(), &redacted).unwrap();
            assert_eq!(codec.decode(place, &again).unwrap().records, redacted);
        }
    });
}
