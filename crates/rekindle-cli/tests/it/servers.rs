//! Real servers, and everything a person can get wrong about them: what is said, and how it ends.

use std::process::Stdio;

use rekindle_fixtures::{Postgres, Redis};
use rustix::process::Signal;

use crate::processes::{end, signal, until};
use crate::support::{Place, Said};
use crate::workers::{Shared, another_goes_on_when_one_is_killed};

/// A database of the shared server, with a schema of its own.
fn postgres(schema: &str) -> String {
    format!("{}?schema={schema}", Postgres::shared().url())
}

/// The shared server, with a prefix of its own.
fn redis(prefix: &str) -> String {
    format!("{}?prefix={prefix}", Redis::shared().url())
}

fn assert_hidden(said: &Said) {
    let shown = format!("{}{}", said.out, said.err);
    assert!(!shown.contains(Postgres::PASSWORD) && !shown.contains("wrong-word"), "{shown}");
}

/// Runs it on a store: the exit status and the words it must say, and no password.
fn check(place: &Place, store: &str, arguments: &[&str], code: i32, words: &[&str]) {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--store", store]).collect();
    let said = place.run(&arguments);
    assert_eq!(said.code, code, "{arguments:?}\n{}\n{}", said.out, said.err);
    for word in words {
        assert!(said.err.contains(word), "{arguments:?} does not say `{word}`:\n{}", said.err);
    }
    assert_hidden(&said);
}

/// A place with an agent that answers at once.
fn place() -> Place {
    let place = Place::new();
    place.write(
        "quick.yaml",
        "name: quick\nmodel: {provider: scripted, script: {name: scripted, turns: [{text: done}]}}\n",
    );
    place
}

#[test]
fn a_killed_worker_is_replaced_on_postgres() {
    let shared = Shared::over(Place::new(), postgres("killed"));
    another_goes_on_when_one_is_killed(&shared);
    shared.ok(&["verify", "--all"]);
}

#[test]
fn a_killed_worker_is_replaced_on_redis() {
    let shared = Shared::over(Place::new(), redis("killed"));
    another_goes_on_when_one_is_killed(&shared);
    shared.ok(&["verify", "--all"]);
}

#[test]
fn a_worker_that_died_here_is_not_said_to_work() {
    let shared = Shared::over(Place::new(), redis("died"));
    let words = ["worker", "--store", &redis("died"), "-c", "lease=1h"];
    let mut worker = shared.place.command(&words).stderr(Stdio::null()).spawn().unwrap();
    until("it is on the list", || shared.run(&["workers"]).out.contains("working"));
    worker.kill().unwrap();
    worker.wait().unwrap();
    let listed = shared.ok(&["workers"]).out;
    assert!(listed.contains("died") && !listed.contains("working"), "{listed}");
}

#[test]
fn what_is_wrong_with_postgres_is_said() {
    let (place, server) = (place(), Postgres::shared());
    let (right, port) = (postgres("wrong"), server.port());
    let at = |user: &str, rest: &str| format!("postgres://{user}@127.0.0.1:{port}/{rest}");
    check(&place, &at("rekindle:wrong-word", "rekindle"), &["sessions"], 2, &["refuses the password", "check user"]);
    check(&place, &at("rekindle:secret", "nowhere"), &["sessions"], 3, &["no such database", "CREATE DATABASE"]);
    check(&place, "postgres://rekindle:secret@127.0.0.1:1/x", &["sessions"], 8, &["refused", "host and port"]);
    check(&place, "postgres://rekindle:secret@no.host.invalid/x", &["sessions"], 8, &["lookup", "host and port"]);
    check(&place, &right, &["run", "quick.yaml", "hello", "--session", "first"], 0, &["succeeded"]);

    server.sql("CREATE ROLE weak LOGIN PASSWORD 'secret'");
    let weak = at("weak:secret", "rekindle?schema=wrong");
    check(&place, &weak, &["sessions"], 2, &["may not do this", "docs/stores/postgres.md"]);

    server.sql("CREATE ROLE reader LOGIN PASSWORD 'secret'; ALTER ROLE reader SET default_transaction_read_only = on");
    server.sql("GRANT USAGE ON SCHEMA wrong TO reader; GRANT ALL ON ALL TABLES IN SCHEMA wrong TO reader");
    let reader = at("reader:secret", "rekindle?schema=wrong");
    check(&place, &reader, &["sessions"], 0, &[]);
    for words in [&["run", "quick.yaml", "x"][..], &["enqueue", "quick.yaml", "x"], &["worker", "--until-idle"]] {
        check(&place, &reader, words, 8, &["read-only", "name the primary"]);
    }
}

