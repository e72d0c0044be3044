//! The workspace keeps its layers, and every rule notices what breaks it.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use rekindle_layers::{Crate, check, load, rules};

#[test]
fn the_workspace_keeps_its_layers() {
    let crates = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    let faults = check(&crates);
    assert!(faults.is_empty(), "see docs/architecture.md:\n{}", faults.join("\n"));

    // The rules are about something: nothing they name was renamed or moved away.
    let named = |name: &str| crates.iter().find(|found| found.name == name);
    assert!(rules::CRATES.iter().all(|(name, _)| named(name).is_some_and(|found| found.published)));
    for protocol in rules::PROTOCOLS {
        assert!(protocol.crates.iter().all(|name| named(name).is_some()), "{protocol:?}");
    }
    for rule in rules::UPPER {
        let files = &named(rule.within).unwrap().files;
        for module in rule.users.iter().chain([&rule.module]) {
            let module: Vec<&str> = module.split("::").collect();
            assert!(files.iter().any(|file| file.module == module), "{rule:?}: {module:?}");
        }
    }
    let engine = named("rekindle").unwrap();
    for item in rules::STORE_ITEMS {
        assert!(engine.files.iter().any(|file| file.text.contains(item)), "the engine does not use `{item}`");
    }
}

const WORKSPACE: &str = r#"
[workspace.dependencies]
rekindle-core = { path = "crates/rekindle-core", version = "1" }
rekindle-fuzz = { path = "dev/fuzz" }
mcp-sdk = { package = "rmcp", version = "1" }
"#;

fn krate(name: &str, manifest: &str) -> Crate {
    Crate::new(&format!("[package]\nname = \"{name}\"\n{manifest}"), WORKSPACE, true).unwrap()
}

fn unpublished(name: &str) -> Crate {
    Crate::new(&format!("[package]\nname = \"{name}\"\npublish = false"), WORKSPACE, false).unwrap()
}

/// Checks a crate beside some others.
fn check_with(checked: Crate, expected: &[&str]) {
    let others = ["rekindle-core", "rekindle-store", "rekindle", "rekindle-models", "rekindle-mcp"];
    let others = others.into_iter().filter(|name| *name != checked.name).map(|name| krate(name, ""));
    let mut crates: Vec<Crate> = others.chain([unpublished("rekindle-fuzz")]).collect();
    crates.push(checked);
    assert_eq!(check(&crates), expected);
}

fn check_manifest(name: &str, manifest: &str, expected: &[&str]) {
    check_with(krate(name, manifest), expected);
}

fn check_source(name: &str, path: &str, text: &str, expected: &[&str]) {
    check_with(krate(name, "").with(path, text), expected);
}

#[test]
fn a_crate_that_depends_upwards_is_noticed() {
    check_manifest("rekindle-store", "[dependencies]\nrekindle-core.workspace = true", &[]);
    let upwards = "[dependencies]\nrekindle = \"1\"";
    check_manifest("rekindle-store", upwards, &["rekindle-store: Cargo.toml: it may not depend on rekindle"]);
    let platform = "[target.'cfg(unix)'.dependencies]\nrekindle = \"1\"";
    check_manifest("rekindle-core", platform, &["rekindle-core: Cargo.toml: it may not depend on rekindle"]);
    let sibling = "[build-dependencies]\nother = { package = \"rekindle-mcp\", version = \"1\" }";
    check_manifest("rekindle-import", sibling, &["rekindle-import: Cargo.toml: it may not depend on rekindle-mcp"]);
    check_manifest("rekindle-store", "[dev-dependencies]\nrekindle-models = \"1\"", &[]);
}

#[test]
fn what_is_not_published_is_for_tests_alone() {
    check_manifest("rekindle-core", "[dev-dependencies]\nrekindle-fuzz.workspace = true", &[]);
    check_manifest(
        "rekindle-core",
        "[dependencies]\nrekindle-fuzz.workspace = true",
        &["rekindle-core: Cargo.toml: rekindle-fuzz is not published: only tests may use it"],
    );
    check_manifest(
        "rekindle-core",
        "[dev-dependencies]\nrekindle-fuzz = { path = \"x\", version = \"1\" }",
        &["rekindle-core: Cargo.toml: rekindle-fuzz is not published: name it by path, without a version"],
    );
    check_with(
        Crate::new("[package]\nname = \"rekindle-x\"", WORKSPACE, false).unwrap(),
        &["rekindle-x: it stands in dev/ and must say `publish = false`"],
    );
    check_manifest("rekindle-x", "", &["rekindle-x: it stands in no layer; give it a line in `rules::CRATES`"]);
    let misplaced = Crate::new("[package]\nname = \"rekindle-tools\"\npublish = false", WORKSPACE, true).unwrap();
    check_with(misplaced, &["rekindle-tools: Cargo.toml: it is not published, so it belongs into dev/"]);
}

