//! Beginning, checking, help, completions and manual pages.

use std::net::TcpListener;

use crate::support::{Place, Said, said, without_sizes};

/// What a check of the doctor came to.
fn health(report: &serde_json::Value, name: &str) -> String {
    let checks = report.as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name);
    check.map(|check| check["health"].as_str().unwrap().to_owned()).unwrap_or_default()
}

fn doctor(place: &Place, variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    let arguments: Vec<&str> = ["doctor"].into_iter().chain(arguments.iter().copied()).collect();
    let mut command = place.command(&arguments);
    command.env("LANG", "C.UTF-8").envs(variables.iter().copied());
    said(command)
}

#[test]
fn the_doctor_finds_everything_in_order() {
    let place = Place::new();
    place.turns("trip", 1);
    let said = doctor(&place, &[("ANTHROPIC_API_KEY", "very-secret")], &[]);
    assert_eq!(said.code, 0, "{}", said.out);
    assert!(!said.out.contains("very-secret") && !said.err.contains("very-secret"));
    let version =
        format!("rekindle {} on {}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    place.snapshot("doctor", &without_sizes(&said.out).replace(&version, "<version>"));
}

#[test]
fn the_doctor_says_what_to_do() {
    let place = Place::new();
    let nothing = place.json(&["doctor"]);
    assert_eq!((health(&nothing, "store"), health(&nothing, "keys")), ("warning".into(), "warning".into()));
    assert!(!place.path("rekindle.db").exists());
    place.turns("trip", 1);
    let strange = doctor(&place, &[("REKINDLE_STOER", "x")], &["--json"]);
    let strange: serde_json::Value = serde_json::from_str(&strange.out).unwrap();
    assert_eq!(health(&strange, "configuration"), "warning");
    place.spoil(1);
    let damaged = doctor(&place, &[], &["--json"]);
    assert_eq!(damaged.code, 1);
    let damaged: serde_json::Value = serde_json::from_str(&damaged.out).unwrap();
    assert_eq!(health(&damaged, "integrity"), "bad");
    place.write("no-database", "hello, this is no database at all; it is a text of more than a hundred bytes, so that nobody takes it for an empty one");
    assert_eq!(doctor(&place, &[], &["--store", "sqlite:no-database"]).code, 1);
}

#[test]
fn the_doctor_tries_providers_when_asked() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let variables = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", url.as_str())];
    let reached = doctor(&place, &variables, &["--online", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&reached.out).unwrap();
    assert_eq!((reached.code, health(&report, "online")), (0, "good".into()));
    drop(listener);
    let lost = doctor(&place, &variables, &["--online", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&lost.out).unwrap();
    assert_eq!((lost.code, health(&report, "online")), (1, "bad".into()));
}

#[test]
fn init_writes_what_runs_and_overwrites_nothing() {
    let place = Place::new();
    let said = place.run(&["init"]);
    assert_eq!(said.code, 0, "{}", said.err);
    place.snapshot("init", &format!("{}{}", said.out, said.err));
    place.write("agent.yaml", "mine");
    let again = place.run(&["init"]);
    assert_eq!(again.code, 6);
    place.snapshot("init_again", &again.err);
    assert_eq!(std::fs::read_to_string(place.path("agent.yaml")).unwrap(), "mine");
    place.ok(&["init", "--force"]);
    assert_ne!(std::fs::read_to_string(place.path("agent.yaml")).unwrap(), "mine");
    // The configuration it writes is one this program reads.
    assert_eq!(place.json(&["config", "show"])[0]["origin"], "rekindle.toml");
    let plan = place.json(&["init", "my plans/x", "--kind", "plan"]);
    assert_eq!(plan["files"], serde_json::json!(["my plans/x/rekindle.toml", "my plans/x/plan.yaml"]));
    assert_eq!(plan["next"][0], "cd 'my plans/x'");
    let graph = place.json(&["init", "--kind", "graph"]);
    assert_eq!(graph["files"], serde_json::json!(["graph.yaml"]));
    assert_eq!(place.run(&["init", "--kind", "novel"]).code, 2);
}

#[test]
fn schemas_are_listed_and_printed() {
    let place = Place::new();
    place.snapshot("schemas", &place.ok(&["schema"]));
    assert_eq!(place.json(&["schema"]).as_array().unwrap().len(), 5);
    let config: serde_json::Value = serde_json::from_str(&place.ok(&["schema", "config"])).unwrap();
    assert!(config["properties"]["store"].is_object(), "{config}");
    serde_json::from_str::<serde_json::Value>(&place.ok(&["schema", "agent"])).unwrap();
    assert_eq!(place.fails(&["schema", "novel"], 3)["error"]["code"], "RK0003");
}

#[test]
fn help_has_topics_and_commands() {
    let place = Place::new();
    for topic in ["exit-codes", "references", "files", "environment"] {
        place.snapshot(&format!("help_{}", topic.replace('-', "_")), &place.ok(&["help", topic]));
        assert!(place.json(&["help", topic]).to_string().len() > 100);
    }
    place.snapshot("help_agent", &place.ok(&["help", "--agent"]));
    assert!(place.ok(&["help"]).contains("rekindle help TOPIC"));
    assert!(place.ok(&["help", "prune", "inactive"]).contains("--older-than"));
    assert_eq!(place.ok(&["help", "fork"]), place.ok(&["fork", "--help"]));
    assert_eq!(place.json(&["help", "exit-codes"])[4]["code"], 4);
    let unknown = place.fails(&["help", "exit-code"], 3);
    assert_eq!(unknown["error"]["hint"], "did you mean `rekindle help exit-codes`?");
    assert_eq!(place.fails(&["help", "prune", "everything"], 3)["error"]["code"], "RK0003");
}

#[test]
fn every_command_has_help_with_an_example() {
    let place = Place::new();
    for command in [
        "fork",
        "edit",
        "prune",
        "verify",
        "export",
        "import",
        "copy",
        "init",
        "doctor",
        "schema",
        "help",
        "completions",
        "man",
        "version",
    ] {
        assert!(place.ok(&[command, "--help"]).contains("Example"), "{command}");
    }
}

#[test]
fn the_version_says_what_is_in_it() {
    let place = Place::new();
    let version = place.json(&["version"]);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        version["stores"],
        serde_json::json!(["memory", "file", "sqlite", "postgres", "redis", "rediss", "objects", "s3", "gs", "az"])
    );
    assert!(place.ok(&["version"]).starts_with(&format!("rekindle {}\n", env!("CARGO_PKG_VERSION"))));
}

/// What bash gets for these words when Tab is pressed at the last one.
pub fn completed(place: &Place, words: &[&str]) -> Vec<String> {
    let arguments: Vec<&str> = ["--", "rekindle"].into_iter().chain(words.iter().copied()).collect();
    let mut command = place.command(&arguments);
    command.env("COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true");
    let said = said(command);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    said.out.lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_commands_and_sessions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.ok(&["completions", shell]).contains("COMPLETE"), "{shell}");
    }
    assert_eq!(place.json(&["completions", "bash"])["line"], "source <(rekindle completions bash)");
    assert_eq!(place.run(&["completions", "dos"]).code, 2);
    assert_eq!(completed(&place, &["ver"]), ["verify", "version"]);
    // Without a store there is nothing to offer, and nothing is made.
    assert_eq!(completed(&place, &["verify", "tr"]), Vec::<String>::new());
    assert!(!place.path("rekindle.db").exists());
    place.turns("trip-1", 1);
    place.turns("trip-2", 1);
    place.turns("other", 1);
    assert_eq!(completed(&place, &["verify", "tr"]), ["trip-2", "trip-1"]);
    assert_eq!(completed(&place, &["--store", "sqlite:none.db", "verify", "tr"]), Vec::<String>::new());
    assert_eq!(completed(&place, &["verify", "--namespace=team", "tr"]), Vec::<String>::new());
    place.write("rekindle.toml", "nonsense = 1\n");
    assert_eq!(completed(&place, &["verify", "tr"]), Vec::<String>::new());
}

#[test]
fn manual_pages_are_written() {
    let place = Place::new();
    assert!(place.ok(&["man"]).contains(".TH rekindle 1"));
    let pages = place.json(&["man", "pages"]);
    for page in ["pages/rekindle.1", "pages/rekindle-fork.1", "pages/rekindle-prune-inactive.1"] {
        assert!(pages.as_array().unwrap().contains(&page.into()), "{page}");
        assert!(std::fs::read_to_string(place.path(page)).unwrap().contains(".SH NAME"));
    }
}
