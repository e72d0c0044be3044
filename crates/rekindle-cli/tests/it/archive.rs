//! Archives on the command line.

use crate::moving::frames;
use crate::support::{Place, without_sizes};

const PLACE: &str = "objects:./archive";

#[test]
fn a_session_goes_to_the_archive_and_comes_back() {
    let place = Place::new();
    place.turns("trip", 2);
    place.turns("other", 1);
    let exported = place.ok(&["export", "trip"]);
    place.snapshot("archive_dry", &place.ok(&["archive", "trip", "--to", PLACE, "--dry-run"]));
    assert!(!place.path("archive").exists());
    place.snapshot("archive", &without_sizes(&place.ok(&["archive", "trip", "--to", PLACE])));
    assert_eq!(place.run(&["sessions", "show", "trip"]).code, 3);
    let listed = place.run(&["archive", "list", "--from", PLACE]);
    place.snapshot("archive_list", &without_sizes(&format!("{}{}", listed.out, listed.err)));
    let entries = place.json(&["archive", "list", "--from", PLACE]);
    assert_eq!(entries["archives"][0]["session"]["id"], "trip");

    let missing = place.run(&["archive", "restore", "trap", "--from", PLACE]);
    assert_eq!(missing.code, 3);
    place.snapshot("archive_missing", &missing.err);
    place.snapshot("archive_restore", &place.ok(&["archive", "restore", "trip", "--from", PLACE]));
    assert!(frames(&place.ok(&["export", "trip"])) == frames(&exported));
    let renamed = place.json(&["archive", "restore", "trip", "--from", PLACE, "--as", "again", "--remove"]);
    assert_eq!((&renamed["session"]["id"], &renamed["removed"]), (&"again".into(), &true.into()));
    assert_eq!(place.run(&["verify", "--all"]).code, 0);
    assert!(place.json(&["archive", "list", "--from", PLACE])["archives"].as_array().unwrap().is_empty());
}

#[test]
fn sessions_that_are_inactive_are_archived_and_the_place_can_be_configured() {
    let place = Place::new();
    place.write("rekindle.toml", "archive = \"objects:./cold\"\n");
    place.turns("one", 1);
    place.turns("two", 1);
    assert_eq!(place.json(&["archive", "--inactive", "1h"])["archived"], 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let archived = place.json(&["archive", "--inactive", "10ms", "--status", "failed"]);
    assert_eq!(archived["archived"], 0);
    let kept = place.json(&["archive", "--inactive", "10ms", "--keep"]);
    assert_eq!((kept["archived"].as_u64(), kept["sessions"][0]["removed"].as_bool()), (Some(2), Some(false)));
    let archived = place.json(&["archive", "--inactive", "10ms"]);
    assert_eq!((archived["archived"].as_u64(), archived["sessions"][0]["there"].as_bool()), (Some(2), Some(true)));
    assert!(place.json(&["sessions"])["sessions"].as_array().unwrap().is_empty());
    assert_eq!(place.json(&["archive", "list"])["archives"].as_array().unwrap().len(), 2);
    place.ok(&["archive", "restore", "two"]);
    assert_eq!(place.json(&["verify", "--all"])["verified"], 1);
}

#[test]
fn what_is_wrong_with_archives_is_said() {
    let place = Place::new();
    place.turns("trip", 1);
    assert_eq!(place.fails(&["archive", "trip"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["archive", "--to", PLACE], 2)["error"]["code"], "RK0001");
    assert_eq!(place.fails(&["archive", "trip", "--to", "sqlite:./x.db"], 2)["error"]["code"], "RK0001");
    assert_eq!(place.run(&["archive", "list", "--from", "objects:./none"]).code, 3);
    place.ok(&["archive", "trip", "--to", PLACE]);
    place.turns("trip", 1);
    let taken = place.fails(&["archive", "restore", "trip", "--from", PLACE], 6);
    assert!(taken["error"]["hint"].as_str().unwrap().contains("--as"), "{taken}");
    place.ok(&["sessions", "rm", "trip", "--yes"]);
    let folder = place.path("archive/archives/default/trip");
    let object = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let object = object.into_iter().find(|path| path.to_string_lossy().ends_with(".zst")).unwrap();
    std::fs::write(object, b"nonsense").unwrap();
    let damaged = place.fails(&["archive", "restore", "trip", "--from", PLACE], 7);
    assert_eq!(damaged["error"]["code"], "RK0011");
    assert_eq!(place.run(&["sessions", "show", "trip"]).code, 3);
}
