//! Stores on servers: what they are told, and what is never said of them.

use crate::support::{Place, Said, said};

const SECRET: &str = "hunter2-never-shown";

const COMMANDS: &[&[&str]] = &[
    &["sessions"],
    &["sessions", "show", "trip"],
    &["sessions", "rm", "trip"],
    &["log", "trip"],
    &["diff", "trip", "trip@~1"],
    &["replay", "trip"],
    &["waits"],
    &["resume", "trip"],
    &["send", "trip", "hello"],
    &["pause", "trip"],
    &["cancel", "trip"],
    &["fork", "trip"],
    &["prune", "trip"],
    &["verify", "--all"],
    &["export", "trip", "-o", "x"],
    &["archive", "trip", "--to", "objects:./archive"],
    &["copy", "--to", "file:./backup"],
    &["doctor"],
    &["config"],
    &["version"],
];

fn check(words: &[&str], said: &Said) {
    assert!(!said.out.contains(SECRET) && !said.err.contains(SECRET), "{words:?}\n{}\n{}", said.out, said.err);
}

#[test]
fn no_command_shows_a_password_wherever_it_stands() {
    let urls = [
        format!("postgres://me:{SECRET}@127.0.0.1:1/db"),
        format!("redis://:{SECRET}@127.0.0.1:1/0"),
        format!("postgress://me:{SECRET}@127.0.0.1:1/db"),
        format!("postgres://me@127.0.0.1:1/db?password={SECRET}"),
    ];
    std::thread::scope(|scope| {
        for url in &urls {
            scope.spawn(move || {
                let place = Place::new();
                for words in COMMANDS {
                    let flagged = [&["--store", url.as_str()], *words].concat();
                    check(&flagged, &place.run(&flagged));
                    let json = [*words, &["--json"]].concat();
                    let mut command = place.command(&json);
                    command.env("REKINDLE_STORE", url);
                    check(&json, &said(command));
                }
                let to = place.run(&["copy", "--to", url, "--from", "sqlite:./none.db"]);
                check(&["copy", "--to"], &to);
            });
        }
    });
}

#[test]
fn the_configuration_shows_a_url_without_its_password() {
    let place = Place::new();
    place.write(
        "rekindle.toml",
        &format!("store = \"postgres://me:{SECRET}@db/agents\"\nstore_password = \"@env:PGPASSWORD\"\n"),
    );
    let refused = place.run(&["config"]);
    assert!(refused.err.contains("postgres://me:***@db/agents") && !refused.err.contains(SECRET), "{}", refused.err);
    place.ok(&["trust", "--yes"]);
    let shown = place.ok(&["config"]);
    assert!(shown.contains("postgres://me:***@db/agents") && shown.contains("@env:PGPASSWORD"), "{shown}");
    let keys = place.json(&["config"]);
    assert!(!keys.to_string().contains(SECRET), "{keys}");
}

#[test]
fn a_password_is_given_by_reference_or_in_its_variable() {
    let place = Place::new();
    let mut command = place.command(&["config", "--json"]);
    command.env("REKINDLE_STORE_PASSWORD", SECRET);
    let shown = said(command);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out.contains("@env:REKINDLE_STORE_PASSWORD"), "{}", shown.out);
    check(&["config"], &shown);
    for words in [&["-c", "store_password=hunter2-never-shown", "config"][..], &["--config", "bad.toml", "config"]] {
        place.write("bad.toml", &format!("store_password = \"{SECRET}\"\n"));
        let refused = place.run(words);
        assert_eq!(refused.code, 2, "{}", refused.out);
        check(words, &refused);
    }
}

#[test]
fn a_typo_in_a_scheme_names_the_one_that_was_meant() {
    let place = Place::new();
    let refused = place.fails(&["--store", "sqllite:./a.db", "sessions"], 2);
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("sqlite:") && hint.contains("file:"), "{hint}");
}

#[test]
fn places_of_objects_are_shown_without_their_keys_and_sizes_are_checked() {
    let place = Place::new();
    place.write("rekindle.toml", "large_values = \"objects:./large\"\nlarge_values_from = 4096\n");
    let shown = place.ok(&["config"]);
    assert!(shown.contains("objects:./large") && shown.contains("4096"), "{shown}");
    let url = format!("archive=s3://bucket/x?aws_secret_access_key={SECRET}&region=eu");
    let shown = place.run(&["-c", &url, "config"]);
    assert!(shown.out.contains("aws_secret_access_key=***&region=eu"), "{}", shown.out);
    check(&["config"], &shown);
    check(&["archive", "list"], &place.run(&["-c", &format!("archive=s4://u:{SECRET}@b/x"), "archive", "list"]));
    for size in ["large", "0", "1XB"] {
        assert_eq!(place.run(&["-c", &format!("large_values_from={size}"), "config"]).code, 2, "{size}");
    }
}
