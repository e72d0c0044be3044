//! File tools never write what the run itself is made of.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rekindle_tools::{EditFile, Protected, ReadFile, WriteFile};
use serde_json::json;
use tempfile::TempDir;

use crate::kit::call;

const REFUSED: &str = "belongs to this agent itself";

async fn write(root: &Path, protected: &Protected, path: &str) -> Result<(), String> {
    let tool = WriteFile::builder(root).protect(protected.clone()).build().unwrap();
    call(tool, json!({"path": path, "content": "changed"})).await.map(drop)
}

async fn edit(root: &Path, protected: &Protected, path: &str) -> Result<(), String> {
    let tool = EditFile::builder(root).protect(protected.clone()).build().unwrap();
    call(tool, json!({"path": path, "old": "before", "new": "changed"})).await.map(drop)
}

#[tokio::test]
async fn definitions_configuration_and_stores_are_not_written() {
    let folder = TempDir::new().unwrap();
    let at = |path: &str| folder.path().join(path);
    for directory in ["work", "sessions/a", "shared"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for file in ["agent.yaml", "work/notes.txt", "sessions/a/log", "shared/prompt.md", "rekindle.db"] {
        fs::write(at(file), "before").unwrap();
    }
    symlink("shared/prompt.md", at("prompt.md")).unwrap();
    symlink("work", at("alias")).unwrap();
    fs::hard_link(at("agent.yaml"), at("work/other-name.yaml")).unwrap();
    let paths = ["agent.yaml", "prompt.md", "sessions", "rekindle.toml", "alias/new.toml", "rekindle.db-marks"];
    let protected = Protected::new(paths.map(at));
    let refused = [
        "agent.yaml",
        "./agent.yaml",
        "work/other-name.yaml",
        "shared/prompt.md",
        "sessions/a/log",
        "sessions/new/log",
        "sessions",
        "rekindle.toml",
        "work/new.toml",
        "rekindle.db-marks/0",
    ];
    for path in refused {
        let error = write(folder.path(), &protected, path).await.unwrap_err();
        assert!(error.contains(REFUSED), "{path}: {error}");
        if at(path).is_file() {
            let error = edit(folder.path(), &protected, path).await.unwrap_err();
            assert!(error.contains(REFUSED), "{path}: {error}");
            assert_eq!(fs::read_to_string(at(path)).unwrap(), "before", "{path}");
        }
    }
    // A root inside of what is protected, and one that leads there.
    symlink("sessions", at("sessions-link")).unwrap();
    for root in ["sessions", "sessions/a", "sessions-link", "sessions-link/a"] {
        let error = write(&at(root), &protected, "log").await.unwrap_err();
        assert!(error.contains(REFUSED), "{root}: {error}");
    }
    assert_eq!(fs::read_to_string(at("sessions/a/log")).unwrap(), "before");
    assert!(!at("sessions/new").exists() && !at("rekindle.toml").exists() && !at("rekindle.db-marks").exists());

    // Everything else is written, and what is protected can be read.
    for path in ["work/notes.txt", "work/rekindle.toml", "agent.yaml.bak", "new/agent.yaml"] {
        write(folder.path(), &protected, path).await.unwrap();
        assert_eq!(fs::read_to_string(at(path)).unwrap(), "changed", "{path}");
    }
    let read = ReadFile::builder(folder.path()).protect(protected).build().unwrap();
    assert_eq!(call(read, json!({"path": "agent.yaml"})).await.unwrap()["text"], "before");
}
