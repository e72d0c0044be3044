//! Files that are made to hurt: they are refused quickly and never overflow the stack.

use rekindle_definitions::{Definition, Document, Faults, Format};

/// What is read with little stack.
fn with_little_stack<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(512 << 10).spawn(read).unwrap().join().unwrap()
}

fn refused(text: String, format: Format) -> Faults {
    with_little_stack(move || Definition::parse("f", &text, format).unwrap_err())
}

#[test]
fn two_megabytes_of_nesting_are_refused_in_every_format() {
    const MUCH: usize = 2 << 20;
    let cases = [
        ("[".repeat(MUCH), Format::Json),
        (format!("{}{}", "[".repeat(MUCH / 2), "]".repeat(MUCH / 2)), Format::Json),
        (format!("{}1{}", "{\"a\":".repeat(MUCH / 8), "}".repeat(MUCH / 8)), Format::Json),
        ("[".repeat(MUCH), Format::Yaml),
        ("{".repeat(MUCH), Format::Yaml),
        ("{a: ".repeat(MUCH / 4), Format::Yaml),
        ("- ".repeat(MUCH / 2), Format::Yaml),
        ("? ".repeat(MUCH / 2), Format::Yaml),
        ((0..1_900).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(), Format::Yaml),
        (format!("a = {}", "[".repeat(MUCH)), Format::Toml),
        (format!("a = {}{}", "[".repeat(MUCH / 2), "]".repeat(MUCH / 2)), Format::Toml),
        (format!("a = {}", "{a=".repeat(MUCH / 4)), Format::Toml),
        (format!("{}a = 1", "a.".repeat(MUCH / 2)), Format::Toml),
        (format!("[{}a]\nb = 1", "a.".repeat(MUCH / 2)), Format::Toml),
    ];
    for (text, format) in cases {
        let start: String = text.chars().take(12).collect();
        let faults = refused(text, format);
        let told = faults.to_string();
        assert!(told.len() < 2_000, "{format:?} {start}: {} bytes", told.len());
        assert!(faults.excerpts().len() < 4_000, "{format:?} {start}");
        let expected = told.contains("64 levels deep") || told.contains("not JSON") || told.contains("plain text");
        assert!(expected, "{format:?} {start}: {told}");
    }
}

#[test]
fn nesting_up_to_the_limit_is_read() {
    let document = with_little_stack(|| {
        let json = format!("{}1{}", "[".repeat(64), "]".repeat(64));
        Document::parse("f", &json, Format::Json).unwrap();
        Document::parse("f", &json, Format::Yaml).unwrap()
    });
    assert!(document.value().is_array());
    let deeper = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    for format in [Format::Json, Format::Yaml] {
        assert!(Document::parse("f", &deeper, format).unwrap_err().to_string().contains("64 levels deep"));
    }
}

#[test]
fn a_billion_laughs_are_refused() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for number in 1..30 {
        let before = format!("*a{}", number - 1);
        text.push_str(&format!("a{number}: &a{number} [{}]\n", [before.as_str(); 10].join(", ")));
    }
    let told = refused(text, Format::Yaml).to_string();
    assert!(told.contains("more than 200000 values"), "{told}");
    assert!(told.starts_with("f:5:"), "{told}");
}

#[test]
fn anchors_inside_anchors_do_not_fill_the_memory() {
    let inside = "x, ".repeat(100_000);
    let text = format!("a: {}[{inside}x]{}", (0..60).map(|n| format!("&n{n} [")).collect::<String>(), "]".repeat(60));
    let told = refused(text, Format::Yaml).to_string();
    assert!(told.contains("more than 200000 values"), "{told}");
}

#[test]
fn large_files_are_refused() {
    let text = format!("a: {}", "x".repeat(5 << 20));
    assert_eq!(refused(text.clone(), Format::Yaml).to_string(), "f: the file is larger than 4 MiB");
    let faults = Document::parse_bytes("f", text.as_bytes(), Format::Json).unwrap_err();
    assert_eq!(faults.to_string(), "f: the file is larger than 4 MiB");
    let many = format!("[{}1]", "1,".repeat(300_000));
    assert!(refused(many, Format::Json).to_string().contains("more than 200000 values"));
}

#[test]
fn names_from_files_cannot_take_over_a_terminal() {
    let faults = Definition::parse("f", "\"\\u001b[31mred\": 1\nname: x\nmodel: a/b\n", Format::Yaml).unwrap_err();
    let all = format!("{faults}{}", faults.excerpts());
    assert!(!all.contains('\u{1b}'), "{all}");
    let long = format!("{}: 1\n", "k".repeat(100_000));
    let faults = Definition::parse("f", &long, Format::Yaml).unwrap_err();
    assert!(faults.to_string().len() < 3_000 && faults.excerpts().len() < 5_000);
}

#[test]
fn a_fault_in_every_word_is_refused_quickly() {
    let keys: String = (0..100_000).map(|number| format!("k{number}: 1\n")).collect();
    let faults = refused(keys, Format::Yaml);
    assert!(faults.len() <= 100, "{}", faults.len());
    let steps: String = (0..30_000).map(|number| format!("  - {{id: s{number}, acton: x}}\n")).collect();
    let faults = refused(format!("name: p\nsteps:\n{steps}"), Format::Yaml);
    assert_eq!(faults.len(), 100);
    assert!(faults.to_string().starts_with("f:3:14: unknown key `acton`"), "{faults}");
    let twice = "a: 1\n".repeat(100_000);
    assert_eq!(refused(twice, Format::Yaml).len(), 100);
}
