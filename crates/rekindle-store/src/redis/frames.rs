//! Frames as entries of a stream: the number of an entry is the last record of its frame, its only
//! field is named by the first.

use bytes::Bytes;
use redis::Value;
use rekindle_core::codec::Frame;
use rekindle_core::{
    BranchId, Damage, DamageKind, Error, FramePage, Hash, Indexed, Marks, PAGE_BYTES, ReadFrames, Result, Section, Seq,
    Slot,
};

use super::value;

/// The arguments of appended frames.
pub(super) fn frame_args(frames: &[Frame]) -> impl Iterator<Item = Bytes> {
    frames.iter().flat_map(|frame| {
        let entry = match frame.marks {
            Marks::NONE => String::new(),
            Marks(marks) => format!("{:020}{:020}{marks}", frame.last.0, frame.first.0),
        };
        [frame.last.to_string().into(), frame.first.to_string().into(), entry.into(), frame.to_bytes()]
    })
}

/// The arguments of the parts of a base.
pub(super) fn part_args(parts: &[Frame]) -> Vec<Bytes> {
    let count = Bytes::from(parts.len().to_string());
    let args =
        parts.iter().flat_map(|part| [part.last.to_string().into(), part.first.to_string().into(), part.to_bytes()]);
    std::iter::once(count).chain(args).collect()
}

/// The arguments of a page to read.
pub(super) fn page_args(read: &ReadFrames) -> Vec<Bytes> {
    let beyond = read.through.next().max(read.from);
    // Parts of a base have no index of marks.
    let marks = if read.section == Section::Base { 0 } else { read.marks.0 };
    let numbers = [u64::from(marks), u64::from(read.newest_first), read.limit as u64, PAGE_BYTES as u64];
    let texts = [read.branch.to_string(), read.from.to_string(), read.through.to_string(), beyond.to_string()];
    texts.into_iter().chain(numbers.map(|number| number.to_string())).map(Bytes::from).collect()
}

/// The page in an answer; nothing if there is no such branch.
pub(super) fn page(read: &ReadFrames, answer: Value) -> Result<Option<FramePage>> {
    let mut values = value::list(answer)?.into_iter();
    let Some(more) = values.next() else { return Ok(None) };
    let mut page = FramePage { slots: Vec::new(), more: value::number(more)? != 0 };
    loop {
        let (Some(last), Some(first), Some(bytes), Some(marks)) =
            (values.next(), values.next(), values.next(), values.next())
        else {
            break;
        };
        let (first, last) = (Seq(value::number(first)?), Seq(value::number(last)?));
        let marks = value::text(marks)?;
        let marks = (!marks.is_empty()).then(|| marks.parse().unwrap_or(-1));
        let slot = slot(&read.branch, Indexed { first, last, marks }, value::bytes(bytes)?);
        // Parts of a base have no index of marks: they come all.
        let own = match &slot {
            Slot::Whole(frame) => frame.marks,
            Slot::Damaged(_) => read.marks,
        };
        if read.wants(first, last, own) {
            page.slots.push(slot);
        }
    }
    Ok(Some(page))
}

/// The hash of the one frame that was asked for.
pub(super) fn hash_of(last: Seq, entries: Value) -> Result<Option<Hash>> {
    let Some(entry) = value::list(entries)?.into_iter().next() else { return Ok(None) };
    let fields = value::list(entry)?.into_iter().nth(1).ok_or_else(|| Error::corrupt("an entry without fields"))?;
    let Some(bytes) = value::list(fields)?.into_iter().nth(1) else { return Ok(None) };
    // A damaged frame is not the caller's frame.
    let frame = Frame::from_bytes(value::bytes(bytes)?).ok().filter(|frame| frame.last == last);
    Ok(frame.map(|frame| frame.hash))
}

fn slot(branch: &BranchId, index: Indexed, bytes: Bytes) -> Slot {
    if !bytes.is_empty() {
        return Slot::indexed(branch, index, bytes);
    }
    let detail = "the index names a frame that is gone";
    Slot::Damaged(Damage::new(DamageKind::Missing, branch.clone(), index.first, index.last, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer as text: a part for each value, numbers and frames alike.
    #[test]
    fn fuzzed_pages() {
        let session = rekindle_core::SessionId::new("a").unwrap();
        let read = ReadFrames::all(session.into(), BranchId::main());
        rekindle_fuzz::fuzz!("redis-page").seeds(["0|3|1|RKJ|4", "1|18446744073709551615|1||", "0"]).bytes(|bytes| {
            let values = || bytes.split(|byte| *byte == b'|').map(|part| Value::BulkString(part.to_vec())).collect();
            let _ = hash_of(Seq(3), Value::Array(vec![Value::Array(vec![Value::Nil, Value::Array(values())])]));
            page(&read, Value::Array(values()))
        });
    }
}
