//! Whatever is done to a file, reading it never panics, and what is wrong has a place in it.

use rekindle_definitions::{Definition, Document, Format};

const GRAPH: &str = "name: g\nentry: a\ninputs: [k]\nmodels: &m {x: ollama/y}\ntools:\n  - {name: t, description: \"d\\u00e4\", shell: 'x'}\nnodes:\n  - id: a\n    kind: tool\n    tool: t\n    reads: [k]\n  - {id: b, kind: wait, prompt: '${memory.k}?', reads: [k], expires_after: 2d}\nedges:\n  - {from: a, to: b, when: {all: [{memory: k, at_least: 0.5}, {not: {failed: true}}]}}\n";
const TOML: &str = "name = \"p\"\nfail_fast = true\n[[tools]]\nname = 't'\ndescription = '''d'''\ncommand = [\"x\"]\n[[steps]]\nid = \"a\"\naction = \"t\"\nparameters = { n = 0x1F, t = 2024-01-01 }\n";
const JSON: &str = "{\"name\": \"a\", \"model\": {\"provider\": \"ollama\", \"name\": \"\\u00e4\"}, \"budgets\": {\"cost\": 1e-3}, \"groups\": []}";

fn try_all(bytes: &[u8], format: Format) {
    let Ok(document) = Document::parse_bytes("f", bytes, format) else { return };
    let text = String::from_utf8_lossy(bytes).into_owned();
    drop(document);
    if let Err(faults) = Definition::parse("f", &text, format) {
        for fault in &faults {
            assert!(!fault.message.is_empty() && !fault.render().is_empty());
            let line = fault.line.unwrap_or(1);
            assert!(line <= text.matches('\n').count() + 1, "{fault} in {text:?}");
        }
    }
}

/// A small generator: the same numbers every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

#[test]
fn no_truncation_and_no_change_of_bytes_panics() {
    let mut numbers = Numbers(7);
    for (text, format) in [(GRAPH, Format::Yaml), (TOML, Format::Toml), (JSON, Format::Json)] {
        Definition::parse("f", text, format).unwrap();
        for end in 0..text.len() {
            try_all(&text.as_bytes()[..end], format);
            try_all(&text.as_bytes()[end..], format);
        }
        for _ in 0..1_500 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=numbers.next(3) {
                let at = numbers.next(bytes.len());
                let pieces = b"{}[]:,-&*!|>'\"#%@`\t\n \\0a=.?~";
                match numbers.next(4) {
                    0 => bytes[at] ^= 1 << numbers.next(8),
                    1 => bytes[at] = pieces[numbers.next(pieces.len())],
                    2 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, pieces[numbers.next(pieces.len())]),
                }
            }
            try_all(&bytes, format);
        }
    }
}
