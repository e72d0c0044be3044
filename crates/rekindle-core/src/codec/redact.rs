//! Redaction: what must not be stored is taken out before anything is encoded.
//!
//! A value under an excluded key, or in a register of the memory with such a key, becomes `{"$redacted":"<key>"}`, so that a resume knows what
//! to ask for again; a match of a pattern becomes `[redacted:<name>]`. Excluded keys are looked
//! for everywhere, also in JSON inside a string, as tool calls have it; patterns in every text,
//! number and key of an object but ids and other structure. Everything else keeps its bytes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use regex::Regex;

use crate::error::{Error, Result};
use crate::json::{Json, string_end, walk};

/// The fields of records that are structure: a pattern must not touch them.
const STRUCTURE: &[&str] = &[
    "log",
    "key",
    "effect",
    "effects",
    "kind",
    "name",
    "version",
    "arguments_hash",
    "idempotency_key",
    "policy",
    "run",
    "step",
    "child",
    "status",
    "id",
    "parent",
    "source",
    "trigger",
    "type",
    "fingerprint",
    "checkpoints",
    "checkpoint",
    "wanted",
    "used",
    "continues",
    "executor",
    "durability",
    "state",
    "outcome",
    "code",
    "wait",
    "digest",
    "decision",
    "message",
    "mode",
    "command",
    "only_run",
    "expected",
    "actual",
    "budget",
    "branch",
    "calls",
];

/// How deeply JSON inside strings inside JSON is followed.
const NESTED: usize = 4;

/// What to take out.
#[derive(Clone, Debug)]
pub struct Redaction {
    keys: BTreeSet<String>,
    patterns: Vec<(String, Regex)>,
}

impl Default for Redaction {
    /// Values under `api_key`, `credentials` and `access_token`, however they are spelt.
    fn default() -> Self {
        Self::none().with_keys(["api_key", "credentials", "access_token"])
    }
}

impl Redaction {
    /// Takes out nothing.
    pub fn none() -> Self {
        Self { keys: BTreeSet::new(), patterns: Vec::new() }
    }

    /// Also takes out values under these keys. Case, `_` and `-` do not matter: `api_key` also
    /// means `apiKey` and `API-KEY`.
    #[must_use]
    pub fn with_keys<'a>(mut self, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.keys.extend(keys.into_iter().map(normal));
        self
    }

    /// Also takes out what matches a regular expression inside any text.
    pub fn with_pattern(mut self, name: impl Into<String>, pattern: &str) -> Result<Self> {
        let regex = Regex::new(pattern)
            .map_err(|error| Error::invalid("the pattern is not a regular expression").because(error))?;
        self.patterns.push((name.into(), regex));
        Ok(self)
    }

    /// Whether a key is excluded.
    pub fn excludes(&self, key: &str) -> bool {
        match key.is_ascii() {
            true => self.keys.iter().any(|excluded| is_spelling_of(key.as_bytes(), excluded.as_bytes())),
            false => self.keys.contains(&normal(key)),
        }
    }

    /// Whether a register is excluded: by its name or, if it is a key of the memory, by that.
    fn excludes_register(&self, name: &str) -> bool {
        let name = own_name(name);
        name.len() <= 128 && self.excludes(name)
    }

    /// A value without what must not be stored.
    pub fn value(&self, json: &Json) -> Result<Json> {
        match self.bytes(json.as_str().as_bytes(), Level::Content, NESTED)? {
            Cow::Borrowed(_) => Ok(json.clone()),
            Cow::Owned(bytes) => Json::parse(String::from_utf8_lossy(&bytes)),
        }
    }

    /// Returns the values under excluded keys, with their keys, also those of JSON inside strings. A
    /// value that is gone already, or `null`, is none.
    pub fn excluded_values(&self, json: &Json) -> Vec<(String, Json)> {
        let mut found = Vec::new();
        let json = json.as_str().as_bytes();
        if self.mentions_key(json) {
            // JSON that cannot be searched is refused when it is stored.
            let _ = self.copied(json, Level::Content, NESTED, &mut found);
        }
        found
    }

    /// Returns the key by which a register is excluded: its name or, if it holds a key of the memory, that.
    pub fn excluded_register<'a>(&self, register: &'a str) -> Option<&'a str> {
        self.excludes_register(register).then(|| own_name(register))
    }

    /// A text without what must not be stored.
    pub fn text(&self, text: &str) -> String {
        self.patterns.iter().fold(text.to_owned(), |text, (name, regex)| {
            regex.replace_all(&text, regex::NoExpand(&format!("[redacted:{name}]"))).into_owned()
        })
    }

    /// One record, as JSON, without what must not be stored: the same bytes if there is nothing
    /// to do.
    pub(super) fn record<'a>(&self, record: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        self.bytes(record, Level::Record, NESTED)
    }

    /// Whether there may be something to take out, and how deeply the JSON nests: both are found
    /// out in one pass.
    pub(super) fn inspect(&self, json: &[u8]) -> (bool, usize) {
        let mut suspicious = !self.patterns.is_empty();
        let depth = walk(json, |text, escaped, end| {
            suspicious |=
                (escaped && (may_be_json(text) || next_is_colon(json, end + 1))) || self.may_be_excluded(text);
        });
        (suspicious, depth)
    }

    /// Returns whether an excluded key may stand in it.
    fn mentions_key(&self, json: &[u8]) -> bool {
        let mut mentions = false;
        walk(json, |text, escaped, end| {
            mentions |= (escaped && (may_be_json(text) || next_is_colon(json, end + 1))) || self.may_be_excluded(text);
        });
        mentions
    }

    /// Whether a string is an excluded key, or the name of a register that is.
    fn may_be_excluded(&self, text: &[u8]) -> bool {
        text.len() <= 512 && std::str::from_utf8(text).is_ok_and(|text| self.excludes_register(text))
    }

    fn bytes<'a>(&self, json: &'a [u8], level: Level, nested: usize) -> Result<Cow<'a, [u8]>> {
        if !self.inspect(json).0 {
            return Ok(Cow::Borrowed(json));
        }
        self.copied(json, level, nested, &mut Vec::new())
    }

    fn copied<'a>(&self, json: &'a [u8], level: Level, nested: usize, found: &mut Found) -> Result<Cow<'a, [u8]>> {
        let out = Vec::with_capacity(json.len());
        let mut copy = Copying { redaction: self, json, at: 0, out, changed: false, nested, found: Vec::new() };
        copy.value(level)?;
        found.append(&mut copy.found);
        Ok(if copy.changed { Cow::Owned(copy.out) } else { Cow::Borrowed(json) })
    }

    /// Returns whether a text is touched by a pattern.
    fn is_matched(&self, text: &str) -> bool {
        self.patterns.iter().any(|(_, pattern)| pattern.is_match(text))
    }
}

