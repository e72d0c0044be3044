//! Powers of a configuration that is found, before and after its content was trusted.

use super::{assert_untrusted, set_mode, used, write_spy};
use crate::setup::completed;
use crate::support::{Place, at_terminal, said};

/// A store on a server that is not there, and a program for its password.
const HOSTILE: &str = "store = 'postgres://u@127.0.0.1:1/d'\nstore_password = '@command:sh spy.sh'\n";

fn hostile() -> Place {
    let place = Place::new();
    write_spy(&place);
    place.write("rekindle.toml", HOSTILE);
    place
}

#[test]
fn secrets_programs_and_servers_need_trust_once() {
    let place = hostile();
    let powers = ["keeps sessions at postgres://u@127.0.0.1:1/d", "uses the secret @command:sh spy.sh"];
    let trust = format!("rekindle trust {}", place.path("rekindle.toml").canonicalize().unwrap().display());
    let commands = [&["sessions"][..], &["config"], &["waits"], &["worker", "--until-idle"], &["verify", "--all"]];
    for command in commands {
        assert_untrusted(&place.run(command), &[powers[0], powers[1], &trust, "--config"]);
    }
    let doctor = place.run(&["doctor"]);
    assert_eq!(doctor.code, 1);
    assert!(doctor.out.contains("✗ trust") && doctor.out.contains(powers[1]), "{}", doctor.out);
    assert_eq!(used(&place), 0, "nothing was looked up");

    // Nobody can be asked.
    let asked = place.run(&["trust"]);
    assert_eq!(asked.code, 2, "{}", asked.err);
    assert!(asked.err.contains("rekindle trust rekindle.toml --yes"), "{}", asked.err);
    let told = place.run(&["trust", "--yes"]);
    assert_eq!((told.code, used(&place)), (0, 0), "{}", told.err);
    assert!(powers.iter().all(|power| told.err.contains(power)), "{}", told.err);
    assert_eq!(place.run(&["sessions"]).code, 8, "the server is not there");
    assert_eq!(used(&place), 1);
    let doctor = place.run(&["doctor"]);
    assert!(doctor.out.contains("rekindle.toml (trusted)"), "{}", doctor.out);

    // Every change is another content, and what was trusted can be taken back.
    let changed = place.write("rekindle.toml", &format!("{HOSTILE}namespace = 'x'\n"));
    assert_untrusted(&place.run(&["sessions"]), &[]);
    place.ok(&["trust", "rekindle.toml", "--yes"]);
    assert_eq!(place.run(&["sessions"]).code, 8);
    assert!(place.ok(&["trust", "--list"]).contains("as it was; it is not so now"));
    let listed = place.json(&["trust", "--list"]);
    assert_eq!(listed.as_array().unwrap().iter().filter(|entry| entry["current"] == true).count(), 1, "{listed}");
    place.ok(&["trust", "--revoke", "rekindle.toml"]);
    assert_untrusted(&place.run(&["sessions"]), &[]);
    assert_eq!(place.run(&["trust", "--revoke", "rekindle.toml"]).code, 3);
    // The same content elsewhere was not trusted.
    place.ok(&["trust", "rekindle.toml", "--yes"]);
    let elsewhere = Place::new();
    std::fs::copy(changed, elsewhere.path("rekindle.toml")).unwrap();
    let mut command = place.command(&["sessions"]);
    command.current_dir(elsewhere.path(""));
    assert_untrusted(&said(command), &[]);
}

#[test]
fn one_process_can_trust_what_it_finds() {
    let place = hostile();
    let check = |variable: Option<&str>, words: &[&str], trusted: bool| {
        let before = used(&place);
        let mut command = place.command(words);
        command.envs(variable.map(|value| ("REKINDLE_TRUST", value)));
        let said = said(command);
        match trusted {
            true => assert_eq!((said.code, used(&place)), (8, before + 1), "{variable:?} {words:?}: {}", said.err),
            false => {
                assert_untrusted(&said, &[]);
                assert_eq!(used(&place), before);
            }
        }
    };
    check(None, &["sessions"], false);
    check(Some("1"), &["sessions"], true);
    check(Some("true"), &["sessions"], true);
    check(Some("0"), &["sessions"], false);
    check(Some(""), &["sessions"], false);
    check(None, &["sessions", "--trust"], true);
    check(None, &["sessions", "--config", "rekindle.toml"], true);
    check(None, &["sessions"], false);
}

