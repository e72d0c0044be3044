//! How long a server wants to be left alone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// The longest wait that is believed.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The wait `headers` ask for: milliseconds, seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let millis = text("retry-after-ms").and_then(|millis| seconds(millis).map(|time| time / 1000));
    let asked = millis.or_else(|| {
        let value = text(RETRY_AFTER.as_str())?;
        seconds(value).or_else(|| {
            // By the server's own clock if it tells the time: ours may be wrong.
            let now = text(DATE.as_str()).and_then(unix_time).or_else(now)?;
            Some(Duration::from_secs(unix_time(value)?.saturating_sub(now)))
        })
    })?;
    Some(asked.min(MAX))
}

fn seconds(text: &str) -> Option<Duration> {
    text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn now() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}

/// The seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn unix_time(date: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut words = date.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok().filter(|day| *day <= 31)?;
    let month = words.next().filter(|month| month.len() == 3).and_then(|month| MONTHS.find(month))? as u64 / 3 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.split(':').map(str::parse::<u64>);
    let mut unit = || clock.next()?.ok().filter(|unit| *unit < 62);
    let (hour, minute, second) = (unit()?, unit()?, unit()?);
    // Counted from March, leap days come last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day.checked_sub(1)?;
    // So many days lie between March of the year 0 and 1970.
    Some(days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn check(headers: &[(&'static str, &'static str)], expected: Option<Duration>) {
        let pair = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let map: HeaderMap = headers.iter().copied().map(pair).collect();
        assert_eq!(retry_after(&map), expected, "{headers:?}");
    }

    #[test]
    fn waits_are_read() {
        check(&[], None);
        check(&[("retry-after", "7")], Some(Duration::from_secs(7)));
        check(&[("retry-after", "0.25")], Some(Duration::from_millis(250)));
        check(&[("retry-after", "7"), ("retry-after-ms", "1500")], Some(Duration::from_millis(1500)));
        check(&[("retry-after", "99999999")], Some(MAX));
        for odd in ["-1", "soon", "", "NaN", "inf", "1e300"] {
            check(&[("retry-after", odd)], None);
        }
    }

    #[test]
    fn a_date_is_read_by_the_clock_of_the_server() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:07 GMT");
        check(&[date, ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(Duration::from_secs(30)));
        check(&[date, ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], Some(Duration::ZERO));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(Duration::ZERO));
    }

    #[test]
    fn dates_are_counted() {
        let check = |date: &str, expected| assert_eq!(unix_time(date), expected, "{date}");
        check("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Tue, 29 Feb 2000 12:00:00 GMT", Some(951_825_600));
        check("Wed, 01 Mar 2000 00:00:00 GMT", Some(951_868_800));
        check("Thu, 31 Dec 2099 23:59:59 GMT", Some(4_102_444_799));
        for odd in
            ["", "Sun, 06", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 00 Jan 1970 00:00:00 GMT", "x, 1 Jan 1 0:0:0 GMT"]
        {
            check(odd, None);
        }
    }

    #[test]
    fn fuzzed_headers() {
        let seeds = ["Sun, 06 Nov 1994 08:49:37 GMT", "120", "0.5", "1e3", "Wed, 31 Dec 9999 23:59:60 GMT"];
        rekindle_fuzz::fuzz!("retry-after").seeds(seeds).text(|text| {
            let value = HeaderValue::from_str(text).ok()?;
            for name in [RETRY_AFTER, HeaderName::from_static("retry-after-ms")] {
                let wait = retry_after(&HeaderMap::from_iter([(name, value.clone()), (DATE, value.clone())]));
                assert!(wait.is_none_or(|wait| wait <= MAX), "{wait:?}");
            }
            Some(())
        });
    }
}
