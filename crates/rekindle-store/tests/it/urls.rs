//! One URL for every store, and clear words for what is not one.

use rekindle_core::{ErrorKind, Store as _};
use rekindle_store::{StoreOptions, open};

#[test]
fn every_scheme_opens_its_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    for (url, name) in [
        ("memory:".to_owned(), "memory"),
        (format!("file:{path}/files"), "files"),
        (format!("file://{path}/files"), "files"),
        (format!("sqlite:{path}/a.db"), "sqlite"),
        (format!("sqlite://{path}/a.db"), "sqlite"),
    ] {
        let capabilities = open(&url, StoreOptions::new()).unwrap().capabilities();
        assert_eq!(capabilities.name, name, "{url}");
        assert_eq!(capabilities.durable, name != "memory");
        assert_eq!(capabilities.multi_process, name != "memory");
    }
    // Nothing is decoded and nothing is a query: the name is the name.
    let odd = format!("sqlite:{path}/a%2e?mode=memory.db");
    open(&odd, StoreOptions::new()).unwrap();
    assert!(directory.path().join("a%2e?mode=memory.db").exists());
}

#[test]
fn what_is_not_a_store_says_what_to_write() {
    for (url, kind, hint) in [
        ("./rekindle.db", ErrorKind::Invalid, "sqlite:./rekindle.db"),
        ("sqlite:", ErrorKind::Invalid, "sqlite:./rekindle.db"),
        ("file://", ErrorKind::Invalid, "file:./directory"),
        ("memory:x", ErrorKind::Invalid, "argument"),
        ("mysql://x", ErrorKind::Invalid, "memory:, file:, sqlite:"),
        ("sqlite:a\0b", ErrorKind::Invalid, "sqlite:./rekindle.db"),
        #[cfg(feature = "postgres")]
        ("postgres:", ErrorKind::Invalid, "postgres://user@host"),
    ] {
        let error = open(url, StoreOptions::new()).unwrap_err();
        assert_eq!(*error.kind(), kind, "{url}: {error:?}");
        assert!(error.next_step().contains(hint), "{url}: {}", error.next_step());
    }
}

#[test]
fn a_missing_store_is_not_created_when_told_so() {
    let directory = tempfile::tempdir().unwrap();
    for scheme in ["file", "sqlite"] {
        let url = format!("{scheme}:{}/nothing", directory.path().display());
        let error = open(&url, StoreOptions::new().with_create(false)).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{url}: {error:?}");
        assert!(!directory.path().join("nothing").exists());
    }
}

#[test]
fn a_path_that_is_something_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "not a store").unwrap();
    for url in [
        format!("file:{}", file.display()),
        format!("file:{}/below", file.display()),
        format!("sqlite:{}", directory.path().display()),
        format!("sqlite:{}", file.display()),
        format!("sqlite:{}/below", file.display()),
    ] {
        let error = open(&url, StoreOptions::new()).unwrap_err();
        assert!(!error.next_step().is_empty() && error.operation().is_some(), "{url}: {error:?}");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "not a store");
}
