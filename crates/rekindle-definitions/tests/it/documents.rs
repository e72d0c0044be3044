//! Documents by themselves: values, places, limits.

use rekindle_definitions::{Document, Format};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::kit::check;

fn read(text: &str, format: Format) -> Value {
    Document::parse("f", text, format).unwrap().value().clone()
}

fn fault(text: &str, format: Format, place: (usize, usize), message: &str) {
    check(&Document::parse("f", text, format).unwrap_err(), place, message, "");
}

#[test]
fn the_three_formats_say_the_same() {
    let yaml = "a: 1\nb: [x, 'y', 1.5, true, null]\nc:\n  d: {e: \"ä\"}\n";
    let json = r#"{"a": 1, "b": ["x", "y", 1.5, true, null], "c": {"d": {"e": "ä"}}}"#;
    assert_eq!(read(yaml, Format::Yaml), read(json, Format::Json));
    let toml = "a = 1\nb = ['x', \"y\", 1.5, true]\n[c]\nd = { e = \"ä\" }\nt = 2024-01-01T00:00:00Z\n";
    let expected = json!({"a": 1, "b": ["x", "y", 1.5, true], "c": {"d": {"e": "ä"}, "t": "2024-01-01T00:00:00Z"}});
    assert_eq!(read(toml, Format::Toml), expected);
}

