//! Damage to a directory of objects. Headers that are changed get a hash that fits.

use std::fs;
use std::path::{Path, PathBuf};

use rekindle::core::Hash;
use serde_json::{Value, json};

use super::files::{files_in, flip_file};
use super::prepared::{Copied, Prepared};
use super::table::{How, Marks, Part, Protection, Store};

/// The place where the header of an object begins.
const HEADER_AT: usize = 56;

/// An object: its first bytes, its header, its frames.
struct Object {
    path: PathBuf,
    nonce: Vec<u8>,
    header: Value,
    frames: Vec<u8>,
    /// The length of what stands behind its frames: copies of other changes.
    copies: usize,
}

pub fn damage(copied: &Copied, how: How) {
    let sessions = copied.place.path("data/sessions/default");
    let own = sessions.join("s");
    drop_copies(&own);
    drop_copies(&sessions.join("t"));
    let keys = || files_in(&copied.place.path("data/values/default/data-key"));
    match how {
        // The object that created the session holds its header.
        How::Flip(Part::Header) => flip_file(&log(&own)[0].path),
        How::Flip(Part::Key) => keys().iter().for_each(|key| flip_file(key)),
        How::Flip(part) => {
            let mut object = holding(&own, part);
            // Within the frame that was meant, which is the last of its object.
            let at = object.frames.len() - 10;
            object.frames[at] ^= 1;
            object.write();
        }
        How::Exchange => {
            let other = sessions.join("t");
            let (one, two) = (header(&own), header(&other));
            add(&own, json!({"removed": false, "header": two}));
            add(&other, json!({"removed": false, "header": one}));
        }
        How::Foreign => {
            let (own, other) = (holding(&own, Part::Last), holding(&sessions.join("t"), Part::Last));
            fs::copy(other.path, own.path).unwrap();
        }
        How::Branch => {
            let branch = branch(&own, "main");
            let at = branch["created_at"].clone();
            let hash =
                log(&own).iter().flat_map(Object::entries).find(|entry| entry["last"] == 21).unwrap()["hash"].clone();
            let forged = json!({"branch": "forged", "parent": {"branch": "main", "seq": 21}, "head": {"seq": 21, "hash": hash},
                "created_at": at, "updated_at": at, "epoch": 1});
            add(&own, json!({"removed": false, "branch": forged}));
        }
        How::Current => add(&own, json!({"removed": false, "current": "other"})),
        How::Hide => {
            for mut object in log(&own) {
                let mut entries = object.entries();
                entries.iter_mut().for_each(|entry| entry["marks"] = json!(0));
                if !entries.is_empty() {
                    object.header["frames"] = Value::Array(entries);
                    object.write();
                }
            }
        }
        How::Lease => {
            let mut branch = branch(&own, "main");
            let epoch = branch["epoch"].clone();
            branch["lease"] = json!({"owner": "somebody", "epoch": epoch, "expires_at": 9_000_000_000_000_000_u64});
            add(&own, json!({"removed": false, "branch": branch}));
        }
        How::Status => {
            let mut branch = branch(&own, "main");
            branch["status"] = json!("succeeded");
            add(&own, json!({"removed": false, "branch": branch}));
        }
        How::Cut => {
            let behind = |object: &Object| object.header["branch"]["branch"] == "main" && object.head() > 16;
            let all = log(&own);
            let first = all.iter().position(behind).unwrap();
            all[first..].iter().for_each(|object| fs::remove_file(&object.path).unwrap());
        }
        How::Older => {}
        How::Delete(Part::Header) => fs::remove_file(&log(&own)[0].path).unwrap(),
        How::Delete(Part::Key) => keys().iter().for_each(|key| fs::remove_file(key).unwrap()),
        How::Delete(Part::Session) => fs::remove_dir_all(&own).unwrap(),
        How::Delete(Part::Listed) => {
            let catalog = fs::read_dir(copied.place.path("data/catalog/default")).unwrap();
            let entry = catalog.map(|entry| entry.unwrap().path()).find(|path| path.to_str().unwrap().ends_with("-s"));
            fs::remove_file(entry.unwrap()).unwrap();
        }
        How::Delete(Part::Main) => unreachable!("a branch is no object of its own"),
        How::Delete(part) => fs::remove_file(holding(&own, part).path).unwrap(),
    }
}

