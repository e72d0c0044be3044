//! The examples of the project, each run offline to its end, with and without JSON.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A folder with the examples in it.
struct Examples(tempfile::TempDir);

impl Examples {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let copied = Command::new("cp").arg("-r").arg(super::root().join("examples")).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        Self(folder)
    }

    /// What a command writes to standard output as JSON; it must end with `code`.
    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rekindle"));
        command.arg("--json").args(arguments).current_dir(self.0.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.0.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
    }

    fn exists(&self, path: &str) -> bool {
        Path::new(self.0.path()).join("examples").join(path).is_file()
    }
}

#[test]
fn each_example_runs_offline_to_its_end() {
    let examples = Examples::new();

    let research = examples.json(&["run", "examples/research/agent.yaml", "How do tides work?"], 0);
    assert_eq!(research["outcome"], "succeeded", "{research}");
    assert!(examples.exists("research/work/report.md"));

    let refactor = examples.json(&["run", "examples/refactor/plan.yaml"], 0);
    assert_eq!(refactor["outcome"], "succeeded", "{refactor}");

    let team = examples.json(&["run", "examples/team/agent.yaml", "A page about tides.", "--session", "page"], 0);
    assert_eq!(team["outcome"], "succeeded", "{team}");
    let children = examples.json(&["sessions", "--parent", "page"], 0);
    assert_eq!(children["sessions"].as_array().map(Vec::len), Some(2), "{children}");
}

#[test]
fn the_payment_is_made_once_it_is_approved() {
    let examples = Examples::new();
    let run = ["run", "examples/approval/agent.yaml", "Pay the open invoices.", "--session", "invoices"];
    assert_eq!(examples.json(&run, 4)["outcome"], "waiting");
    assert!(!examples.exists("approval/payments.csv"));
    examples.json(&["answer", "invoices", "--approve"], 0);
    assert_eq!(examples.json(&["resume", "invoices"], 0)["outcome"], "succeeded");
    assert!(examples.exists("approval/payments.csv"));
}

#[test]
fn the_draft_goes_back_once_and_is_published() {
    let examples = Examples::new();
    let run = ["run", "examples/review/graph.yaml", "--input", "topic=tides", "--session", "draft"];
    assert_eq!(examples.json(&run, 4)["outcome"], "waiting");
    examples.json(&["answer", "draft", r#"{"verdict": "again", "remarks": "shorter"}"#], 0);
    assert_eq!(examples.json(&["resume", "draft"], 4)["outcome"], "waiting");
    examples.json(&["answer", "draft", r#"{"verdict": "good"}"#], 0);
    assert_eq!(examples.json(&["resume", "draft"], 0)["outcome"], "succeeded");
    assert!(examples.exists("review/published.txt"));
}