#[test]
fn yaml_has_scalars_anchors_and_merges() {
    let text = "
base: &base {retries: 3, name: base}
one:
  <<: *base
  name: one
two: *base
three:
  <<: [{a: 1}, {a: 2, b: 2}]
hex: 0xff
text: \"0xff\"
tagged: !!str 5
folded: >
  a
  b
5: five
";
    let value = read(text, Format::Yaml);
    assert_eq!(value["one"], json!({"retries": 3, "name": "one"}));
    assert_eq!(value["two"], json!({"retries": 3, "name": "base"}));
    assert_eq!(value["three"], json!({"a": 1, "b": 2}));
    assert_eq!((&value["hex"], &value["text"], &value["tagged"]), (&json!(255), &json!("0xff"), &json!("5")));
    assert_eq!((&value["folded"], &value["5"]), (&json!("a b\n"), &json!("five")));
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_fine() {
    assert_eq!(read("\u{feff}a: 1\r\nb: 2\r\n", Format::Yaml), json!({"a": 1, "b": 2}));
    assert_eq!(read("\u{feff}{\"a\": 1}\r\n", Format::Json), json!({"a": 1}));
    assert_eq!(read("\u{feff}a = 1\r\nb = 2\r\n", Format::Toml), json!({"a": 1, "b": 2}));
    fault("ä: 1\r\nb: [\r\n", Format::Yaml, (3, 1), "not YAML");
}

#[test]
fn syntax_errors_have_places() {
    fault("a: 1\nb: ]\n", Format::Yaml, (2, 4), "not YAML");
    fault("{\"a\": 1,\n \"b\": x}", Format::Json, (2, 7), "not JSON: expected value");
    fault("{\"a\": 1", Format::Json, (1, 7), "not JSON: EOF");
    fault("a = 1\nb = \n", Format::Toml, (2, 5), "not TOML");
    fault("a = 1\na = 2\n", Format::Toml, (2, 1), "duplicate key");
    fault("a: 1\n---\nb: 2\n", Format::Yaml, (2, 1), "a second document");
    fault("? [a]\n: 1\n", Format::Yaml, (1, 3), "a key must be plain text");
    fault("a: *b\n", Format::Yaml, (1, 4), "unknown anchor");
    fault("a: &a [*a]\n", Format::Yaml, (1, 8), "part of");
    fault("a: !include x\n", Format::Yaml, (1, 4), "the tag `!include`");
    fault("a: 99999999999999999999\n", Format::Yaml, (1, 4), "too large");
    fault("{\"a\": 99999999999999999999}", Format::Json, (1, 7), "too large");
    fault("a = 99999999999999999999", Format::Toml, (1, 5), "too large");
    assert_eq!(Document::parse("f.yaml", "", Format::Yaml).unwrap_err().to_string(), "f.yaml: the file is empty");
}

#[test]
fn keys_given_twice_are_refused_with_both_places() {
    let faults = Document::parse("f", "a: 1\nb:\n  c: 1\n  c: 2\n", Format::Yaml).unwrap_err();
    check(&faults, (4, 3), "the key `c` is given twice", "line 3");
    let faults = Document::parse("f", "{\"a\": 1,\n\"a\": 2}", Format::Json).unwrap_err();
    check(&faults, (2, 1), "the key `a` is given twice", "line 1");
}

#[test]
fn tabs_in_yaml_are_named() {
    for text in ["a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n", "a:\n  - x\n\t- y\n", "a:\n\t- 1\n"] {
        let faults = Document::parse("f", text, Format::Yaml).unwrap_err();
        let line = text.lines().position(|line| line.starts_with('\t')).unwrap() + 1;
        check(&faults, (line, 1), "YAML does not allow tabs for indentation", "indent with spaces");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_refused_with_their_place() {
    let faults = Document::parse_bytes("f", b"a: 1\nb: \xff\n", Format::Yaml).unwrap_err();
    check(&faults, (2, 4), "not UTF-8", "save it as UTF-8");
}

#[test]
fn extensions_say_the_format() {
    use std::path::Path;
    assert_eq!(Format::of_path(Path::new("a.YML")).unwrap(), Format::Yaml);
    assert_eq!(Format::of_path(Path::new("a.json")).unwrap(), Format::Json);
    let faults = Format::of_path(Path::new("a.ini")).unwrap_err();
    assert!(faults.to_string().contains(".yaml, .yml, .toml, .json"), "{faults}");
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Outer {
    name: String,
    inner: Vec<Inner>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Inner {
    port: u16,
    mode: Option<Mode>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    ReadOnly,
    ReadWrite,
}

#[test]
fn decoding_names_places_in_all_formats() {
    let check_in = |text: &str, format: Format, place: (usize, usize), message: &str, hint: &str| {
        let document = Document::parse("f", text, format).unwrap();
        check(&document.decode::<Outer>("").unwrap_err(), place, message, hint);
    };
    check_in("name: x\ninner:\n  - prot: 1\n", Format::Yaml, (3, 5), "unknown key `prot`", "did you mean `port`?");
    check_in("{\"name\": \"x\",\n \"inner\": [{\"prot\": 1}]}", Format::Json, (2, 13), "unknown key `prot`", "`port`");
    check_in("name = 'x'\n[[inner]]\nprot = 1\n", Format::Toml, (3, 1), "unknown key `prot`", "`port`");
    check_in(
        "name: x\ninner:\n  - port: ab\n",
        Format::Yaml,
        (3, 11),
        "expected a whole number, found the text \"ab\"",
        "",
    );
    check_in("name: x\ninner:\n  - port: 99999\n", Format::Yaml, (3, 11), "found the number 99999", "");
    check_in("name: [x]\ninner: []\n", Format::Yaml, (1, 7), "expected text, found a list", "");
    check_in("name: x\ninner: {}\n", Format::Yaml, (2, 8), "expected a list, found an object", "");
    check_in("name: x\n", Format::Yaml, (1, 1), "`inner` is missing", "");
    check_in("name: x\ninner:\n  - mode: read_only\n", Format::Yaml, (3, 5), "`port` is missing", "");
    check_in(
        "name: x\ninner:\n  - {port: 1, mode: readonly}\n",
        Format::Yaml,
        (3, 21),
        "`readonly` is not known",
        "did you mean `read_only`?",
    );
    check_in(
        "name: x\ninner: []\nzzz: 1\n",
        Format::Yaml,
        (3, 1),
        "unknown key `zzz`",
        "the keys here are `name`, `inner`",
    );
}

#[test]
fn secrets_are_left_out_of_what_is_drawn() {
    let document = Document::parse("f", "name: x\ninner: []\napi_key: sk-12345\n", Format::Yaml).unwrap();
    let faults = document.decode::<Outer>("").unwrap_err();
    assert!(faults.excerpts().contains("api_key:…"), "{}", faults.excerpts());
    assert!(!format!("{faults}{}", faults.excerpts()).contains("12345"));
}
