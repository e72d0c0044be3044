//! Files under a root, and that nothing leads out of it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::Tool;
use rekindle_tools::{EditFile, FileAccess, ListFiles, ReadFile, WriteFile, file_tools};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Pipe, call, call_shared};

/// A root, and a directory beside it that nobody may see.
struct World {
    _directory: TempDir,
    root: std::path::PathBuf,
    outside: std::path::PathBuf,
}

impl World {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret.txt"), "secret").unwrap();
        fs::write(root.join("sub/a.txt"), "one\ntwo\nthree\n").unwrap();
        symlink(outside.join("secret.txt"), root.join("file-link")).unwrap();
        symlink(&outside, root.join("directory-link")).unwrap();
        symlink("sub", root.join("inner-link")).unwrap();
        Self { _directory: directory, root, outside }
    }

    async fn read(&self, arguments: Value) -> Result<Value, String> {
        call(ReadFile::builder(&self.root).build().unwrap(), arguments).await
    }

    async fn write(&self, path: &str, content: &str) -> Result<Value, String> {
        call(WriteFile::builder(&self.root).build().unwrap(), json!({"path": path, "content": content})).await
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<Value, String> {
        let edit = EditFile::builder(&self.root).build().unwrap();
        call(edit, json!({"path": path, "old": old, "new": new})).await
    }

    fn untouched(&self) {
        assert_eq!(names(&self.outside), ["secret.txt"]);
        assert_eq!(fs::read_to_string(self.outside.join("secret.txt")).unwrap(), "secret");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn no_path_leads_out_of_the_root() {
    let world = World::new();
    let absolute = world.outside.join("secret.txt");
    let paths = [
        ("../outside/secret.txt", "has `..` in it"),
        ("sub/../../outside/secret.txt", "has `..` in it"),
        (absolute.to_str().unwrap(), "is absolute"),
        ("file-link", "is a symbolic link"),
        ("directory-link/secret.txt", "is a symbolic link"),
        ("inner-link/a.txt", "is a symbolic link"),
        ("sub\0/a.txt", "NUL"),
        ("", "the path is empty"),
        (".", "the path is empty"),
        ("sub/a.txt/b", "is no directory"),
    ];
    for (path, expected) in paths {
        for outcome in [
            world.read(json!({"path": path})).await,
            world.write(path, "evil").await,
            world.edit(path, "secret", "evil").await,
        ] {
            let failed = outcome.unwrap_err();
            assert!(failed.contains(expected), "{path}: {failed}");
        }
    }
    for path in ["..", "/", "directory-link", "sub/../..", "inner-link"] {
        assert!(call(ListFiles::builder(&world.root).build().unwrap(), json!({"path": path})).await.is_err(), "{path}");
    }
    world.untouched();
}

#[tokio::test]
async fn lines_are_read() {
    let world = World::new();
    let all = json!({"path": "sub/a.txt", "text": "one\ntwo\nthree\n", "first_line": 1, "lines": 3, "total_lines": 3, "bytes": 14});
    assert_eq!(world.read(json!({"path": "./sub//a.txt"})).await, Ok(all));
    let some =
        json!({"path": "sub/a.txt", "text": "two\n", "first_line": 2, "lines": 1, "total_lines": 3, "bytes": 14});
    assert_eq!(world.read(json!({"path": "sub/a.txt", "offset": 2, "limit": 1})).await, Ok(some));
    let none = world.read(json!({"path": "sub/a.txt", "offset": 9})).await.unwrap();
    assert_eq!((&none["text"], &none["lines"]), (&json!(""), &json!(0)));
    assert_eq!(world.read(json!({"path": "sub/b.txt"})).await, Err("there is no `sub/b.txt`".into()));
    assert_eq!(world.read(json!({"path": "sub"})).await, Err("`sub` is a directory".into()));
}

#[tokio::test]
async fn large_files_and_files_that_are_no_text() {
    let world = World::new();
    fs::write(world.root.join("large"), "äöü\n".repeat(200_000)).unwrap();
    let read = ReadFile::builder(&world.root).max_bytes(9).build().unwrap();
    let value = call(read, json!({"path": "large", "offset": 2})).await.unwrap();
    assert_eq!(value["text"], json!("äöü\nä"), "cut between two characters");
    assert_eq!((&value["truncated"], &value["total_lines"]), (&json!(true), &json!(200_000)));

    fs::write(world.root.join("binary"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
    fs::write(world.root.join("latin"), b"caf\xe9").unwrap();
    for (name, bytes) in [("binary", 10), ("latin", 4)] {
        let expected = json!({"path": name, "bytes": bytes, "binary": true});
        assert_eq!(world.read(json!({"path": name})).await, Ok(expected));
    }
    // Nobody ever writes to it: reading would wait for good.
    Pipe::new(&world.root, "pipe");
    assert_eq!(world.read(json!({"path": "pipe"})).await, Err("`pipe` is no regular file".into()));
    assert_eq!(world.write("pipe", "x").await, Err("`pipe` is no regular file".into()));
}

#[tokio::test]
async fn a_file_is_written_whole() {
    let world = World::new();
    let written = json!({"path": "new/deep/b.txt", "bytes": 4, "lines": 2});
    assert_eq!(world.write("new/deep/b.txt", "x\ny\n").await, Ok(written.clone()));
    assert_eq!(world.write("new/deep/b.txt", "x\ny\n").await, Ok(written), "again is the same");
    assert_eq!(names(&world.root.join("new/deep")), ["b.txt"], "nothing is left behind");
    assert_eq!(fs::read_to_string(world.root.join("new/deep/b.txt")).unwrap(), "x\ny\n");

    let script = world.root.join("sub/run.sh");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    // A reader that has the old file open goes on reading the old one.
    let mut old = fs::File::open(&script).unwrap();
    world.write("sub/run.sh", "new").await.unwrap();
    assert_eq!(std::io::read_to_string(&mut old).unwrap(), "old");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o750);

    assert_eq!(world.write("sub", "x").await, Err("`sub` is a directory".into()));
    let small = WriteFile::builder(&world.root).max_bytes(3).build().unwrap();
    let failed = call(small, json!({"path": "c", "content": "four"})).await.unwrap_err();
    assert_eq!(failed, "the file would have 4 bytes, more than the 3 allowed");
}

#[tokio::test]
async fn a_text_is_replaced_if_it_occurs_once() {
    let world = World::new();
    let edited = json!({"path": "sub/a.txt", "bytes": 11, "lines": 3});
    assert_eq!(world.edit("sub/a.txt", "two\nthree", "2\n${3}").await, Ok(edited));
    assert_eq!(fs::read_to_string(world.root.join("sub/a.txt")).unwrap(), "one\n2\n${3}\n");
    assert_eq!(world.edit("sub/a.txt", "two", "x").await, Err("the old text does not occur in `sub/a.txt`".into()));
    let many = world.edit("sub/a.txt", "\n", "x").await.unwrap_err();
    assert_eq!(many, "the old text occurs 3 times in `sub/a.txt`; give more of it");
    fs::write(world.root.join("latin"), b"caf\xe9").unwrap();
    assert_eq!(world.edit("latin", "caf", "x").await, Err("`latin` is no text".into()));
}

#[tokio::test]
async fn directories_are_listed() {
    let world = World::new();
    fs::write(world.root.join("sub/.0-1.rekindle-tmp"), "left behind").unwrap();
    let list = || ListFiles::builder(&world.root).build().unwrap();
    let links = [
        json!({"path": "directory-link", "kind": "link"}),
        json!({"path": "file-link", "kind": "link"}),
        json!({"path": "inner-link", "kind": "link"}),
    ];
    let sub = json!({"path": "sub", "kind": "directory"});
    let flat: Vec<_> = links.iter().chain([&sub]).cloned().collect();
    assert_eq!(call(list(), json!({})).await, Ok(json!({"path": ".", "entries": flat})));
    let file = json!({"path": "sub/a.txt", "kind": "file", "bytes": 14});
    let deep: Vec<_> = flat.iter().chain([&file]).cloned().collect();
    assert_eq!(call(list(), json!({"recursive": true})).await, Ok(json!({"path": ".", "entries": deep})));
    let small = ListFiles::builder(&world.root).max_bytes(20).build().unwrap();
    let cut = call(small, json!({})).await.unwrap();
    assert_eq!((cut["entries"].as_array().unwrap().len(), &cut["truncated"]), (1, &json!(true)));
}

#[tokio::test]
async fn access_decides_which_tools_there_are() {
    let world = World::new();
    let names = |access| -> Vec<_> {
        let tools = file_tools(&world.root, access).unwrap();
        tools.iter().map(|tool| (tool.spec().name.clone(), tool.options().writes, tool.options().policy())).collect()
    };
    let read = ["read_file", "list_files"].map(|name| (name.to_owned(), false, InDoubtPolicy::ReplaySafe));
    assert_eq!(names(FileAccess::ReadOnly), read);
    let write = [
        ("write_file".to_owned(), true, InDoubtPolicy::Idempotent),
        ("edit_file".to_owned(), true, InDoubtPolicy::Check),
    ];
    assert_eq!(names(FileAccess::ReadWrite), [read, write].concat());
    let gone = file_tools(world.root.join("gone"), FileAccess::ReadOnly).unwrap_err();
    assert!(gone.message().contains("gone` is no directory"), "{gone}");
}

#[tokio::test]
async fn a_link_that_appears_later_is_not_followed() {
    let world = World::new();
    let tools: Vec<Arc<dyn Tool>> = file_tools(&world.root, FileAccess::ReadWrite).unwrap();
    fs::remove_dir_all(world.root.join("sub")).unwrap();
    symlink(&world.outside, world.root.join("sub")).unwrap();
    for (tool, arguments) in tools.into_iter().zip([
        json!({"path": "sub/secret.txt"}),
        json!({"path": "sub"}),
        json!({"path": "sub/new.txt", "content": "evil"}),
        json!({"path": "sub/secret.txt", "old": "secret", "new": "evil"}),
    ]) {
        let failed = call_shared(tool, arguments).await.unwrap_err();
        assert_eq!(failed, "`sub` is a symbolic link; links are not followed");
    }
    world.untouched();
}
