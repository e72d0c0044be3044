//! Files in YAML, TOML and JSON against mutated and arbitrary text; see `docs/fuzzing.md`.

use rekindle_definitions::{Definition, Document, Faults, Format};
use rekindle_fuzz::{Fuzz, fuzz};

#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

const AGENT: &str = "name: guide\nmodel: {provider: scripted, name: demo, script: {turns: [{text: Hello!}]}}\nsystem: You help.\ntools:\n  - name: today\n    description: What day it is.\n    command: [date, +%F]\n    writes: false\nbudgets: {tokens: 900, iterations: 9}\n";
const PLAN: &str = "name: p\nfail_fast: true\ntools:\n  - {name: t, description: d, command: [x, '${arguments.n}'], parameters: {type: object, properties: {n: {type: integer}}}}\nsteps:\n  - {id: a, action: t, parameters: {n: 1}}\n  - {id: b, action: t, dependencies: [a], parameters: {n: '${steps.a.output}'}, timeout: 5m}\n";
const GRAPH: &str = "name: g\nentry: a\ninputs: [k]\nmodels: &m {x: ollama/y}\ntools:\n  - {name: t, description: \"d\\u00e4\", shell: 'x'}\nnodes:\n  - id: a\n    kind: tool\n    tool: t\n    reads: [k]\n  - {id: b, kind: wait, prompt: '${memory.k}?', reads: [k], expires_after: 2d}\nedges:\n  - {from: a, to: b, when: {all: [{memory: k, at_least: 0.5}, {not: {failed: true}}]}}\n";
const TOML: &str = "name = \"p\"\nfail_fast = true\n[[tools]]\nname = 't'\ndescription = '''d'''\ncommand = [\"x\"]\n[[steps]]\nid = \"a\"\naction = \"t\"\nparameters = { n = 0x1F, t = 2024-01-01 }\n";
const JSON: &str = "{\"name\": \"a\", \"model\": {\"provider\": \"ollama\", \"name\": \"\\u00e4\"}, \"budgets\": {\"cost\": 1e-3}, \"groups\": []}";

/// Every fault has a message, a picture and a place in the file.
fn told(text: &str, read: Result<(), Faults>) -> bool {
    let Err(faults) = &read else { return true };
    for fault in faults {
        assert!(!fault.message.is_empty() && !fault.render().is_empty());
        assert!(fault.line.unwrap_or(1) <= text.matches('\n').count() + 1, "{fault}");
    }
    false
}

fn check(fuzz: Fuzz, seeds: &[&str], format: Format) {
    let words = [
        "name: ",
        "&a ",
        "*a",
        "<<: *a",
        "kind: agent\n",
        "when: {",
        "!!str ",
        "|\n  ",
        "? ",
        "${memory.k}",
        "[[steps]]\n",
        "\"\"\"",
        "0x",
    ];
    // Faults draw the lines around them, and each is a tree of its own.
    fuzz.seeds(seeds.iter().copied()).words(words).costly(2).memory(8 << 20, 2_000).text(|text| {
        told(text, Document::parse("f", text, format).map(drop))
            && told(text, Definition::parse("f", text, format).map(drop))
    });
}

#[test]
fn yaml() {
    check(fuzz!("definition-yaml"), &[AGENT, PLAN, GRAPH], Format::Yaml);
}

#[test]
fn toml() {
    check(fuzz!("definition-toml"), &[TOML], Format::Toml);
}

#[test]
fn json() {
    check(fuzz!("definition-json"), &[JSON], Format::Json);
}

#[test]
fn bytes() {
    fuzz!("document-bytes").seeds([AGENT]).bytes(|bytes| {
        [Format::Yaml, Format::Toml, Format::Json].map(|format| Document::parse_bytes("f", bytes, format).is_ok())[0]
    });
}
