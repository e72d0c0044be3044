//! Frames that are chained, signed or sealed: what was changed is never taken for something else.

use rekindle_core::codec::{Codec, Frame, KeyService, Place, Wrapped};
use rekindle_core::*;
use rekindle_fuzz::{Fuzz, fuzz, repair};

use super::{before, codecs, ring, session};

/// Fuzzes the frames of one codec: only batches that were written are read.
fn check(fuzz: Fuzz, which: usize) {
    let (codec, frames) = codecs().swap_remove(which);
    let key = session("a");
    let place = Place { session: &key, branch: &BranchId::main() };
    let written: Vec<_> = frames.iter().map(|frame| codec.decode(place, frame).unwrap()).collect();
    // Frames of other keys and of none are spliced in.
    let others = codecs().into_iter().flat_map(|(_, frames)| frames).map(|frame| frame.to_bytes().to_vec());
    let seeds = frames.iter().map(|frame| frame.to_bytes().to_vec()).cycle().take(12).chain(others).collect::<Vec<_>>();
    fuzz.seeds(seeds).repair(repair::frame).memory(4 << 20, 256).bytes(|bytes| {
        let Ok(frame) = Frame::from_bytes(bytes.to_vec().into()) else { return false };
        if codec.check_link(place, &frame, before(), true).is_ok() && (codec.protects() || !frame.is_protected()) {
            let batch = codec.decode(place, &frame).unwrap();
            let known = codecs().into_iter().flat_map(|(codec, frames)| {
                frames.into_iter().map(move |frame| codec.decode(place, &frame).unwrap()).collect::<Vec<_>>()
            });
            assert!(known.into_iter().any(|known| known == batch), "{batch:?}");
        }
        if let (Ok(batch), true) = (codec.decode(place, &frame), codec.protects()) {
            assert!(written.contains(&batch), "{batch:?}");
        }
        true
    });
}

#[test]
fn chained() {
    check(fuzz!("frame-chained"), 0);
}

#[test]
fn signed() {
    check(fuzz!("frame-signed"), 2);
}

#[test]
fn signed_and_compressed() {
    check(fuzz!("frame-signed-compressed"), 3);
}

#[test]
fn sealed() {
    check(fuzz!("frame-sealed"), 4);
}

#[test]
fn sealed_and_compressed() {
    check(fuzz!("frame-sealed-compressed"), 5);
}

/// A wrapped key opens only as what was wrapped.
#[test]
fn wrapped_keys() {
    let ready = |future: std::pin::Pin<Box<dyn Future<Output = Result<Wrapped>> + Send + '_>>| now(future);
    let ring = ring("main").with_old("old", [9; 32]).unwrap();
    let wrapped = ready(ring.wrap(&[7; 32], b"context")).unwrap();
    fuzz!("wrapped-key").seeds([wrapped.bytes.clone()]).bytes(|bytes| {
        for key in ["main", "old", "none"] {
            let wrapped = Wrapped { key: key.into(), bytes: bytes.to_vec() };
            let _ = ring.is_current(&wrapped);
            if let Ok(secret) = now(ring.unwrap(&wrapped, b"context")) {
                assert_eq!((key, *secret), ("main", [7; 32]));
            }
            assert!(now(ring.unwrap(&wrapped, b"other")).is_err());
        }
    });
}

/// The result of a future that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("the ring of keys waits for something"),
    }
}

/// Base frames: all of them, in order, or an error.
#[test]
fn bases() {
    let key = session("a");
    let place = Place { session: &key, branch: &BranchId::main() };
    let codec = Codec::new().with_signing(ring("s"));
    let (one, two) = ([super::register("one")], [super::register("two")]);
    let head = Head { seq: Seq(9), hash: Hash::of(b"nine") };
    let frames = codec.encode_base(place, head, Timestamp(1), &[&one, &two]).unwrap();
    let seeds = frames.iter().map(|frame| frame.to_bytes().to_vec()).collect::<Vec<_>>();
    fuzz!("frame-base").seeds(seeds).repair(repair::frame).bytes(|bytes| {
        let Ok(frame) = Frame::from_bytes(bytes.to_vec().into()) else { return };
        for base in
            [vec![frame.clone()], vec![frames[0].clone(), frame.clone()], vec![frame.clone(), frames[1].clone()]]
        {
            if codec.check_base(place, head, &base, true).is_ok() {
                let read = |frame: &Frame| codec.decode(place, frame).unwrap().records;
                assert_eq!(base.iter().map(read).collect::<Vec<_>>(), frames.iter().map(read).collect::<Vec<_>>());
            }
        }
    });
}