/// Removes the copies that changes carry along: one who wants damage to count removes them, too.
fn drop_copies(session: &Path) {
    for object in log(session) {
        let whole = fs::read(&object.path).unwrap();
        let own = whole.len() - object.copies;
        fs::write(&object.path, &whole[..own]).unwrap();
    }
}

/// The changes of a session, in order.
fn log(session: &Path) -> Vec<Object> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(session.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(Object::read).collect()
}

/// The object with a frame of the branch.
fn holding(session: &Path, part: Part) -> Object {
    let branch = if part == Part::Inbox { "inbox" } else { "main" };
    let mut all = log(session);
    all.retain(|object| object.entries().iter().any(|entry| entry["branch"] == branch));
    let at = part.among(all.len());
    all.swap_remove(at)
}

fn header(session: &Path) -> Value {
    log(session)[0].header["created"]["header"].clone()
}

/// A branch as the last change of it says.
fn branch(session: &Path, name: &str) -> Value {
    let all = log(session);
    all.iter().rev().map(|object| object.header["branch"].clone()).find(|branch| branch["branch"] == name).unwrap()
}

/// Adds a change that nobody made.
fn add(session: &Path, header: Value) {
    let number = log(session).len() + 1;
    let path = session.join("log").join(format!("{number:020}"));
    Object { path, nonce: vec![7; 16], header, frames: Vec::new(), copies: 0 }.write();
}

impl Object {
    fn read(path: PathBuf) -> Self {
        let bytes = fs::read(&path).unwrap();
        let end = HEADER_AT + u32::from_le_bytes(bytes[20..24].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[HEADER_AT..end]).unwrap();
        let ends = header["frames"].as_array().into_iter().flatten();
        let ends = ends.map(|entry| entry["offset"].as_u64().unwrap() + entry["len"].as_u64().unwrap());
        let own = end + ends.max().unwrap_or(0) as usize;
        let (frames, copies) = (bytes[end..own].to_vec(), bytes.len() - own);
        Self { path, nonce: bytes[4..20].to_vec(), header, frames, copies }
    }

    fn write(&self) {
        let header = serde_json::to_vec(&self.header).unwrap();
        let length = u32::try_from(header.len()).unwrap().to_le_bytes();
        let hash = Hash::of(&[&self.nonce[..], &header].concat());
        let bytes = [b"RKO\x01", &self.nonce[..], &length, &hash.0, &header, &self.frames].concat();
        fs::write(&self.path, bytes).unwrap();
    }

    fn entries(&self) -> Vec<Value> {
        self.header["frames"].as_array().cloned().unwrap_or_default()
    }

    fn head(&self) -> u64 {
        self.header["branch"]["head"]["seq"].as_u64().unwrap_or(0)
    }
}

/// A session is read with several requests at once, more and more of them: it must not matter where the hole is.
#[test]
fn a_hole_anywhere_in_a_log_is_noticed() {
    let prepared = Prepared::new(Store::Objects, Protection::Plain);
    let count = log(&prepared.copy("count", false, Marks::Off).place.path("data/sessions/default/s")).len();
    assert!(count > 12, "{count} objects are too few for three rounds of requests");
    for number in 1..count {
        let copied = prepared.copy(&format!("hole{number}"), false, Marks::Off);
        fs::remove_file(copied.place.path(&format!("data/sessions/default/s/log/{number:020}"))).unwrap();
        let said = copied.run(&["verify", "s"]);
        let missing = format!("{number:020}` is missing, and later ones are there");
        assert!(said.code == 7 && said.err.contains(&missing), "{number}: {} {}{}", said.code, said.out, said.err);
    }
}
