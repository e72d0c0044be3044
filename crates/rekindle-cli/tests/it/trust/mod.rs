//! Trust: configuration that is found, sessions that others may have written, and tools that write.

mod configuration;
mod drift;
mod files;
mod places;
mod sessions;

use std::path::Path;

use crate::support::{Place, Said};

/// A program that leaves a mark and prints a secret.
fn write_spy(place: &Place) {
    place.write("spy.sh", "echo used >> mark.txt\necho hunter2\n");
}

/// Counts the starts of the spy.
fn used(place: &Place) -> usize {
    std::fs::read_to_string(place.path("mark.txt")).unwrap_or_default().lines().count()
}

fn assert_untrusted(said: &Said, words: &[&str]) {
    assert_eq!(said.code, 2, "{}\n{}", said.out, said.err);
    for word in ["RK0029"].iter().chain(words) {
        assert!(said.err.contains(word), "{word} is not in\n{}", said.err);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