#[test]
fn a_store_of_a_later_version_is_left_alone() {
    let place = place();
    for store in [postgres("later"), redis("later")] {
        check(&place, &store, &["run", "quick.yaml", "hello", "--session", "first"], 0, &["succeeded"]);
    }
    Postgres::shared().sql("UPDATE later.meta SET version = 99");
    let identity = Redis::shared().command(&["GET", "later:store"]);
    let (_, identity) = identity.split_once(' ').unwrap();
    Redis::shared().command(&["SET", "later:store", &format!("99 {identity}")]);
    for store in [postgres("later"), redis("later")] {
        for words in [&["sessions"][..], &["worker", "--until-idle"], &["run", "quick.yaml", "x"]] {
            check(&place, &store, words, 7, &["99", "upgrade Rekindle"]);
        }
        let doctor = place.run(&["doctor", "--store", &store]);
        assert_eq!(doctor.code, 1, "{}", doctor.out);
        assert!(doctor.out.contains("it answers, but") && doctor.out.contains("upgrade"), "{}", doctor.out);
        assert_hidden(&doctor);
    }
}

#[test]
fn what_is_wrong_with_redis_is_said() {
    let (place, server) = (place(), Redis::shared());
    server.command(&["ACL", "SETUSER", "weak", "on", ">secret", "~other:*", "+@all"]);
    let at = |user: &str| format!("redis://{user}@127.0.0.1:{}?prefix=wrong", server.port());
    check(&place, &at("weak:wrong-word"), &["sessions"], 2, &["refuses the login", "check user and password"]);
    check(&place, &at("weak:secret"), &["run", "quick.yaml", "x"], 2, &["the user may not", "keys", "prefix"]);
    check(&place, "redis://:secret@127.0.0.1:1", &["sessions"], 8, &["cannot be reached", "host and port"]);
}

#[test]
fn a_url_that_is_none_is_refused_with_the_form_it_should_have() {
    let place = place();
    let check = |store: &str, words: &[&str]| check(&place, store, &["sessions"], 2, words);
    check("postgre://me:secret@db/agents", &["no `postgre:` store", "did you mean postgres:?"]);
    check("postgres:/db/agents", &["not a PostgreSQL URL", "postgres://user@host:5432/database"]);
    check("postgres://me:secret@db:port/agents", &["not a PostgreSQL URL"]);
    check("postgres://me:secret@db/agents?pool=many", &["`pool`", "a number"]);
    check("redis:/x", &["not an address of Redis", "redis://"]);
    check("s3:bucket", &["does not name a bucket", "s3://bucket/prefix"]);
    check("./x.db", &["no scheme", "sqlite:./x.db"]);
}

#[test]
fn workers_need_a_store_that_keeps_a_queue() {
    let place = place();
    for store in ["file:./files", "objects:./objects"] {
        check(&place, store, &["run", "quick.yaml", "hello"], 0, &["succeeded"]);
        for words in [&["worker"][..], &["enqueue", "quick.yaml", "x"], &["queues"], &["workers"]] {
            check(&place, store, words, 2, &["keeps no queue", "postgres:"]);
        }
    }
    for words in [&["worker"][..], &["enqueue", "quick.yaml", "x"]] {
        check(&place, "memory:", words, 2, &["would end with this command", "sqlite:"]);
    }
}

#[test]
fn the_longest_session_id_works_everywhere() {
    let place = place();
    let (longest, longer) = ("😀".repeat(64), "😀".repeat(64) + "x");
    let local = ["sqlite:./a.db", "file:./files", "objects:./objects"].map(str::to_owned);
    for store in local.into_iter().chain([postgres("longest"), redis("longest")]) {
        check(&place, &store, &["run", "quick.yaml", "hello", "--session", &longest], 0, &["succeeded"]);
        check(&place, &store, &["log", &longest], 0, &[]);
        check(&place, &store, &["run", "quick.yaml", "hello", "--session", &longer], 2, &["257 bytes; 256"]);
        let shown = place.json(&["sessions", "show", &longest, "--store", &store]);
        assert_eq!(shown["status"], "succeeded", "{shown}");
        check(&place, &store, &["verify", "--all"], 0, &[]);
    }
}

