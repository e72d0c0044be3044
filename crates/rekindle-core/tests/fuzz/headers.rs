//! Headers of sessions and their seals.

use rekindle_core::codec::{Codec, Described};
use rekindle_core::*;
use rekindle_fuzz::{Fuzz, fuzz};

use super::{golden_lines, json, ring, session};

fn header() -> SessionHeader {
    let mut header = SessionHeader::new(session("a"));
    header.agent = Some("payer".into());
    header.title = Some("title".into());
    header.tags = vec!["x".into(), "y".into()];
    header.labels.insert("team".into(), "one".into());
    header.metadata.insert("definition".into(), Json::from("agent.yaml"));
    header.incarnation = "first".into();
    header
}

/// Fuzzes stored headers of one codec: only what was stored is opened.
fn check(fuzz: Fuzz, codec: &Codec) {
    let other = SessionHeader { title: Some("another".into()), ..header() };
    let stored = [header(), other].map(|header| {
        let header = SessionHeader { genesis: codec.genesis(&header), ..header };
        codec.seal_header(&header, &Described { at: Seq(7), current: "other".parse().unwrap() }).unwrap()
    });
    let opened = stored.clone().map(|stored| codec.open_header(stored).unwrap());
    let seeds = stored.each_ref().map(|stored| serde_json::to_vec(stored).unwrap());
    let words = [
        "\"title\":",
        "\"sealed\":",
        "\"genesis\":",
        "\\\"v\\\":2",
        "\\\"key\\\":\\\"s\\\"",
        "\\\"data\\\":\\\"d1\\\"",
    ];
    fuzz.seeds(seeds).words(words).bytes(|bytes| {
        let read = json::<SessionHeader>(bytes)?;
        let _ = (read.is_encrypted(), read.matches_text("x"));
        let header = codec.open_header(read).ok().filter(|header| codec.check_genesis(header))?;
        assert!(!codec.protects() || opened.contains(&header), "{header:?}");
        Some(())
    });
}

#[test]
fn plain() {
    check(fuzz!("header-plain"), &Codec::new());
}

#[test]
fn signed() {
    check(fuzz!("header-signed"), &Codec::new().with_signing(ring("s")));
}

#[test]
fn sealed() {
    check(fuzz!("header-sealed"), &Codec::new().with_encryption(ring("e")));
}

/// Seals alone, in every form there was.
#[test]
fn seals() {
    let codecs = [Codec::new(), Codec::new().with_signing(ring("s")), Codec::new().with_encryption(ring("e"))];
    let seeds = golden_lines("sealed.v2.txt").into_iter().chain(["e AAAA".to_owned(), "s 0".to_owned()]);
    fuzz!("header-seal").seeds(seeds).words(["\"v\":2", "\"data\":\"d1\"", "\"key\":\"e\""]).text(|text| {
        for codec in &codecs {
            let stored = SessionHeader { sealed: Some(text.to_owned()), ..header() };
            let _ = (stored.is_encrypted(), codec.check_header(&stored));
            if let Ok(opened) = codec.open_header(stored) {
                assert_eq!(opened.key, header().key);
            }
        }
    });
}
