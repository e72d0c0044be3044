//! Licences and banned crates, over what `cargo metadata` says. Nothing is downloaded.

use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// Licences a dependency may be under; of an expression with `OR`, one must be among them.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "CC0-1.0",
    "Unlicense",
    "Zlib",
    "Unicode-3.0",
    "MIT-0",
    "BSL-1.0",
];

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

fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression.split(" AND ").all(|part| part.split(" OR ").any(|licence| ALLOWED.contains(&licence.trim())))
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
