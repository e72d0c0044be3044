//! Files that only their owner may read, whatever the umask says; and what the doctor says of others.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Place, Said, said};

const AGENT: &str = "name: a\nmodel: {provider: scripted, name: s, script: {turns: [{text: hello}]}}\n";
const SETTINGS: &str = "large_values = \"objects:./large\"\nlarge_values_from = 4096\n";

/// The binary under a umask.
fn under(umask: &str, place: &Place, arguments: &[&str]) -> Said {
    let plain = place.command(arguments);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\"")).arg(plain.get_program());
    command.args(plain.get_args()).env_clear().current_dir(place.path("")).stdin(std::process::Stdio::null());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    said(command)
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything below a folder.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_below(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn everything_that_is_created_is_private_whatever_the_umask() {
    for umask in ["0", "022", "0777"] {
        let place = Place::new();
        let agent = place.write("agent.yaml", AGENT);
        let settings = place.write("rekindle.toml", SETTINGS);
        let mut others = vec![agent, settings];
        // A folder that was there says nothing about who may read what is put into it.
        for name in ["there", "objects-there"] {
            std::fs::create_dir(place.path(name)).unwrap();
            set_mode(&place.path(name), 0o755);
            others.push(place.path(name));
        }
        let run = |arguments: &[&str]| {
            let said = under(umask, &place, arguments);
            assert_eq!(said.code, 0, "umask {umask}: {arguments:?}\n{}\n{}", said.out, said.err);
        };
        let long = "A long question. ".repeat(1_000);
        let stores =
            ["sqlite:./data/base.db", "file:./files", "file:./there", "objects:./objects", "objects:./objects-there"];
        for store in stores {
            run(&["run", "agent.yaml", &long, "--session", "s", "--store", store]);
            run(&["run", "agent.yaml", &long, "--session", "t", "--store", store]);
        }
        let store = "sqlite:./data/base.db";
        run(&["export", "s", "-o", "s.export", "--store", store]);
        run(&["export", "--all", "-o", "exports/all", "--store", store]);
        run(&["archive", "s", "--to", "objects:./archive", "--keep", "--store", store]);
        run(&["copy", "--to", "file:./copies", "--store", store]);
        run(&["sessions", "rm", "s", "--yes", "--receipt", "receipt.json", "--store", store]);
        run(&["demo", "--dir", "demo"]);

        let found = all_below(&place.path(""));
        let names = ["base.db-marks", "session.json", "s.export", "receipt.json", "ledger.txt", "files-marks", "large"];
        for name in names {
            assert!(found.iter().any(|path| path.ends_with(name)), "umask {umask}: {name} is missing");
        }
        for path in found.iter().filter(|path| !others.contains(path)) {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(path), expected, "umask {umask}: {} has {:o}", path.display(), mode(path));
        }
    }
}

#[test]
fn a_store_that_is_shared_stays_shared() {
    let place = Place::new();
    place.write("agent.yaml", AGENT);
    for store in ["file:./files", "objects:./objects", "sqlite:./base.db"] {
        let run = |session: &str| {
            let said = under("022", &place, &["run", "agent.yaml", "hi", "--session", session, "--store", store]);
            assert_eq!(said.code, 0, "{}", said.err);
        };
        run("one");
        let shared = |path: &PathBuf| !path.ends_with("agent.yaml");
        for path in all_below(&place.path("")).iter().filter(|path| shared(path)) {
            set_mode(path, if path.is_dir() { 0o770 } else { 0o660 });
        }
        run("two");
        for path in all_below(&place.path("")).iter().filter(|path| shared(path)) {
            let expected = if path.is_dir() { 0o770 } else { 0o660 };
            assert_eq!(mode(path), expected, "{store}: {} has {:o}", path.display(), mode(path));
        }
    }
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode() {
    let place = Place::new();
    place.talk("s", "q", "a");
    place.ok(&["export", "s", "-o", "s.export"]);
    set_mode(&place.path("s.export"), 0o640);
    place.ok(&["export", "s", "-o", "s.export", "--force"]);
    assert_eq!(mode(&place.path("s.export")), 0o640);
}

#[test]
fn the_doctor_names_a_store_that_others_can_read() {
    let place = Place::new();
    set_mode(&place.path(""), 0o755);
    place.write("agent.yaml", AGENT);
    let check = |store: &str, path: &str, mode: u32, expected: Option<&str>| {
        set_mode(&place.path(path), mode);
        let told = place.run(&["doctor", "--json", "--store", store]);
        let checks: serde_json::Value = serde_json::from_str(&told.out).unwrap();
        let private = checks.as_array().unwrap().iter().find(|check| check["name"] == "private");
        match expected {
            None => assert_eq!(private, None, "{store} {path} {mode:o}"),
            Some(verb) => {
                let private = private.unwrap_or_else(|| panic!("{store} {path} {mode:o}: {}", told.out));
                assert_eq!(private["health"], "warning");
                assert!(private["says"].as_str().unwrap().contains(&format!("others can {verb} ")), "{private}");
                let (command, name) = (private["do"].as_str().unwrap(), path.split('/').next().unwrap());
                assert!(command.starts_with("chmod ") && command.contains(name), "{private}");
                let mended = Command::new("sh").arg("-c").arg(command).current_dir(place.path("")).status().unwrap();
                assert!(mended.success(), "{command}");
                let again = place.run(&["doctor", "--store", store]);
                assert!(!again.out.contains("others can"), "{}", again.out);
            }
        }
    };
    for store in ["sqlite:./base.db", "file:./files", "objects:./objects"] {
        place.ok(&["run", "agent.yaml", "hi", "--session", "s", "--store", store]);
    }
    check("sqlite:./base.db", "base.db", 0o600, None);
    check("sqlite:./base.db", "base.db", 0o644, Some("read"));
    check("sqlite:./base.db", "base.db", 0o666, Some("read and write"));
    check("sqlite:./base.db", "base.db-marks", 0o640, Some("read"));
    check("file:./files", "files", 0o755, None);
    set_mode(&place.path("files"), 0o755);
    check("file:./files", "files/rekindle.json", 0o644, Some("read"));
    check("file:./files", "files", 0o777, Some("read and write"));
    check("objects:./objects", "objects", 0o722, Some("write"));
}