#[test]
fn a_file_that_is_broken_is_named_by_workers() {
    let shared = Shared::over(place(), postgres("broken"));
    shared.place.write("broken.yaml", "name: quick\nmodel: {provider: scripted, scrip");
    let refused = shared.run(&["worker", "broken.yaml"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("not YAML") && refused.err.contains("broken.yaml:2"), "{}", refused.err);

    // Broken after it was enqueued: the job stays, and says why.
    let right = std::fs::read_to_string(shared.place.path("quick.yaml")).unwrap();
    shared.ok(&["enqueue", "quick.yaml", "hello", "--session", "trip"]);
    shared.place.write("quick.yaml", "name: quick\nmodel: {provider: scripted, scrip");
    let worker = shared.worker_with(&["--trust"]);
    until("the job has a note", || shared.jobs()[0]["note"].as_str().is_some_and(|note| note.contains("quick.yaml:2")));
    shared.place.write("quick.yaml", &right);
    shared.ok(&["enqueue", "trip"]);
    until("it is done", || shared.status("trip") == "succeeded");
    signal(&worker, Signal::TERM);
    let told = end(worker);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("given back trip") && told.err.contains("not YAML"), "{}", told.err);
    assert_hidden(&told);
}

#[test]
fn a_run_whose_server_goes_away_says_how_to_go_on() {
    let server = Postgres::start(&["fsync=off"]);
    let shared = Shared::over(Place::new(), server.url());
    // It tries as long as its lease lasts.
    let words = ["run", "clerk.yaml", "book", "--session", "trip", "--store", &server.url(), "-c", "lease=2s"];
    let mut command = shared.place.command(&words);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shared.until_started(2);
    server.kill();
    shared.place.write("go", "");
    let told = end(run);
    assert_eq!(told.code, 8, "{}", told.err);
    assert!(told.err.contains("on record up to main:") && told.err.contains("rekindle resume trip"), "{}", told.err);
    assert!(told.err.contains("in doubt") && told.err.contains("`book`"), "{}", told.err);
    assert_hidden(&told);
    let away = shared.run(&["resume", "trip"]);
    assert_eq!(away.code, 8, "{}", away.err);
    server.restart();
    shared.ok(&["resume", "trip"]);
    shared.assert_booked();
}

#[test]
fn a_worker_outlives_its_server() {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let shared = Shared::over(Place::new(), server.url());
    let worker = shared.worker();
    shared.ok(&["enqueue", "clerk.yaml", "book", "--session", "trip"]);
    shared.until_started(2);
    server.kill();
    shared.place.write("go", "");
    server.restart();
    until("it is done", || shared.run(&["sessions", "show", "trip"]).out.contains("succeeded"));
    signal(&worker, Signal::TERM);
    let told = end(worker);
    assert_eq!(told.code, 0, "{}", told.err);
    shared.assert_booked();
}

#[test]
fn copies_go_from_server_to_server_and_back() {
    let place = place();
    for number in ["1", "2", "3"] {
        place.ok(&["run", "quick.yaml", "hello", "--session", number, "--quiet"]);
    }
    let stores = ["sqlite:./rekindle.db", &postgres("copied"), &redis("copied"), "file:./copied", "sqlite:./back.db"];
    for pair in stores.windows(2) {
        let copied = place.json(&["copy", "--from", pair[0], "--to", pair[1], "--verify"]);
        assert_eq!(copied["sessions"].as_array().unwrap().len(), 3, "{copied}");
        check(&place, pair[1], &["verify", "--all"], 0, &[]);
    }
    let again = place.run(&["copy", "--from", "sqlite:./back.db", "--to", &postgres("copied")]);
    assert!(again.out.contains("3 were there already") || again.err.contains("3 were there already"), "{again:?}");
    assert_hidden(&again);
}

#[test]
fn a_copy_to_a_store_that_cannot_be_had_fails_before_it_begins() {
    let place = place();
    place.ok(&["run", "quick.yaml", "hello", "--session", "first", "--quiet"]);
    let server = Postgres::shared();
    let nowhere = format!("postgres://rekindle:secret@127.0.0.1:{}/nowhere", server.port());
    let refused = server.url().replace(":secret@", ":wrong-word@");
    for (to, code, words) in [(nowhere, 3, "no such database"), (refused, 2, "refuses the password")] {
        let said = place.run(&["copy", "--to", &to]);
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.contains(words), "{said:?}");
        assert_hidden(&said);
        let error = place.fails(&["copy", "--to", &to], code);
        assert!(error["error"]["message"].as_str().unwrap().contains(words), "{error}");
        assert_eq!(place.run(&["copy", "--to", &to, "--json"]).out, "", "no document was begun");
    }
}
