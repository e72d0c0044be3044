//! Limits, checked when records are staged: what cannot be stored must not get into the state, and
//! must not take with it what others staged.

use rekindle_core::codec::Limits;
use rekindle_core::{Error, Json, Record, Result};

/// What a record needs besides its values.
const ENVELOPE: usize = 16 << 10;

/// An error if `record` cannot be stored.
pub(super) fn check(record: &Record, limits: &Limits) -> Result<()> {
    let mut bytes = ENVELOPE;
    each_value(record, &mut |value| {
        bytes += value.as_str().len();
        let depth = value.depth();
        if depth > limits.depth {
            return Err(Error::limit("depth of a value", depth as u64, limits.depth as u64));
        }
        Ok(())
    })?;
    if bytes > limits.record_bytes {
        let what = format!("bytes of a `{}` record", record.kind());
        return Err(Error::limit(what, bytes as u64, limits.record_bytes as u64));
    }
    Ok(())
}

/// An error if so much cannot be committed together. A little room is left for what is committed with it.
pub(super) fn check_batch(records: usize, bytes: usize, limits: &Limits) -> Result<()> {
    const ROOM: usize = 64;
    if records.saturating_add(ROOM) > limits.batch_records {
        let most = limits.batch_records.saturating_sub(ROOM);
        return Err(Error::limit("records in one commit", records as u64, most as u64));
    }
    let most = limits.batch_bytes.saturating_sub(limits.batch_bytes / 64);
    match bytes > most {
        true => Err(Error::limit("bytes in one commit", bytes as u64, most as u64)),
        false => Ok(()),
    }
}

/// An error if `value` cannot be stored as part of a record.
pub(crate) fn check_value(value: &Json, limits: &Limits) -> Result<()> {
    // As deep as it is stored: inside a message, inside a part, inside a result.
    let depth = value.depth() + 4;
    if depth > limits.depth {
        return Err(Error::limit("depth of a value", depth as u64, limits.depth as u64));
    }
    match value.as_str().len() + ENVELOPE > limits.record_bytes {
        true => Err(Error::limit("bytes of a value", value.as_str().len() as u64, limits.record_bytes as u64)),
        false => Ok(()),
    }
}

/// A text for people that fits into a record.
pub(crate) fn shortened(text: String) -> String {
    const LONGEST: usize = 8 << 10;
    if text.len() <= LONGEST {
        return text;
    }
    let start: String = text.chars().take(LONGEST / 4).collect();
    format!("{start} … ({} bytes in all)", text.len())
}

/// About how much a record adds to the state.
pub(super) fn size(record: &Record) -> usize {
    let mut bytes = 0;
    let counted = each_value(record, &mut |value| {
        bytes += value.as_str().len();
        Ok(())
    });
    debug_assert!(counted.is_ok(), "counting cannot fail");
    bytes
}

fn each_value(record: &Record, visit: &mut dyn FnMut(&Json) -> Result<()>) -> Result<()> {
    match record {
        Record::LogAppend(append) => append.items.iter().try_for_each(visit),
        Record::LogSplice(splice) => splice.items.iter().try_for_each(visit),
        Record::RegisterSet(set) => visit(&set.value),
        Record::EffectIntent(intent) => intent.arguments.iter().try_for_each(visit),
        Record::EffectOutcome(outcome) => outcome.value.iter().try_for_each(visit),
        Record::EffectPartial(partial) => visit(&partial.value),
        Record::WaitOpened(wait) => {
            [&wait.arguments, &wait.schema, &wait.default].into_iter().flatten().try_for_each(visit)
        }
        Record::WaitDecision(decision) => {
            [&decision.value, &decision.arguments].into_iter().flatten().try_for_each(visit)
        }
        Record::WaitClosed(closed) => closed.value.iter().try_for_each(visit),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rekindle_core::record::RegisterSet;
    use rekindle_core::{Json, RegisterKey};

    use super::*;

    #[test]
    fn what_is_too_deep_or_too_large_is_refused() {
        let limits = Limits::default().with_record_bytes(64 << 10);
        let set = |text: String| RegisterSet::new(RegisterKey::new("k").unwrap(), Json::parse(text).unwrap()).into();
        let code = |text: String| check(&set(text), &limits).map_err(|error| error.code()).err();
        assert_eq!(code("[1]".into()), None);
        assert_eq!(code(format!("{}1{}", "[".repeat(101), "]".repeat(101))), Some("RK0002"));
        assert_eq!(code(format!("\"{}\"", "x".repeat(64 << 10))), Some("RK0002"));
    }
}
