//! Files that others may have written.

use std::os::unix::fs::{chown, symlink};

use super::{assert_untrusted, is_root, set_mode, used, write_spy};
use crate::support::Place;

/// A user who is not the one of the tests.
const STRANGER: u32 = 4242;

/// No powers: who wrote it is all there is to ask.
const PLAIN: &str = "namespace = 'team'\n";

#[test]
fn what_others_may_write_is_refused_and_says_so() {
    let check = |mode: u32, folder: u32, owner: Option<u32>, folder_owner: Option<u32>, expected: Option<&[&str]>| {
        let place = Place::new();
        let file = place.write("project/rekindle.toml", PLAIN);
        place.write("project/sub/x", "");
        let project = place.path("project");
        chown(&file, owner, None).unwrap();
        chown(&project, folder_owner, None).unwrap();
        set_mode(&file, mode);
        set_mode(&project, folder);
        for below in ["", "sub"] {
            let mut command = place.command(&["config"]);
            command.current_dir(project.join(below));
            let said = crate::support::said(command);
            match expected {
                None => assert_eq!(said.code, 0, "{mode:o} {folder:o} {owner:?} {folder_owner:?}: {}", said.err),
                Some(words) => assert_untrusted(&said, words),
            }
            // Whoever names it means it.
            let mut command = place.command(&["config", "--config"]);
            command.arg(&file).current_dir(project.join(below));
            assert_eq!(crate::support::said(command).code, 0);
        }
    };
    check(0o644, 0o755, None, None, None);
    check(0o600, 0o700, None, None, None);
    check(0o644, 0o1777, None, None, None);
    check(0o666, 0o755, None, None, Some(&["everybody may write to it", "chmod go-w", "--config", "rekindle.toml"]));
    check(0o644, 0o777, None, None, Some(&["everybody may write to its directory", "chmod go-w", "project"]));
    if !is_root() {
        eprintln!("not root: files of other users are not tried");
        return;
    }
    let owner = "belongs to user 4242";
    check(0o644, 0o755, Some(STRANGER), None, Some(&["it belongs to user 4242", "rekindle trust"]));
    check(0o644, 0o755, None, Some(STRANGER), Some(&["its directory", owner]));
    check(0o644, 0o1777, Some(STRANGER), None, Some(&[owner]));
}

#[test]
fn links_are_followed_to_the_end() {
    let place = Place::new();
    let file = place.write("elsewhere/shared.toml", PLAIN);
    place.write("open/x", "");
    symlink("../elsewhere/shared.toml", place.path("open/middle.toml")).unwrap();
    symlink("open/middle.toml", place.path("rekindle.toml")).unwrap();
    place.ok(&["config"]);
    set_mode(&place.path("open"), 0o777);
    assert_untrusted(&place.run(&["config"]), &["everybody may write to its directory", "/open"]);
    set_mode(&place.path("open"), 0o755);
    set_mode(&place.path("elsewhere"), 0o777);
    assert_untrusted(&place.run(&["config"]), &["everybody may write to its directory", "/elsewhere"]);
    set_mode(&place.path("elsewhere"), 0o755);
    set_mode(&file, 0o622);
    assert_untrusted(&place.run(&["config"]), &["everybody may write to it"]);
    set_mode(&file, 0o600);
    if is_root() {
        // In a folder where everybody may make links, one of another user leads to a file of ours.
        set_mode(&place.path("open"), 0o1777);
        std::os::unix::fs::lchown(place.path("open/middle.toml"), Some(STRANGER), None).unwrap();
        assert_untrusted(&place.run(&["config"]), &["the link", "belongs to user 4242"]);
    }
}

#[test]
fn a_strangers_file_can_be_trusted_as_it_is() {
    if !is_root() {
        eprintln!("not root: files of other users are not tried");
        return;
    }
    let place = Place::new();
    write_spy(&place);
    let file = place.write("rekindle.toml", PLAIN);
    chown(&file, Some(STRANGER), None).unwrap();
    assert_untrusted(&place.run(&["sessions"]), &["it belongs to user 4242"]);
    place.ok(&["trust", "--yes"]);
    place.ok(&["config"]);
    std::fs::write(&file, "store = 'postgres://127.0.0.1:1/x'\nstore_password = '@command:sh spy.sh'\n").unwrap();
    for command in [&["sessions"][..], &["config"], &["run", "agent.yaml", "hi"], &["copy", "--to", "memory:"]] {
        assert_untrusted(&place.run(command), &["it belongs to user 4242"]);
    }
    assert_eq!(used(&place), 0);
}

#[test]
fn the_users_own_configuration_is_looked_at_too() {
    let place = Place::new();
    let file = place.write(".config/rekindle/rekindle.toml", "namespace = 'mine'\n[tools]\nenvironment = ['X']\n");
    // It is the user's own: what it may do is no question.
    assert!(place.ok(&["config"]).contains("mine"));
    set_mode(&file, 0o666);
    assert_untrusted(&place.run(&["config"]), &["everybody may write to it", ".config/rekindle/rekindle.toml"]);
}

#[test]
fn commands_that_need_no_configuration_go_on_without_it() {
    let place = Place::new();
    let file = place.write("rekindle.toml", PLAIN);
    set_mode(&file, 0o666);
    for command in [&["version"][..], &["help"], &["explain", "RK0029"], &["schema", "config"], &["trust", "--list"]] {
        place.ok(command);
    }
    let said = place.run(&["doctor"]);
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(said.out.contains("✗ trust") && said.out.contains("everybody may write to it"), "{}", said.out);
    assert!(said.out.contains("chmod go-w"), "{}", said.out);
    assert!(!said.out.contains("rekindle.db"), "a store is looked at that may not be the one: {}", said.out);
}