/// Values that were taken out, with the keys they stood under.
type Found = Vec<(String, Json)>;

/// The registers that hold keys of the memory, at the end of their names.
const MEMORY: &[&str] = &["memory/", "overlay/", "node/"];

/// The key of the memory that a register holds, or its name.
fn own_name(register: &str) -> &str {
    match MEMORY.iter().any(|prefix| register.starts_with(prefix)) {
        true => register.rsplit('/').next().unwrap_or(register),
        false => register,
    }
}

/// Where the walk is: what stands here decides what patterns may touch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// `{"<kind>": body}`.
    Record,
    /// The body of a record.
    Body,
    /// What users, models and tools said.
    Content,
    /// Ids and other structure.
    Structure,
}

/// Copies JSON byte for byte, except for what is taken out. The depth of what it is given was
/// checked before, so it may recurse.
struct Copying<'a> {
    redaction: &'a Redaction,
    json: &'a [u8],
    at: usize,
    out: Vec<u8>,
    changed: bool,
    nested: usize,
    found: Found,
}

impl Copying<'_> {
    fn value(&mut self, level: Level) -> Result<()> {
        self.space();
        match self.json.get(self.at) {
            Some(b'{') => self.object(level),
            Some(b'[') => self.array(level),
            Some(b'"') => self.string(level),
            Some(_) => {
                let rest = &self.json[self.at..];
                match rest.iter().position(|byte| b",]} \t\r\n".contains(byte)).unwrap_or(rest.len()) {
                    0 => Err(cut_off()),
                    len => self.scalar(level, len),
                }
            }
            None => Err(cut_off()),
        }
    }

    fn object(&mut self, level: Level) -> Result<()> {
        self.copy(1);
        // A register is a key with a value, spelt differently.
        let mut register = None;
        loop {
            self.space();
            match self.json.get(self.at) {
                Some(b'}') => {
                    self.copy(1);
                    return Ok(());
                }
                Some(b',') => self.copy(1),
                Some(b'"') => {
                    let key = self.key(level)?;
                    let excluded = match (level, key.as_str(), &register) {
                        (Level::Body, "value", Some(name)) => Some(String::clone(name)),
                        _ => self.redaction.excludes(&key).then(|| key.clone()),
                    };
                    if level == Level::Body && key == "key" {
                        let name = self.peek_string().filter(|name| self.redaction.excludes_register(name));
                        register = name.map(|name| own_name(&name).to_owned());
                    }
                    match excluded {
                        Some(name) => self.take_out(&name)?,
                        None => self.value(level.below(&key))?,
                    }
                }
                _ => return Err(cut_off()),
            }
        }
    }

    fn array(&mut self, level: Level) -> Result<()> {
        self.copy(1);
        loop {
            self.space();
            match self.json.get(self.at) {
                Some(b']') => {
                    self.copy(1);
                    return Ok(());
                }
                Some(b',') => self.copy(1),
                Some(_) => self.value(level)?,
                None => return Err(cut_off()),
            }
        }
    }

    /// A number, a truth value or `null`. A number that a pattern matches becomes a text.
    fn scalar(&mut self, level: Level, len: usize) -> Result<()> {
        let number = self.json.get(self.at..self.at + len).unwrap_or_default();
        let is_number = number.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-');
        if level == Level::Content && is_number && !self.redaction.patterns.is_empty() {
            let number = std::str::from_utf8(number).map_err(|_| cut_off())?;
            if self.redaction.is_matched(number) {
                serde_json::to_writer(&mut self.out, &self.redaction.text(number)).map_err(|_| cut_off())?;
                self.at += len;
                self.changed = true;
                return Ok(());
            }
        }
        self.copy(len);
        Ok(())
    }

    /// A key and its colon, copied. What patterns match in a key that users chose is replaced; what was
    /// read is returned.
    fn key(&mut self, level: Level) -> Result<String> {
        let key = self.peek_string().ok_or_else(cut_off)?;
        let (end, _) = string_end(self.json, self.at);
        match level == Level::Content && self.redaction.is_matched(&key) {
            true => {
                serde_json::to_writer(&mut self.out, &self.redaction.text(&key)).map_err(|_| cut_off())?;
                self.at = end + 1;
                self.changed = true;
            }
            false => self.copy(end + 1 - self.at),
        }
        self.space();
        match self.json.get(self.at) {
            Some(b':') => self.copy(1),
            _ => return Err(cut_off()),
        }
        self.space();
        Ok(key)
    }

    fn string(&mut self, level: Level) -> Result<()> {
        let (end, escaped) = string_end(self.json, self.at);
        let text = &self.json[(self.at + 1).min(end)..end];
        let has_patterns = level == Level::Content && !self.redaction.patterns.is_empty();
        // A key stands in quotes, which are escaped; numbers need none.
        let nested = (escaped || has_patterns) && self.nested > 0 && may_be_json(text);
        if nested || has_patterns {
            let original = self.peek_string().ok_or_else(cut_off)?;
            let redacted = self.redacted(&original, nested, has_patterns)?;
            if redacted != original {
                serde_json::to_writer(&mut self.out, &redacted).map_err(|_| cut_off())?;
                self.at = end + 1;
                self.changed = true;
                return Ok(());
            }
        }
        self.copy((end + 1).min(self.json.len()) - self.at);
        Ok(())
    }

    fn redacted(&mut self, text: &str, nested: bool, has_patterns: bool) -> Result<String> {
        let mut text = Cow::Borrowed(text);
        // A number in a string is a text like any other.
        let nested = nested && text.trim_start().starts_with(['{', '[', '"']);
        if nested && serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() {
            // Its depth was not checked: JSON in a string counts as one value.
            if crate::json::depth(text.as_bytes()) > 100 {
                return Ok("[redacted:too deep to search]".to_owned());
            }
            if self.redaction.inspect(text.as_bytes()).0 {
                let nested = self.nested - 1;
                let inside = self.redaction.copied(text.as_bytes(), Level::Content, nested, &mut self.found)?;
                if let Cow::Owned(bytes) = inside {
                    text = Cow::Owned(String::from_utf8_lossy(&bytes).into_owned());
                }
            }
        }
        Ok(if has_patterns { self.redaction.text(&text) } else { text.into_owned() })
    }

    /// Puts the marker in place of the value that comes next.
    fn take_out(&mut self, key: &str) -> Result<()> {
        let start = self.out.len();
        self.value(Level::Structure)?;
        let marker = serde_json::json!({ "$redacted": key }).to_string();
        if &self.out[start..] == b"null" || self.out[start..] == *marker.as_bytes() {
            return Ok(());
        }
        let is_marker = self.out[start..].starts_with(br#"{"$redacted""#);
        if let (false, Ok(value)) = (is_marker, std::str::from_utf8(&self.out[start..])) {
            self.found.extend(Json::parse(value).ok().map(|value| (key.to_owned(), value)));
        }
        self.changed = true;
        self.out.truncate(start);
        self.out.extend_from_slice(marker.as_bytes());
        Ok(())
    }

    /// The string that begins here, decoded.
    fn peek_string(&self) -> Option<String> {
        let (end, _) = string_end(self.json, self.at);
        serde_json::from_slice(self.json.get(self.at..=end)?).ok()
    }

    fn space(&mut self) {
        let rest = &self.json[self.at..];
        let len = rest.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(rest.len());
        self.copy(len);
    }

    fn copy(&mut self, len: usize) {
        let end = (self.at + len).min(self.json.len());
        self.out.extend_from_slice(&self.json[self.at..end]);
        self.at = end;
    }
}

