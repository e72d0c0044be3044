//! Drawings of graphs, alone and with the path of a session.

use crate::support::Place;

const REVIEW: &str = r#"
name: review
entry: write
inputs: [topic]
tools:
  - {name: note, description: Notes., parameters: {text: string}, shell: "echo noted", output: text, in_doubt: idempotent}
nodes:
  - {id: write, kind: tool, tool: note, arguments: {text: "${memory.topic}"}, reads: [topic]}
  - {id: person, kind: wait, prompt: "Is <this> good?", schema: {type: string}, writes: [verdict]}
  - {id: publish, kind: tool, tool: note, arguments: {text: done}}
edges:
  - {from: write, to: person}
  - {from: person, to: publish, when: {memory: verdict, is: good}}
  - {from: person, to: write, default: true}
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("review.yaml", REVIEW);
    place
}

#[test]
fn a_file_is_drawn_without_a_store() {
    let place = place();
    let said = place.run(&["graph", "review.yaml"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.starts_with("flowchart") && said.out.contains("publish"), "{}", said.out);
    assert!(!place.path("rekindle.db").exists(), "nothing was created");
    let json = place.json(&["graph", "review.yaml", "--svg"]);
    assert_eq!((json["graph"].as_str(), json["format"].as_str()), (Some("review"), Some("svg")));
    let svg = json["drawing"].as_str().unwrap();
    assert!(svg.starts_with("<svg") && !svg.contains("<this>"), "{svg}");
}

#[test]
fn a_session_is_drawn_with_its_path() {
    let place = place();
    let said = place.run(&["run", "review.yaml", "--input", "topic=tides", "--session", "draft", "--quiet"]);
    assert_eq!(said.code, 4, "{}", said.err);
    let alone = place.ok(&["graph", "review.yaml"]);
    let waiting = place.ok(&["graph", "draft"]);
    assert_ne!(alone, waiting);
    place.ok(&["answer", "draft", "good"]);
    place.ok(&["resume", "draft", "--quiet"]);
    let done = place.ok(&["graph", "@"]);
    assert_ne!(done, waiting);
    // An earlier moment is drawn as it was.
    assert_ne!(place.ok(&["graph", "draft@step:1"]), done);

    let said = place.run(&["graph", "draft", "--svg", "-o", "path.svg"]);
    assert_eq!((said.code, said.out.as_str()), (0, "wrote path.svg\n"), "{}", said.err);
    assert!(std::fs::read_to_string(place.path("path.svg")).unwrap().starts_with("<svg"));
    let again = place.run(&["graph", "draft", "--svg", "-o", "path.svg"]);
    assert_ne!(again.code, 0, "it is not written over");
    place.ok(&["graph", "draft", "--svg", "-o", "path.svg", "--force"]);
}

#[test]
fn what_cannot_be_drawn_says_why() {
    let place = place();
    place.write("agent.yaml", "name: a\nmodel: {provider: scripted, script: {name: s, turns: [{text: hi}]}}\n");
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let said = place.run(arguments);
        assert_eq!(said.code, code, "{arguments:?}: {}", said.err);
        assert!(said.err.contains(expected), "{arguments:?}: {}", said.err);
    };
    check(&["graph", "agent.yaml"], 2, "`a` is an agent, and only graphs are drawn");
    check(&["graph", "missing.yaml"], 3, "there is no file missing.yaml");
    place.ok(&["run", "agent.yaml", "hello", "--session", "talk", "--quiet"]);
    check(&["graph", "talk"], 2, "only graphs are drawn");
    check(&["graph", "tolk"], 3, "there is no session `tolk`");
    check(&["graph", "review.yaml", "--svg", "--mermaid"], 2, "cannot be used with");
}