#[test]
fn a_path_to_a_crate_above_is_noticed() {
    check_source("rekindle-store", "lib.rs", "use rekindle_core::Store;\n// use rekindle::Engine;", &[]);
    check_source(
        "rekindle-store",
        "memory.rs",
        "\nuse rekindle::{Engine};",
        &["rekindle-store/src/memory.rs:2: rekindle-store may not use rekindle"],
    );
    check_source(
        "rekindle-import",
        "a/mod.rs",
        "fn f() { rekindle_mcp::serve() }",
        &["rekindle-import/src/a/mod.rs:1: rekindle-import may not use rekindle-mcp"],
    );
    check_source("rekindle", "engine.rs", "use rekindle_store::{StoreOptions, open};", &[]);
    check_source(
        "rekindle",
        "engine.rs",
        "use rekindle_store::{StoreOptions, SqliteStore};",
        &["rekindle/src/engine.rs:1: the engine sees stores through the traits of rekindle-core, not `SqliteStore`"],
    );
}

#[test]
fn a_protocol_outside_its_crate_is_noticed() {
    check_manifest(
        "rekindle",
        "[dependencies]\nmcp-sdk.workspace = true",
        &[
            "rekindle: Cargo.toml: only rekindle-mcp, rekindle-server, rekindle-tools, rekindle-definitions, rekindle-cli may depend on rmcp",
        ],
    );
    check_manifest("rekindle-server", "[dependencies]\naxum = \"1\"\nhyper-util = \"1\"", &[]);
    check_manifest(
        "rekindle-models",
        "[dev-dependencies]\nhyper-util = \"1\"",
        &["rekindle-models: Cargo.toml: only rekindle-server may depend on hyper-util"],
    );
    check_source(
        "rekindle",
        "message/mod.rs",
        "pub mod ag_ui;",
        &["rekindle/src/message/mod.rs:1: only rekindle-server may name `ag_ui`"],
    );
    check_source(
        "rekindle-tools",
        "lib.rs",
        "#[derive(clap::Args)] struct A; /// clap::Args",
        &["rekindle-tools/src/lib.rs:1: only rekindle-cli may name `clap`"],
    );
    check_source(
        "rekindle-definitions",
        "lib.rs",
        "extern crate axum;",
        &["rekindle-definitions/src/lib.rs:1: only rekindle-server may name `axum`"],
    );
}

#[test]
fn a_module_that_uses_one_above_is_noticed() {
    let operations =
        |path: &str, line: u32| format!("rekindle/src/{path}:{line}: only operations, worker may use `operations`");
    for (path, text) in [
        ("driver/open.rs", "use crate::operations::resume;"),
        ("driver/open.rs", "use super::super::operations;"),
        ("executor/child.rs", "use crate::{driver::Driver, operations::{self, At}};"),
        ("executor/plan/mod.rs", "fn f() { crate::operations::control::tell() }"),
        ("executor/plan/mod.rs", "mod tests { use super::super::super::operations::At; }"),
        ("session.rs", "pub use crate::operations as o;"),
    ] {
        let found = check(&[krate("rekindle", "").with(path, text)]);
        assert!(!found.is_empty() && found.iter().all(|found| *found == operations(path, 1)), "{text}: {found:?}");
    }
    check_source(
        "rekindle",
        "operations/run.rs",
        "use crate::worker::Work;",
        &["rekindle/src/operations/run.rs:1: only worker may use `worker`"],
    );
    check_source(
        "rekindle",
        "operations/go_on.rs",
        "use crate::executor::graph::state::OVERLAY;",
        &["rekindle/src/operations/go_on.rs:1: only executor, worker, middleware, secret may use `executor::graph`"],
    );
    check_source(
        "rekindle",
        "executor/mod.rs",
        "use crate::*;",
        &["rekindle/src/executor/mod.rs:1: everything of the crate: name what is used"],
    );
    check_source("rekindle", "worker/job.rs", "use crate::operations; // crate::operations::x", &[]);
    check_source("rekindle", "executor/mod.rs", "/// [`crate::operations::resume`]\nstruct A(driver::Driver);", &[]);
    check_source("rekindle", "lib.rs", "pub mod operations; pub use operations::At;", &[]);
}

#[test]
fn a_name_of_the_root_leads_where_it_comes_from() {
    let root = krate("rekindle", "").with("lib.rs", "pub mod operations; pub use operations::run::{At as Moment};");
    let found = check(&[root.with("driver/mod.rs", "\nuse crate::Moment;")]);
    assert_eq!(found, ["rekindle/src/driver/mod.rs:2: only operations, worker may use `operations`"]);
}
