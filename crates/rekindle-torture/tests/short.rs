//! The torture, short, over each store that workers can share. The long one is a command; see
//! `docs/scale.md`.

// A test that meets an error it does not expect ends there.
#![allow(clippy::unwrap_used)]

use std::process::Command;

fn tortured(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_rekindle-torture")).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("the books agree with the journals"), "{out}\n{err}");
}

#[test]
fn workers_on_every_store_survive_a_short_torture() {
    tortured(&["postgres", "--sessions", "60", "--workers", "3", "--seconds", "15"]);
    tortured(&["redis", "--sessions", "40", "--workers", "3", "--seconds", "8"]);
    tortured(&["sqlite", "--sessions", "40", "--workers", "3", "--seconds", "8"]);
}
