//! Times and amounts for people.

use std::time::Duration;

use rekindle::Timestamp;

/// `3m ago`, or the date if it was long ago.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        return short(at);
    }
    let seconds = now.since(at).as_secs();
    match seconds {
        0..=4 => "now".to_owned(),
        5..=59 => format!("{seconds}s ago"),
        60..=3_599 => format!("{}m ago", seconds / 60),
        3_600..=86_399 => format!("{}h ago", seconds / 3_600),
        86_400..=2_591_999 => format!("{}d ago", seconds / 86_400),
        _ => at.to_string().chars().take(10).collect(),
    }
}

/// `2026-11-15 11:00:00`, UTC.
pub fn short(at: Timestamp) -> String {
    at.to_string().replacen('T', " ", 1).chars().take(19).collect()
}

/// A point in time as people write it, in UTC: `2026-11-15`, `2026-11-15T18:00`, `2026-11-15 18:00:30Z`.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    read(text).ok_or_else(|| format!("`{text}` is no time; write for example 2026-11-15T18:00, in UTC"))
}

fn read(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let date: Vec<u64> = date.split('-').map(number).collect::<Option<_>>()?;
    let clock: Vec<u64> = clock.split(':').map(number).collect::<Option<_>>()?;
    let (&[year @ 1970..=9999, month @ 1..=12, day @ 1..=31], &[hour @ 0..=23, minute @ 0..=59, ref second @ ..]) =
        (date.as_slice(), clock.as_slice())
    else {
        return None;
    };
    let second = match second {
        [] => 0,
        [second @ 0..=59] => *second,
        _ => return None,
    };
    // Years that begin in March end with the day that is not always there.
    let (from_march, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * from_march + 2) / 5 + day - 1;
    let at = Timestamp(((days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000);
    // A day that is not there, such as 30 February, would be another one.
    short(at).starts_with(&format!("{:04}-{month:02}-{day:02}", date[0])).then_some(at)
}

/// `1.2s`, `35ms`, `2m 05s`.
pub fn span(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..=999 => format!("{millis}ms"),
        1_000..=59_999 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        60_000..=3_599_999 => format!("{}m {:02}s", millis / 60_000, millis / 1_000 % 60),
        _ => format!("{}h {:02}m", millis / 3_600_000, millis / 60_000 % 60),
    }
}

/// `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 session`, `12 sessions`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `$0.0042`: as many digits as it takes to see something.
pub fn cost(micros: u64) -> String {
    let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
    match micros {
        0 => "$0".to_owned(),
        1_000_000.. => format!("${}.{:02}", count(whole), part / 10_000),
        _ => format!("${whole}.{part:06}").trim_end_matches('0').to_owned(),
    }
}

/// `1.4 MB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..=999 => format!("{bytes} B"),
        1_000..=999_999 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        1_000_000..=999_999_999 => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well() {
        assert_eq!([count(0), count(999), count(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!([counted(1, "session"), counted(1_200, "session")], ["1 session", "1,200 sessions"]);
        assert_eq!([cost(0), cost(4_200), cost(1_500_000)], ["$0", "$0.0042", "$1.50"]);
        assert_eq!([bytes(12), bytes(1_400), bytes(2_500_000)], ["12 B", "1.4 kB", "2.5 MB"]);
        assert_eq!([span(Duration::from_millis(35)), span(Duration::from_secs(125))], ["35ms", "2m 05s"]);
    }

    #[test]
    fn times_are_read() {
        let check = |text: &str, expected: &str| assert_eq!(short(parse(text).unwrap()), expected);
        check("2026-11-15T11:00", "2026-11-15 11:00:00");
        check("2026-11-15 11:00:07Z", "2026-11-15 11:00:07");
        check("2028-02-29", "2028-02-29 00:00:00");
        check("1970-01-01", "1970-01-01 00:00:00");
        check("2100-03-01", "2100-03-01 00:00:00");
        for wrong in [
            "",
            "tomorrow",
            "2026-02-30",
            "2026-13-01",
            "2026-11-15T24:00",
            "26-1-1",
            "2026-11-15T+1:00",
            "1969-12-31",
            "2026-11-15T1:2:3:4",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_read_well() {
        let now = Timestamp(1_794_740_400_000_000);
        let ago = |seconds| ago(now.minus(Duration::from_secs(seconds)), now);
        assert_eq!([ago(1), ago(65), ago(7_300), ago(200_000)], ["now", "1m ago", "2h ago", "2d ago"]);
        assert_eq!(ago(4_000_000), "2026-09-30");
        assert_eq!(short(now), "2026-11-15 11:00:00");
    }

    #[test]
    fn fuzzed_times() {
        let seeds = ["2026-11-15", "2026-11-15T18:00", "2026-11-15 18:00:30Z", "9999-12-31T23:59:59Z"];
        rekindle_fuzz::fuzz!("cli-time").seeds(seeds).text(|text| {
            let at = parse(text)?;
            assert_eq!(parse(&short(at)), Ok(at));
            let _ = (ago(at, Timestamp(7)), ago(Timestamp(7), at), span(at.since(Timestamp(7))));
            Ok::<(), String>(())
        });
    }
}
