//! Frames in their binary form and as lines.

use rekindle_core::codec::{Frame, Place, object_from_line};
use rekindle_core::*;
use rekindle_fuzz::{fuzz, repair};

use super::{codecs, golden_frames, golden_lines, session};

/// Binary frames of every form.
fn frames() -> Vec<Frame> {
    let mut frames: Vec<Frame> = codecs().into_iter().flat_map(|(_, frames)| frames).collect();
    let detached: Vec<Frame> = frames.iter().map(|frame| frame.detach("s3://bucket/value")).collect();
    frames.extend(detached);
    let golden = ["frames.v1.txt", "sealed.v2.txt"].into_iter().flat_map(golden_frames);
    frames.extend(golden.map(|bytes| Frame::from_bytes(bytes.into()).unwrap()));
    frames
}

/// Everything that can be asked of a frame, and every way to write it.
fn use_frame(frame: &Frame) {
    assert_eq!(Frame::from_bytes(frame.to_bytes()).unwrap(), *frame);
    assert_eq!(frame.to_bytes().len(), frame.stored_len());
    if let Ok(line) = frame.to_line(Some("at")) {
        let (read, store) = Frame::from_line::<String>(line.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!((&read, store.as_deref()), (frame, Some("at")));
    }
    let detached = frame.detach("elsewhere");
    if frame.elsewhere().is_none() {
        assert_eq!(detached.attach(frame.payload().clone()).unwrap(), *frame);
    }
}

#[test]
fn binary() {
    let seeds = frames().iter().map(|frame| frame.to_bytes().to_vec()).collect::<Vec<_>>();
    fuzz!("frame-binary")
        .seeds(seeds)
        .repair(repair::frame)
        .bytes(|bytes| Frame::from_bytes(bytes.to_vec().into()).map(|frame| use_frame(&frame)));
}

#[test]
fn lines() {
    let lines = frames().into_iter().filter_map(|frame| frame.to_line(Some("at")).ok());
    let golden = golden_lines("frames.v1.txt").into_iter().map(String::into_bytes);
    let words =
        ["\"v\":1", "\"v\":2", "\"records\":", "\"zstd\":\"", "\"sealed\":\"", "\"elsewhere\":\"3", "\"store\":"];
    fuzz!("frame-line").seeds(lines.chain(golden)).words(words).repair(repair::lines).bytes(|bytes| {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let _ = object_from_line::<serde_json::Value>(bytes);
        let _ = object_from_line::<SessionInfo>(bytes);
        Frame::from_line::<serde_json::Value>(line).map(|(frame, _)| use_frame(&frame))
    });
}

/// A payload decompresses to the limit of a batch at most, whatever it declares.
#[test]
fn compressed_payloads() {
    let codec = codecs().swap_remove(1).0;
    let golden = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/compressed.v1.bin")).unwrap();
    let seeds = codecs()[1].1.iter().map(|frame| frame.to_bytes().to_vec()).chain([golden]).collect::<Vec<_>>();
    let key = session("a");
    fuzz!("frame-compressed").seeds(seeds).repair(repair::frame).memory(4 << 20, 256).bytes(|bytes| {
        let frame = Frame::from_bytes(bytes.to_vec().into()).ok()?;
        codec.decode(Place { session: &key, branch: &BranchId::main() }, &frame).ok()
    });
}
