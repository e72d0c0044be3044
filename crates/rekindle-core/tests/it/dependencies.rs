//! Licences, sources and banned crates, over what `cargo metadata` says, by the lists of `deny.toml`: for machines
//! without `cargo deny`. Nothing is downloaded.

use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// Crates of which two versions would be two runtimes, TLS stacks or databases in one binary.
const ONCE: &[&str] = &["hyper", "object_store", "reqwest", "ring", "rmcp", "rusqlite", "rustls", "tokio", "zstd"];

/// Crates that must not come in, not even through others, and why.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "one TLS stack only, without a C library of the system"),
    ("native-tls", "one TLS stack only, without a C library of the system"),
    ("aws-lc-sys", "needs cmake; ring is the one crypto provider"),
    ("bincode", "abandoned"),
    ("serde_yaml", "deprecated"),
    ("sled", "unmaintained"),
    ("backoff", "unmaintained"),
];

/// Crates that come in through others at most, and why.
const NOT_OURS: &[(&str, &str)] = &[("chrono", "times are integers in the model")];

fn run(program: &str, default: &str, arguments: &[&str]) -> String {
    let program = std::env::var(program).unwrap_or_else(|_| default.into());
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages this platform builds; those of others may not have been downloaded.
fn packages() -> &'static [Value] {
    static PACKAGES: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let version = run("RUSTC", "rustc", &["-vV"]);
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        let arguments =
            ["metadata", "--format-version=1", "--locked", "--offline", "--all-features", "--filter-platform", host];
        let metadata: Value = serde_json::from_str(&run("CARGO", "cargo", &arguments)).unwrap();
        metadata["packages"].as_array().unwrap().clone()
    });
    &PACKAGES
}

/// The texts of a list in `deny.toml`.
fn listed(key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deny.toml")).unwrap();
    let behind = text.split(&format!("\n{key} = [")).nth(1).unwrap_or_else(|| panic!("no list `{key}`"));
    let lines = behind.split(']').next().unwrap().lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns true if of an expression with `OR` one licence is allowed.
fn is_allowed(expression: &str) -> bool {
    static ALLOWED: LazyLock<Vec<String>> = LazyLock::new(|| listed("allow"));
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression
        .split(" AND ")
        .all(|part| part.split(" OR ").any(|licence| ALLOWED.iter().any(|allowed| allowed == licence.trim())))
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let refused: Vec<String> = packages()
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_allowed))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn licences_are_judged() {
    let check = |expression: &str, expected| assert_eq!(is_allowed(expression), expected, "{expression}");
    check("MIT", true);
    check("GPL-3.0-only", false);
    check("MIT OR GPL-3.0-only", true);
    check("MIT/Apache-2.0", true);
    check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
    check("MIT AND GPL-3.0-only", false);
    check("", false);
}

#[test]
fn every_dependency_comes_from_the_registry() {
    let registries = listed("allow-registry");
    for package in packages() {
        let Some(source) = package["source"].as_str() else { continue };
        let known = registries.iter().any(|registry| source == format!("registry+{registry}"));
        assert!(known, "{} comes from {source}", package["name"]);
    }
}

#[test]
fn what_there_must_be_once_is_there_once() {
    for name in ONCE {
        let found = packages().iter().filter(|package| package["name"] == **name).count();
        assert_eq!(found, 1, "{name}");
    }
}

#[test]
fn cargo_deny_bans_the_same_crates() {
    let banned: Vec<&str> = BANNED.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed("deny"), banned);
}

#[test]
fn no_banned_crate_comes_in() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if let Some((_, reason)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            panic!("{name} is banned: {reason}");
        }
    }
}

#[test]
fn no_crate_of_ours_needs_what_only_others_may() {
    let ours = packages().iter().filter(|package| package["source"].is_null());
    for package in ours {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            let reason = NOT_OURS.iter().find(|(banned, _)| *banned == name);
            assert!(reason.is_none(), "{} needs {name}: {reason:?}", package["name"]);
        }
    }
}

#[test]
fn core_has_neither_runtime_nor_database() {
    let core = packages().iter().find(|package| package["name"] == "rekindle-core").unwrap();
    let dependencies = core["dependencies"].as_array().unwrap();
    for dependency in dependencies.iter().filter(|dependency| dependency["kind"].is_null()) {
        let name = dependency["name"].as_str().unwrap();
        assert!(
            !["tokio", "rusqlite", "getrandom", "rand", "uuid", "tracing"].contains(&name),
            "core must not need {name}"
        );
    }
}
