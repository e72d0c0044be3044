//! Scalars as YAML 1.2 understands them, and numbers as every format does.

use serde_json::{Number, Value};

/// What a plain scalar of YAML stands for. The error says what is wrong with it.
pub(super) fn plain(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    if let Some(integer) = integer(text) {
        return integer;
    }
    if is_float(text) { float(text) } else { Ok(Value::String(text.to_owned())) }
}

/// An integer of YAML, if it is one.
fn integer(text: &str) -> Option<Result<Value, String>> {
    let digits = |text: &str, radix: u32| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    if let Some(hex) = text.strip_prefix("0x").filter(|hex| digits(hex, 16)) {
        return Some(whole(hex, 16, text));
    }
    if let Some(octal) = text.strip_prefix("0o").filter(|octal| digits(octal, 8)) {
        return Some(whole(octal, 8, text));
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits(unsigned, 10).then(|| whole(text.strip_prefix('+').unwrap_or(text), 10, text))
}

/// A whole number. One that cannot be kept exactly is an error: a number that changes silently is
/// worse.
pub(super) fn whole(digits: &str, radix: u32, text: &str) -> Result<Value, String> {
    let small = i64::from_str_radix(digits, radix).map(Number::from);
    let number = small.or_else(|_| u64::from_str_radix(digits, radix).map(Number::from));
    number.map(Value::Number).map_err(|_| {
        let short: String = text.chars().take(40).collect();
        format!("the number {short} is too large to be kept exactly; write it in quotes")
    })
}

/// A number with a point or an exponent.
pub(super) fn float(text: &str) -> Result<Value, String> {
    let number = text.strip_prefix('+').unwrap_or(text).parse::<f64>().ok().and_then(Number::from_f64);
    number.map(Value::Number).ok_or_else(|| {
        let short: String = text.chars().take(40).collect();
        format!("the number {short} cannot be used: it is infinite or no number at all")
    })
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !(before.is_empty() && after.is_empty());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    has_digits && digits(before) && digits(after) && exponent_fits
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_are_those_of_yaml_1_2() {
        let cases = [
            ("~", json!(null)),
            ("True", json!(true)),
            ("yes", json!("yes")),
            ("on", json!("on")),
            ("12", json!(12)),
            ("-7", json!(-7)),
            ("+7", json!(7)),
            ("0o14", json!(12)),
            ("0xFF", json!(255)),
            ("012", json!(12)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("1e3", json!(1000.0)),
            ("-1.e2", json!(-100.0)),
            ("1.2.3", json!("1.2.3")),
            ("2024-01-01", json!("2024-01-01")),
            ("e3", json!("e3")),
            (".", json!(".")),
            ("-", json!("-")),
            ("0x", json!("0x")),
        ];
        for (text, value) in cases {
            assert_eq!(plain(text), Ok(value), "{text}");
        }
        for text in ["99999999999999999999", "0xFFFFFFFFFFFFFFFFF", ".inf", "-.INF", ".nan", "1e999"] {
            assert!(plain(text).is_err(), "{text}");
        }
    }
}
