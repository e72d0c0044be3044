//! Durations on the command line: `30s`, `10m`, `2h`, `7d`.

use std::time::Duration;

/// Reads a duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; write for example 30s, 10m, 2h or 7d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match &text[digits..] {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("2d"), Ok(Duration::from_secs(172_800)));
        for wrong in ["", "5", "s", "5 s", "-5s", "5y", "99999999999999999999s", "999999999999999999w"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fuzzed_durations() {
        rekindle_fuzz::fuzz!("cli-duration").seeds(["30s", "10m", "2h", "7d", "500ms", "1w"]).text(parse);
    }
}
