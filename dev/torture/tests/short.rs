//! The torture, short, over each store that workers can share. The long one is a command; see
//! `docs/scale.md`.

// A test that meets an error it does not expect ends there.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

const TORTURE: &str = env!("CARGO_BIN_EXE_rekindle-torture");

/// Builds the command line beside this program, unless a build of the workspace has.
fn build_command_line() {
    let directory = Path::new(TORTURE).parent().unwrap();
    if directory.join("rekindle").exists() {
        return;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--package", "rekindle-cli", "--target-dir"]).arg(directory.parent().unwrap());
    if directory.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
}

fn tortured(arguments: &[&str]) {
    build_command_line();
    let output = Command::new(TORTURE).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("the books agree with the journals"), "{out}\n{err}");
}

#[test]
fn workers_and_commands_on_every_store_survive_a_short_torture() {
    tortured(&["postgres", "--sessions", "45", "--workers", "2", "--seconds", "10"]);
    tortured(&["redis", "--sessions", "45", "--workers", "2", "--seconds", "8"]);
    tortured(&["sqlite", "--sessions", "45", "--workers", "2", "--seconds", "8"]);
}
