//! Points in time as other programs write them.

use rekindle::Timestamp;
use serde_json::Value;

/// A point in time: ISO 8601 with or without an offset (without one it is UTC), or a number of
/// seconds, milliseconds or microseconds since the epoch, told apart by their size.
pub(super) fn timestamp(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => number.as_u64().map(epoch),
        _ => None,
    }
}

fn epoch(number: u64) -> Timestamp {
    let factor = match number {
        0..100_000_000_000 => 1_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000,
        _ => 1,
    };
    Timestamp(number.saturating_mul(factor)).min(Timestamp::MAX)
}

/// `2025-01-15T10:30:00.1234567+02:00`, with `T` or a space, and any end left out.
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let (date, rest) = text.split_at_checked(10)?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let midnight = days(year, month, day).checked_mul(86_400_000_000)?;
    let rest = match rest.strip_prefix(['T', 't', ' ']) {
        Some(rest) => rest,
        None if rest.is_empty() => return u64::try_from(midnight).ok().map(Timestamp),
        None => return None,
    };
    let split = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, offset) = rest.split_at(split);
    let micros = midnight.checked_add(time_of_day(clock.trim())?)?.checked_sub(offset_of(offset)?)?;
    u64::try_from(micros).ok().map(Timestamp)
}

/// Microseconds since midnight.
fn time_of_day(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = clock.splitn(3, ':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    if hour > 23 || minute > 59 || second > 60 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    Some(((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction)
}

/// Microseconds east of Greenwich.
fn offset_of(text: &str) -> Option<i64> {
    let (sign, text) = match text.chars().next() {
        None | Some('Z' | 'z') => return (text.len() <= 1).then_some(0),
        Some('-') => (-1, &text[1..]),
        Some(_) => (1, &text[1..]),
    };
    let digits = text.replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = if minutes.is_empty() { 0 } else { number(minutes)? };
    let hours = number(hours)?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60_000_000)
}

/// A few digits and nothing else.
fn number(text: &str) -> Option<i64> {
    let legal = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    legal.then(|| text.parse().ok()).flatten()
}

/// Days since 1970-01-01 of a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(parse(text).map(|time| time.to_string()).as_deref(), expected, "{text}");
    }

    #[test]
    fn times_are_read_as_programs_write_them() {
        check("2026-02-08T14:30:30.123Z", Some("2026-02-08T14:30:30.123000Z"));
        check("2025-01-15T10:30:00.1234567+02:00", Some("2025-01-15T08:30:00.123456Z"));
        check("2025-01-15T10:30:00-0130", Some("2025-01-15T12:00:00.000000Z"));
        check("2026-02-08 14:30:30", Some("2026-02-08T14:30:30.000000Z"));
        check("2024-02-29", Some("2024-02-29T00:00:00.000000Z"));
        check("2000-01-01T00:00", Some("2000-01-01T00:00:00.000000Z"));
    }

    #[test]
    fn nonsense_is_no_time() {
        for text in ["", "soon", "2026-13-01", "2026-02-08T", "2026-02-08T25:00", "1969-12-31", "20\u{20ac}6-02-08"] {
            check(text, None);
        }
        check("2026-02-08T14:30:30.12x", None);
        check("2026-02-08T14:30:30Zulu", None);
        check("1970-01-01T00:00:00+05:00", None);
    }

    #[test]
    fn numbers_are_told_apart_by_their_size() {
        for number in [1_700_000_000_u64, 1_700_000_000_000, 1_700_000_000_000_000] {
            assert_eq!(timestamp(&number.into()), Some(Timestamp(1_700_000_000_000_000)));
        }
        assert_eq!(timestamp(&Value::Null), None);
    }

    #[test]
    fn fuzzed_times() {
        let seeds =
            ["2025-01-15T10:30:00.1234567+02:00", "2025-01-15 10:30", "9999-12-31T23:59:60-23:59", "1970-01-01"];
        rekindle_fuzz::fuzz!("import-time").seeds(seeds).text(|text| {
            let _ = serde_json::from_str(text).ok().and_then(|value| timestamp(&value));
            parse(text)
        });
    }
}
