//! A model with write access to the folder of its agent cannot change what it is made of.

use crate::support::Place;

/// Writes to all of `paths` at once.
fn agent(paths: &[String], root: &str) -> String {
    let call = |path: &String| {
        let arguments = format!(r#"{{"path": "{path}", "content": "store_password = '@command:evil'"}}"#);
        format!("          - {{name: write_file, arguments: {arguments}}}\n")
    };
    let calls: String = paths.iter().map(call).collect();
    format!(
        "name: writer\nsystem_file: prompt.md\nmodel:\n  provider: scripted\n  name: s\n  script:\n    turns:\n      \
         - calls:\n{calls}      - text: done\nfiles: {{root: {root}, access: write}}\n"
    )
}

#[test]
fn tools_write_no_definition_configuration_or_store_in_use() {
    for store in ["sqlite:./state/s.db", "file:./state/files", "objects:./state/objects"] {
        let place = Place::new();
        std::fs::create_dir_all(place.path("state")).unwrap();
        place.write("prompt.md", "You write.");
        let config = place.write("rekindle.toml", &format!("store = '{store}'\n"));
        place.write(".config/rekindle/rekindle.toml", "author = 'maria'\n");
        let inside = ["state/files/x", "state/objects/x", "state/s.db", "state/s.db-wal", "state/s.db-marks/x"];
        let own = match store.split_once(':').unwrap().0 {
            "sqlite" => &inside[2..],
            "file" => &inside[..1],
            _ => &inside[1..2],
        };
        let mut refused: Vec<String> = own.iter().map(|path| (*path).to_owned()).collect();
        refused.extend(["agent.yaml", "./agent.yaml", "prompt.md", "rekindle.toml"].map(str::to_owned));
        refused.extend([".config/rekindle/rekindle.toml", "trusted/rekindle/trust/x/y"].map(str::to_owned));
        let written = ["report.md", "state/other.txt", "sub/rekindle.toml", "sub/agent.yaml"].map(str::to_owned);
        let all: Vec<String> = refused.iter().chain(&written).cloned().collect();
        let text = agent(&all, ".");
        place.write("agent.yaml", &text);
        let mut command = place.command(&["run", "agent.yaml", "go", "--session", "s", "--json"]);
        command.env("XDG_STATE_HOME", place.path("trusted"));
        let said = crate::support::said(command);
        assert_eq!(said.code, 0, "{store}: {}", said.err);
        let messages = place.ok(&["sessions", "inspect", "s", "--messages"]);
        let protected = messages.matches("belongs to this agent itself").count();
        assert_eq!(protected, refused.len(), "{store}: {messages}");
        assert_eq!(std::fs::read_to_string(place.path("agent.yaml")).unwrap(), text);
        assert_eq!(std::fs::read_to_string(&config).unwrap(), format!("store = '{store}'\n"));
        for path in &written {
            assert!(place.path(path).is_file(), "{store}: {path} was not written");
        }
        place.ok(&["verify", "--all"]);
    }
}

#[test]
fn no_configuration_is_made_where_one_would_be_found() {
    let place = Place::new();
    place.write("prompt.md", "You write.");
    let paths = ["rekindle.toml", "sub/rekindle.toml", "sub/deeper/rekindle.toml"].map(str::to_owned);
    place.write("agent.yaml", &agent(&paths, "."));
    std::fs::create_dir_all(place.path("sub/deeper")).unwrap();
    let mut command = place.command(&["run", "../../agent.yaml", "go", "--session", "s"]);
    command.current_dir(place.path("sub/deeper"));
    let said = crate::support::said(command);
    assert_eq!(said.code, 0, "{}", said.err);
    for path in paths {
        assert!(!place.path(&path).exists(), "{path} is read by the next command");
    }
}
