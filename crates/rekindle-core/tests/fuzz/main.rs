//! The decoders of the core against mutated and arbitrary input; see `docs/fuzzing.md`.
#![allow(clippy::unwrap_used)]

mod frames;
mod headers;
mod names;
mod objects;
mod protected;
mod records;

use std::fmt::Debug;
use std::path::PathBuf;

use rekindle_core::codec::{Codec, KeyRing, Place, Stamp};
use rekindle_core::record::RegisterSet;
use rekindle_core::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

fn golden(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The lines of a golden file that are a JSON object.
fn golden_lines(name: &str) -> Vec<String> {
    golden(name).lines().filter_map(|line| line.find('{').map(|at| line[at..].to_owned())).collect()
}

/// The binary frames of a golden file, which are in hex behind their names.
fn golden_frames(name: &str) -> Vec<Vec<u8>> {
    let unhex = |hex: &str| {
        let digits = hex.as_bytes().chunks_exact(2);
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect::<Option<Vec<u8>>>()
    };
    let frames = golden(name);
    let frames = frames.lines().filter_map(|line| unhex(line.split_once(' ')?.1));
    frames.filter(|bytes| bytes.starts_with(b"RKJ")).collect()
}

fn session(name: &str) -> SessionKey {
    SessionId::new(name).unwrap().into()
}

fn ring(id: &str) -> KeyRing {
    KeyRing::new(id, [id.len() as u8; 32]).unwrap()
}

fn before() -> Head {
    Head { seq: Seq(4), hash: Hash::of(b"before") }
}

fn register(text: &str) -> Record {
    RegisterSet::new("k".parse().unwrap(), Json::from(text)).into()
}

/// Codecs with every kind of protection, and frames that each wrote behind the same record.
fn codecs() -> Vec<(Codec, Vec<codec::Frame>)> {
    let (key, main) = (session("a"), BranchId::main());
    let place = Place { session: &key, branch: &main };
    let codecs = [
        Codec::new(),
        Codec::new().with_compression(0, 1),
        Codec::new().with_signing(ring("s")),
        Codec::new().with_signing(ring("s")).with_compression(0, 1),
        Codec::new().with_encryption(ring("e")),
        Codec::new().with_encryption(ring("e")).with_compression(0, 1),
    ];
    let written = |codec: Codec| {
        // A payload may declare any size up to the limit of a batch, and that much is made ready for it.
        let codec = codec.with_limits(codec::Limits::default().with_batch_bytes(1 << 20));
        let batches =
            [vec![register("one")], vec![register("two"), register("three")], vec![register(&"x".repeat(300))]];
        let stamp = |nonce: u8| Stamp { after: before(), at: Timestamp(7), nonce: [nonce; 16] };
        let frames = batches.iter().zip(1..).map(|(batch, nonce)| codec.encode(place, stamp(nonce), batch).unwrap());
        let frames = frames.collect();
        (codec, frames)
    };
    codecs.into_iter().map(written).collect()
}

/// Reads JSON; what was read is the same after it was written and read again.
fn json<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let written = serde_json::to_vec(&value).unwrap();
    assert_eq!(serde_json::from_slice::<T>(&written).unwrap(), value);
    Some(value)
}
