//! Bytes of stores on disk, changed from outside.

use std::path::{Path, PathBuf};

use crate::support::{Kind, World};

/// Damages the frame of a branch of the session `s` that ends with record `last`; its header stays.
pub fn damage(world: &World, kind: Kind, branch: &str, last: u64) {
    match kind {
        Kind::Memory => panic!("memory has no bytes to be damaged"),
        Kind::Sqlite => {
            let connection = database(world);
            let body = "UPDATE frames SET body = CAST(substr(body, 1, length(body) - 1) || x'ff' AS BLOB) \
                        WHERE last = ?1 AND branch = (SELECT id FROM branches WHERE name = ?2)";
            assert_eq!(connection.execute(body, (last as i64, branch)).unwrap(), 1, "{branch}:{last}");
        }
        Kind::Files => {
            let path = segment(&world.directory.path().join("files"), branch).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let is_it = |line: &&str| line.contains(&format!("\"last\":{last},"));
            let line = text.lines().find(is_it).unwrap_or_else(|| panic!("{branch}:{last} in {text}"));
            let broken = line.replacen("\"records\"", "\"recorbs\"", 1);
            assert_ne!(line, broken);
            std::fs::write(&path, text.replacen(line, &broken, 1)).unwrap();
        }
    }
}

/// Writes a status into the index of a branch.
pub fn set_status(world: &World, branch: &str, status: &str) {
    let changed = database(world).execute("UPDATE branches SET status = ?1 WHERE name = ?2", (status, branch));
    assert_eq!(changed.unwrap(), 1);
}

fn database(world: &World) -> rusqlite::Connection {
    rusqlite::Connection::open(world.directory.path().join("store.db")).unwrap()
}

fn segment(path: &Path, branch: &str) -> Option<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(path).ok()?.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.into_iter().find_map(|path| match path.is_dir() {
        true => segment(&path, branch),
        false => path.to_string_lossy().contains(&format!("branches/{branch}/")).then_some(path),
    })
}

/// Damages every frame that is written to a branch from now on, in the transaction that writes it.
pub fn damage_new(world: &World, branch: &str) {
    let connection = database(world);
    let number = connection.query_row("SELECT id FROM branches WHERE name = ?1", [branch], |row| row.get::<_, i64>(0));
    let trigger = format!(
        "CREATE TRIGGER damage AFTER INSERT ON frames WHEN NEW.branch = {} BEGIN \
         UPDATE frames SET body = CAST(substr(body, 1, length(body) - 1) || x'ff' AS BLOB) WHERE id = NEW.id; END",
        number.unwrap()
    );
    connection.execute_batch(&trigger).unwrap();
}
