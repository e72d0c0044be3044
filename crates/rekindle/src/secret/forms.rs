//! The forms in which a secret may stand in a text: as it is, escaped for JSON, in base64, hex, and
//! percent-encoded.

/// The shortest encoded form that is looked for: a shorter one would be found in harmless texts.
const SHORTEST: usize = 8;

/// The longest secret that is looked for in every form. Of a longer one, which is a key file rather than a
/// word, only the forms in which files travel are.
const LONGEST: usize = 4 << 10;

/// Returns the forms of a secret, each once, and as it is first.
pub(super) fn of(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    let mut encoded = Vec::new();
    for skipped in 0..3 {
        let standard = base64(secret.as_bytes(), skipped);
        encoded.push(standard.replace('+', "-").replace('/', "_"));
        encoded.push(standard);
    }
    if secret.len() <= LONGEST {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        encoded.push(hex.to_uppercase());
        encoded.push(hex);
        let kept: [fn(u8) -> bool; 3] = [
            |byte| b"-_.~".contains(&byte),
            // As scripts in browsers do it.
            |byte| b"-_.~!'()*".contains(&byte),
            |byte| b"-_.*".contains(&byte),
        ];
        for is_kept in kept {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || is_kept(byte);
            let percent = percent(secret, is_plain);
            // Forms write a space as a plus.
            encoded.push(percent.replace("%20", "+"));
            encoded.push(lower(&percent));
            encoded.push(percent);
        }
        let all = percent(secret, |_| false);
        encoded.push(lower(&all));
        encoded.push(all);
    }
    encoded.retain(|form| form.len() >= SHORTEST);
    // What is escaped is the secret itself, however short it is.
    let plain = escaped(secret);
    let slashes = plain.replace('/', "\\/");
    let html = ["&", "<", ">", "'"]
        .iter()
        .fold(plain.clone(), |text, c| text.replace(c, &format!("\\u{:04x}", u32::from(c.as_bytes()[0]))));
    let escaped = [plain.clone(), escaped(&plain), ascii_escaped(secret), slashes, html.replace("\\u0027", "'"), html];
    for form in escaped.into_iter().chain(encoded) {
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// As it stands inside a JSON string.
fn escaped(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

/// The same for writers that keep to ASCII.
fn ascii_escaped(text: &str) -> String {
    let mut ascii = String::new();
    for c in escaped(text).chars() {
        match c.is_ascii() {
            true => ascii.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    ascii
}

fn percent(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Percent-encoded text with its digits in lower case.
fn lower(percent: &str) -> String {
    let mut digits = 0_u8;
    let lowered = percent.chars().map(|c| {
        let lowered = if digits > 0 { c.to_ascii_lowercase() } else { c };
        digits = if c == '%' { 2 } else { digits.saturating_sub(1) };
        lowered
    });
    lowered.collect()
}

/// The digits of base64 that a secret determines alone if it begins `skipped` bytes behind a group: those at
/// its edges also depend on its neighbours.
fn base64(secret: &[u8], skipped: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |at: usize| match (at / 8).checked_sub(skipped) {
        Some(byte) => (secret[byte] >> (7 - at % 8)) & 1,
        None => 0,
    };
    let (first, end) = ((skipped * 8).div_ceil(6), (skipped + secret.len()) * 8 / 6);
    let digit = |at: usize| (0..6).fold(0, |digit, next| digit << 1 | usize::from(bit(at * 6 + next)));
    (first..end).map(|at| char::from(DIGITS[digit(at)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_in_every_form() {
        let secret = "s3cr\"et/é+ wörd?~";
        let forms = of(secret);
        let check = |text: &str| assert!(forms.iter().any(|form| text.contains(form.as_str())), "{text}\n{forms:#?}");
        check(&format!("<{secret}>"));
        check(r#"{"a":"s3cr\"et/é+ wörd?~"}"#);
        check(r#"{"a":"s3cr\"et/\u00e9+ w\u00f6rd?~"}"#);
        check(r#""{\"a\":\"s3cr\\\"et/é+ wörd?~\"}""#);
        // base64 of `secret`, `ab`+secret+`z` and so on, as other programs write it.
        for (before, after) in [("", ""), ("a", "z"), ("ab", "zz"), ("user:", ""), ("", "abc")] {
            let text = format!("{before}{secret}{after}");
            let mut digits = base64(text.as_bytes(), 0);
            check(&digits);
            digits = digits.replace('+', "-").replace('/', "_");
            check(&digits);
        }
        check(r#"{"a":"s3cr\"et\/é+ wörd?~"}"#);
        let web = of("k&y<x>'z1234");
        for text in [r"k\u0026y\u003cx\u003e'z1234", r"k\u0026y\u003cx\u003e\u0027z1234"] {
            assert!(web.iter().any(|form| form == text), "{text}\n{web:#?}");
        }
        check("733363722265742fc3a92b2077c3b672643f7e");
        check("733363722265742FC3A92B2077C3B672643F7E");
        check("k=s3cr%22et%2F%C3%A9%2B%20w%C3%B6rd%3F~&x");
        check("k=s3cr%22et%2f%c3%a9%2b%20w%c3%b6rd%3f~&x");
        check("k=s3cr%22et%2F%C3%A9%2B+w%C3%B6rd%3F%7E&x");
        assert_eq!(forms[0], secret);
    }

    #[test]
    fn short_secrets_are_not_looked_for_where_chance_would_find_them() {
        let forms = of("tool");
        assert!(forms.iter().skip(1).all(|form| form.len() >= SHORTEST), "{forms:?}");
    }
}
