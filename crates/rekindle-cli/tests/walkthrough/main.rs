//! A new user's walk through the documentation: every block of the README, of `docs/` and of the page
//! on the examples is carried out in the order in which it stands, and what is shown must be what is seen.
//!
//! | block | what is done with it |
//! | --- | --- |
//! | `console` | each `$ ` line is run, all of a block in one shell; what follows must be its output. `[..]` stands for anything in a line, `...` for any lines, `[exit 4]` at the end for the exit status |
//! | `sh` | each line is run and must succeed |
//! | `sh ci` | each line must be run by `scripts/test`, or be it |
//! | `sh install` | each line must be `cargo install --path` with the folder of a crate that has a program; it is not run, the tests have the program already |
//! | `yaml NAME`, `toml NAME`, `json NAME` | is written to that file, for the blocks behind it |
//! | `rust` | is run as a documentation test of the crate `rekindle` |
//! | `rust,ignore` | is not run: it needs a server |
//! | `text` | is not code, or needs a server |
//!
//! Each document has a folder of its own, with the examples in it and the binary on the path. Links
//! and pictures must lead to files that exist.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod blocks;
mod examples;
mod expect;
mod links;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use blocks::Block;

/// Documents whose files are fragments; the crate `rekindle-definitions` checks them.
const FRAGMENTS: [&str; 1] = ["docs/files.md"];

/// Documents whose commands are read by the program they are about.
const CHECKED_ELSEWHERE: [&str; 1] = ["docs/performance.md"];

/// What stands around the status of a line in the output of the shell.
const MARK: char = '\u{1e}';

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut found = vec![root.join("README.md"), root.join("examples/README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("md") => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_block_of_the_documentation_is_true() {
    let mut faults = Vec::new();
    for path in documents() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let walk = Walk::new(&name);
        faults.extend(links::faults(&text, path.parent().unwrap()).iter().map(|fault| format!("{name}: {fault}")));
        for block in blocks::of(&text) {
            if let Err(fault) = walk.carry_out(&block) {
                faults.push(format!("{name}:{}: {fault}", block.line));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// One document, on its way.
struct Walk {
    document: String,
    folder: tempfile::TempDir,
}

impl Walk {
    fn new(document: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join(".bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rekindle"), bin.join("rekindle")).unwrap();
        let copied = Command::new("cp").arg("-r").arg(root().join("examples")).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        Self { document: document.to_owned(), folder }
    }

    fn carry_out(&self, block: &Block) -> Result<(), String> {
        let fragment = FRAGMENTS.contains(&self.document.as_str());
        match (block.language.as_str(), block.argument.as_deref()) {
            ("console", None) => self.console(&block.text),
            ("sh", Some("ci")) => ci(&block.text),
            ("sh", Some("install")) => install(&block.text),
            ("sh", None) if CHECKED_ELSEWHERE.contains(&self.document.as_str()) => Ok(()),
            ("sh", None) => self.shell(&block.text),
            ("yaml" | "toml" | "json", Some(name)) => self.file(name, &block.text),
            ("yaml" | "toml" | "json", None) if fragment => Ok(()),
            // The documentation tests of the crate `rekindle` read these documents.
            ("rust" | "rust,no_run", None) if self.document == "README.md" || self.document == "docs/importing.md" => {
                Ok(())
            }
            ("text" | "rust,ignore", None) => Ok(()),
            (language, argument) => Err(format!("nobody knows what to do with a block of `{language}` {argument:?}")),
        }
    }

    fn file(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).map_err(|error| error.to_string())?;
        std::fs::write(path, text).map_err(|error| error.to_string())
    }

    fn shell(&self, text: &str) -> Result<(), String> {
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
            let seen = self.run(&[line.to_owned()])?;
            if let Some((output, code)) = seen.into_iter().find(|(_, code)| *code != 0) {
                return Err(format!("`{line}` ended with {code}:\n{output}"));
            }
        }
        Ok(())
    }

    fn console(&self, text: &str) -> Result<(), String> {
        let (lines, expected): (Vec<String>, Vec<String>) = blocks::commands(text).into_iter().unzip();
        for ((line, expected), (output, code)) in lines.iter().zip(expected).zip(self.run(&lines)?) {
            let (expected, wanted) = expect::exit_of(&expected);
            if code != wanted {
                return Err(format!("`{line}` ended with {code}, not {wanted}:\n{output}"));
            }
            if !expect::fits(&expected, &output) {
                return Err(format!("`{line}` says\n{output}\ninstead of\n{expected}"));
            }
        }
        Ok(())
    }

    /// Runs lines in one shell; for each its output and errors as a person sees them, and its status.
    fn run(&self, lines: &[String]) -> Result<Vec<(String, i32)>, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        // What a line leaves behind in the background goes on, and may say something later.
        let script: String = lines.iter().map(|line| format!("{line}\nprintf '{MARK}%s{MARK}' \"$?\"\n")).collect();
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(self.folder.path()).env_clear();
        command.env("PATH", format!("{}:{path}", self.folder.path().join(".bin").display()));
        command.env("HOME", self.folder.path()).env("USER", "maria").stdin(Stdio::null());
        let (mut reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        // The command holds the other ends of the pipe; the output is over when they are closed.
        drop(command);
        let mut output = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut output).unwrap();
        child.wait().unwrap();
        let output = String::from_utf8_lossy(&output).into_owned();
        let parts: Vec<&str> = output.split(MARK).collect();
        let seen = parts.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap_or(-1)));
        let seen: Vec<_> = seen.collect();
        if seen.len() == lines.len() { Ok(seen) } else { Err(format!("the shell ended early:\n{output}")) }
    }
}

/// Whether `scripts/test` runs it, or is it.
fn ci(text: &str) -> Result<(), String> {
    let script = std::fs::read_to_string(root().join("scripts/test")).unwrap();
    for line in text.lines() {
        let command = line.split('#').next().unwrap_or_default().trim();
        let known = command.is_empty() || command == "scripts/test" || script.contains(command);
        if !known {
            return Err(format!("scripts/test does not run `{command}`"));
        }
    }
    Ok(())
}

/// Whether a crate is there and has a program to install.
fn install(text: &str) -> Result<(), String> {
    for line in text.lines() {
        let command = line.split('#').next().unwrap_or_default().trim();
        let Some(folder) = command.strip_prefix("cargo install --path ") else {
            return Err(format!("`{command}` installs no crate of this project"));
        };
        if !root().join(folder).join("src/main.rs").is_file() {
            return Err(format!("there is no program in {folder}"));
        }
    }
    Ok(())
}