impl Level {
    fn below(self, key: &str) -> Self {
        match self {
            Self::Record => Self::Body,
            Self::Body if STRUCTURE.contains(&key) => Self::Structure,
            Self::Body | Self::Content => Self::Content,
            Self::Structure => Self::Structure,
        }
    }
}

fn cut_off() -> Error {
    Error::invalid("the record cannot be searched for secrets")
}

/// Whether the raw content of a string may be an object or an array.
fn may_be_json(text: &[u8]) -> bool {
    text.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"{[\\".contains(byte))
}

fn next_is_colon(json: &[u8], at: usize) -> bool {
    json.get(at..).and_then(|rest| rest.iter().find(|byte| !byte.is_ascii_whitespace())) == Some(&b':')
}

/// Lower case without separators.
fn normal(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Whether ASCII text is an excluded key but for case and separators. Every string of every
/// record comes by here, so nothing is allocated.
fn is_spelling_of(text: &[u8], excluded: &[u8]) -> bool {
    let letters = text.iter().filter(|byte| !matches!(byte, b'_' | b'-'));
    letters.map(u8::to_ascii_lowercase).eq(excluded.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(redaction: &Redaction, input: &str, expected: &str) {
        let output = redaction.record(input.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&output).unwrap(), expected);
        let again = redaction.record(&output).unwrap();
        assert_eq!(again, output, "redacting twice changes nothing more");
    }

    #[test]
    fn excluded_keys_are_replaced_at_any_depth_and_spelling() {
        let redaction = Redaction::default();
        for key in ["api_key", "apiKey", "API-KEY", "api\\u005fkey"] {
            let input = format!(r#"{{"log_append":{{"log":"m","items":[{{"a":[{{"{key}":"sk-1"}}]}}]}}}}"#);
            let output = redaction.record(input.as_bytes()).unwrap();
            let output = std::str::from_utf8(&output).unwrap();
            assert!(!output.contains("sk-1") && output.contains("$redacted"), "{output}");
        }
        check(
            &redaction,
            r#"{"register_set":{"key":"access_token","value":["t"]}}"#,
            r#"{"register_set":{"key":"access_token","value":{"$redacted":"access_token"}}}"#,
        );
        for register in ["memory/api_key", "overlay/0.1/api_key", "node/write.7/output/api_key"] {
            check(
                &redaction,
                &format!(r#"{{"register_set":{{"key":"{register}","value":"sk-1"}}}}"#),
                &format!(r#"{{"register_set":{{"key":"{register}","value":{{"$redacted":"api_key"}}}}}}"#),
            );
        }
        let visits = r#"{"register_set":{"key":"visits/api_key","value":3}}"#;
        check(&redaction, visits, visits);
        check(
            &redaction,
            r#"{"from_the_future":{"x":[{"credentials":{"a":1}}],"access-token":1}}"#,
            r#"{"from_the_future":{"x":[{"credentials":{"$redacted":"credentials"}}],"access-token":{"$redacted":"access-token"}}}"#,
        );
    }

    #[test]
    fn everything_else_keeps_its_bytes() {
        check(
            &Redaction::default(),
            r#"{"log_append":{"log":"m","items":[{"id":123456789012345678901234567890, "b":1.50,"a":1e400,"api_key" : [1, 2] ,"z":"\u00e9"}]}}"#,
            r#"{"log_append":{"log":"m","items":[{"id":123456789012345678901234567890, "b":1.50,"a":1e400,"api_key" : {"$redacted":"api_key"} ,"z":"\u00e9"}]}}"#,
        );
        for input in [
            r#"{"log_append":{"log":"m","items":[{"text":"my api_key: is safe",  "n":1.50}]}}"#,
            r#"{"log_append":{"log":"m","items":["api_key",null,true,-1.5e3,[],{}]}}"#,
            r#"{"register_set":{"key":"k","value":"a\"b"}}"#,
            r#"{"register_set":{"key":"k","value":{"api_key":null}}}"#,
        ] {
            check(&Redaction::default(), input, input);
        }
    }

    #[test]
    fn json_inside_a_string_is_searched_too() {
        check(
            &Redaction::default(),
            r#"{"log_append":{"log":"m","items":[{"arguments":"{\"url\":\"x\", \"api_key\":\"sk-1\"}"}]}}"#,
            r#"{"log_append":{"log":"m","items":[{"arguments":"{\"url\":\"x\", \"api_key\":{\"$redacted\":\"api_key\"}}"}]}}"#,
        );
        let harmless = r#"{"log_append":{"log":"m","items":["{not json \"api_key\"", "[\"fine\"]"]}}"#;
        check(&Redaction::default(), harmless, harmless);
    }

    #[test]
    fn patterns_apply_to_texts_but_not_to_structure() {
        let redaction = Redaction::none().with_pattern("token", r"tok_[a-z0-9]+").unwrap();
        check(
            &redaction,
            r#"{"effect_outcome":{"effect":"tok_id","attempt":1,"status":"ok","value":["x tok_abc y",1.0],"later":"tok_x"}}"#,
            r#"{"effect_outcome":{"effect":"tok_id","attempt":1,"status":"ok","value":["x [redacted:token] y",1.0],"later":"[redacted:token]"}}"#,
        );
        assert_eq!(redaction.text("tok_1"), "[redacted:token]");
        assert!(Redaction::none().with_pattern("x", "(").is_err());
    }

    #[test]
    fn patterns_apply_to_numbers_keys_and_json_inside_strings() {
        let redaction = Redaction::none().with_pattern("card", r"\b4\d{15}\b").unwrap();
        let item = |input: &str, expected: &str| {
            let record = |item: &str| format!(r#"{{"log_append":{{"log":"m","items":[{item}]}}}}"#);
            check(&redaction, &record(input), &record(expected));
        };
        item(r#"{"card":4111111111111111,"n":41}"#, r#"{"card":"[redacted:card]","n":41}"#);
        item(r#"{"4111111111111111":1}"#, r#"{"[redacted:card]":1}"#);
        item(r#"[-4111111111111111,4111111111111111.5]"#, r#"["-[redacted:card]","[redacted:card].5"]"#);
        item(
            r#""{\"a\":{\"4111111111111111\":[4111111111111111]}}""#,
            r#""{\"a\":{\"[redacted:card]\":[\"[redacted:card]\"]}}""#,
        );
        item(r#""[\"\\u0034111111111111111\"]""#, r#""[\"[redacted:card]\"]""#);
        let anchored = Redaction::none().with_pattern("pin", r"^\d{6}$").unwrap();
        let output = anchored.record(br#"{"log_append":{"log":"m","items":["[123456]","{\"a\":123456}"]}}"#).unwrap();
        assert!(!String::from_utf8_lossy(&output).contains("123456"), "{}", String::from_utf8_lossy(&output));
        // Ids and other structure stay.
        let structure = r#"{"effect_outcome":{"effect":"4111111111111111","attempt":1,"status":"ok"}}"#;
        check(&redaction, structure, structure);
    }

    #[test]
    fn values_under_excluded_keys_are_found() {
        let redaction = Redaction::default();
        let check = |json: &str, expected: &[(&str, &str)]| {
            let found = redaction.excluded_values(&Json::parse(json).unwrap());
            let found: Vec<_> = found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(found, expected, "{json}");
        };
        check(r#"{"a":[{"apiKey":"sk-1"}],"access_token":[1]}"#, &[("apiKey", r#""sk-1""#), ("access_token", "[1]")]);
        check(r#"{"arguments":"{\"api_key\":\"sk-1\"}"}"#, &[("api_key", r#""sk-1""#)]);
        check(r#"{"api_key":null,"credentials":{"$redacted":"credentials"},"x":"api_key"}"#, &[]);
        assert_eq!(redaction.excluded_register("overlay/0.1/api_key"), Some("api_key"));
        assert_eq!(redaction.excluded_register("memory/region"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "[\\[\\]{}\":,a-c\\\\ 0-9]{0,60}") {
            let redaction = Redaction::default().with_pattern("a", "a+").unwrap();
            let _ = redaction.record(&bytes);
            let _ = redaction.record(text.as_bytes());
        }
    }
}
