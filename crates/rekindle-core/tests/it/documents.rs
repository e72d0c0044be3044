//! Documents that are made from the code stay what the code says.

use std::fmt::Write as _;
use std::path::PathBuf;

use rekindle_core::CATALOG;

#[test]
fn the_error_catalogue_is_what_the_code_says() {
    let mut page = String::from(
        "# Errors\n\nEvery error carries a stable code, says what was being done, on which session and position, whether\n\
         trying again can help, and what to do next. This page is made from `rekindle-core`; run the tests with\n\
         `UPDATE_GOLDEN=1` after a change.\n\n| code | name | meaning | what to do |\n| --- | --- | --- | --- |\n",
    );
    for entry in CATALOG {
        writeln!(page, "| {} | `{}` | {} | {} |", entry.code, entry.name, entry.meaning, entry.remedy).unwrap();
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), page);
}

/// A promise whose proof was renamed or removed is a promise nobody keeps.
#[test]
fn every_test_that_the_guarantees_name_exists() {
    let root = root();
    let mut sources = Vec::new();
    rust_files(&root.join("crates"), &mut sources);
    rust_files(&root.join("dev"), &mut sources);
    for (document, least) in [("docs/guarantees.md", 30), ("docs/security.md", 20)] {
        let page = std::fs::read_to_string(root.join(document)).unwrap();
        let named: Vec<(&str, &str)> = page.split('`').filter_map(|word| word.split_once("::")).collect();
        let named: Vec<_> = named.into_iter().filter(|(file, _)| file.ends_with(".rs")).collect();
        assert!(named.len() > least, "{document}: {}", named.len());
        for (file, function) in named {
            let declared = [format!("fn {function}("), format!("fn {function}<")];
            let found = sources.iter().filter(|path| path.ends_with(file)).any(|path| {
                let text = std::fs::read_to_string(path).unwrap();
                declared.iter().any(|declared| text.contains(declared))
            });
            assert!(found, "{document} names `{file}::{function}`, which is not there");
        }
    }
}

/// A threat that nothing tries is one that may have come true.
#[test]
fn every_threat_names_its_test() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let (_, threats) = page.split_once("\n## Threats\n").unwrap();
    let rows = threats.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| threat |"));
    let rows: Vec<_> = rows.filter(|line| !line.starts_with("| ---")).collect();
    assert!(rows.len() > 15, "{}", rows.len());
    for row in rows {
        assert!(row.contains(".rs::"), "docs/security.md: {row}");
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(directory: &std::path::Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => rust_files(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}
