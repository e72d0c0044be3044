//! Ids, positions, hashes, cursors, verbatim JSON: the small things people and programs write.

use std::fmt::Display;
use std::str::FromStr;

use rekindle_core::values::{ValueKey, ValueKind};
use rekindle_core::*;
use rekindle_fuzz::fuzz;

/// A name that is accepted is short, has no control characters and is the same when it is read again.
fn check<T: FromStr<Err = Error> + Display + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(name) = text.parse::<T>() {
        assert_eq!(name.to_string(), text);
        assert!(text.len() <= MAX_ID_BYTES && !text.chars().any(char::is_control), "{text:?}");
    }
}

#[test]
fn ids() {
    let seeds =
        ["ses_01jcabcdef", "default", "main", "inbox", "messages", "memory/key", "a.b-c_d", "vm/1-2/4711/99/own_1"];
    fuzz!("ids").seeds(seeds).text(|text| {
        check::<SessionId>(text);
        check::<Namespace>(text);
        check::<BranchId>(text);
        check::<LogName>(text);
        check::<RegisterKey>(text);
        check::<OwnerId>(text);
        check::<QueueName>(text);
        check::<CheckpointId>(text);
        check::<EffectId>(text);
        let name = file_name(text);
        assert!(!name.contains(['/', '\\', '\0']) && name != "." && name != "..", "{name:?}");
        let _ = ValueKey::new(Namespace::new("n").unwrap(), ValueKind::HIGH_WATER, text);
    });
}

#[test]
fn positions() {
    let seeds = ["main:42", "a:b:7", "fork:0", "main:9223372036854775807"];
    fuzz!("positions").seeds(seeds).text(|text| {
        let _ = text.parse::<Status>();
        let position = text.parse::<Position>()?;
        assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
        assert!(position.seq <= Seq::MAX);
        let _ = (position.seq.next(), position.seq.previous());
        Ok::<(), Error>(())
    });
}

#[test]
fn hashes() {
    let seeds = [Hash::of(b"x").to_string(), Hash::default().to_string()];
    fuzz!("hashes")
        .seeds(seeds)
        .text(|text| text.parse::<Hash>().map(|hash| assert_eq!(hash.to_string(), text.to_lowercase())));
}

#[test]
fn cursors() {
    let cursor = Cursor { created_at: Timestamp(1_794_740_400_123_456), id: SessionId::new("ses_1").unwrap() };
    fuzz!("cursors").seeds([String::from(cursor)]).text(|text| {
        let cursor = Cursor::try_from(text.to_owned())?;
        assert_eq!(Cursor::try_from(String::from(cursor.clone())).unwrap(), cursor);
        Ok::<(), Error>(())
    });
}

#[test]
fn verbatim_json() {
    let seeds = [r#"{"a":[1,2.50,"\u00e9",null],"b":{"c":"d"}}"#, "[[[]]]", "1e2", "\"text\""];
    fuzz!("json").seeds(seeds).text(|text| {
        let json = Json::parse(text)?;
        let _ = (json.depth(), json.to_value());
        assert_eq!(Json::parse(json.as_str()).unwrap(), json);
        Ok::<(), Error>(())
    });
}