#[test]
fn a_person_is_shown_the_powers_and_asked() {
    let place = hostile();
    let said = at_terminal(place.command(&["trust"]), "n\n");
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("uses the secret @command:sh spy.sh"), "{}", said.err);
    assert_untrusted(&place.run(&["sessions"]), &[]);
    assert_eq!(at_terminal(place.command(&["trust"]), "y\n").code, 0);
    assert_eq!(place.run(&["sessions"]).code, 8);
}

#[test]
fn what_uses_no_power_needs_nothing() {
    let place = Place::new();
    let plain =
        "store = 'sqlite:./here.db'\nmodel = 'openai/gpt-5'\n[run]\ndurability = 'sync'\n[models]\nq = 'openai/x'\n";
    place.write("rekindle.toml", plain);
    place.ok(&["config"]);
    assert_eq!(std::fs::read_dir(place.state()).unwrap().count(), 0, "nothing had to be recorded");
    for power in
        ["store = 'sqlite:../out.db'", "anchor = 's3://b/x'", "[mcp]\nagents = ['a.yaml']", "[agents]\na = 'a.yaml'"]
    {
        place.write("rekindle.toml", power);
        assert_untrusted(&place.run(&["config"]), &[]);
    }
}

#[test]
fn tab_looks_up_no_secret_and_asks_no_server_that_needs_one() {
    let place = hostile();
    // Not trusted: it is not read. Trusted: its password is not looked up for a Tab.
    for trusted in [false, true] {
        if trusted {
            place.ok(&["trust", "--yes"]);
        }
        assert!(completed(&place, &["resume", ""]).iter().all(|word| word.starts_with('-')));
        assert_eq!(used(&place), 0, "trusted: {trusted}");
    }
    // A store that can be looked at without: its sessions are offered, if the file is believed.
    let file = place.write("rekindle.toml", "store = 'sqlite:./rekindle.db'\n");
    place.talk("trip", "hello", "hi");
    assert!(completed(&place, &["resume", ""]).iter().any(|word| word.contains("trip")));
    set_mode(&file, 0o666);
    assert!(!completed(&place, &["resume", ""]).iter().any(|word| word.contains("trip")));
}

#[test]
fn what_init_writes_is_trusted_whoever_may_write_there() {
    let place = Place::new();
    std::fs::create_dir(place.path("shared")).unwrap();
    set_mode(&place.path("shared"), 0o777);
    place.ok(&["init", "shared"]);
    let mut command = place.command(&["run", "agent.yaml", "What should I pack for Lisbon?"]);
    command.current_dir(place.path("shared"));
    let ran = said(command);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let config = std::fs::read_to_string(place.path("shared/rekindle.toml")).unwrap();
    place.write("shared/rekindle.toml", &format!("{config}\n# changed\n"));
    let mut command = place.command(&["sessions"]);
    command.current_dir(place.path("shared"));
    assert_untrusted(&said(command), &["everybody may write to its directory"]);
}

#[test]
fn what_is_trusted_is_recorded_for_the_user_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let place = hostile();
    place.ok(&["trust", "--yes"]);
    let folder = place.state().join("rekindle/trust");
    assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
    // A record that others could have made says nothing.
    set_mode(&folder, 0o777);
    assert_untrusted(&place.run(&["sessions"]), &[]);
    assert_eq!(place.run(&["trust", "--yes"]).code, 8);
    // Without a place for it, naming the file still works.
    let mut command = place.command(&["trust", "--yes"]);
    command.env_remove("XDG_STATE_HOME").env_remove("HOME");
    let told = said(command);
    assert_eq!(told.code, 8, "{}", told.err);
    assert!(told.err.contains("--config FILE"), "{}", told.err);
}

/// Two files about one thing: the key of one never goes to the host of the other, and what one leaves out of stores
/// the other does not put in.
#[test]
fn a_found_file_changes_no_model_of_the_user_and_stores_nothing_more() {
    let place = Place::new();
    place.write(
        ".config/rekindle/rekindle.toml",
        "[models.work]\nprovider = \"openai\"\nname = \"gpt\"\napi_key = \"@env:COMPANY\"\n\
         [redaction]\nexclude = [\"iban\"]\n[redaction.patterns]\ncard = \"[0-9]{16}\"\n",
    );
    place.write(
        "rekindle.toml",
        "[models.work]\nprovider = \"ollama\"\n[redaction]\nexclude = []\n[redaction.patterns]\ncard = \"zzzz\"\n",
    );
    let shown = place.ok(&["config", "--json"]);
    assert!(!shown.contains("COMPANY") && shown.contains("ollama"), "{shown}");
    assert!(shown.contains("iban") && shown.contains("(?:[0-9]{16})|(?:zzzz)"), "{shown}");
}
