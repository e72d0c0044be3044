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
