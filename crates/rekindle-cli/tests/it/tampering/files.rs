//! Damage to a directory of files, line by line. Lines that are changed get a checksum that fits.

use std::fs;
use std::path::{Path, PathBuf};

use rekindle::Json;
use rekindle::core::codec::object_to_line;
use serde_json::{Value, json};

use super::prepared::Copied;
use super::sqlite::flip;
use super::table::{How, Part};

pub fn damage(copied: &Copied, how: How) {
    let sessions = copied.place.path("data/sessions/default");
    let (own, other) = (sessions.join("s"), sessions.join("t"));
    let keys = || files_in(&copied.place.path("data/values/default/data-key"));
    match how {
        How::Flip(Part::Header) => flip_file(&own.join("session.json")),
        How::Flip(Part::Key) => keys().iter().for_each(|key| flip_file(key)),
        How::Flip(part) => change_line(&own, part, |line| Some(flip(&line))),
        How::Exchange => {
            let (one, two) = (manifest(&own), manifest(&other));
            write(&own, "session.json", &with(&one, |one| one["header"] = two["header"].clone()));
            write(&other, "session.json", &with(&two, |two| two["header"] = one["header"].clone()));
        }
        How::Foreign => {
            let last = lines(&other, Part::Last).pop().unwrap();
            change_line(&own, Part::Last, |line| Some(as_part_of(&last, &line)));
        }
        How::Branch => {
            let hash = lines(&own, Part::Main).iter().find_map(|line| hash_at(line, 21)).unwrap();
            let head = json!({"seq": 21, "hash": hash});
            let changed = with(&manifest(&own), |manifest| {
                let at = manifest["created_at"].clone();
                let info = json!({"branch": "forged", "parent": {"branch": "main", "seq": 21}, "head": head,
                    "created_at": at, "updated_at": at, "epoch": 1});
                let forged = json!({"info": info, "start": head, "parts": 0});
                manifest["branches"].as_array_mut().unwrap().push(forged);
            });
            write(&own, "session.json", &changed);
        }
        How::Current => {
            write(&own, "session.json", &with(&manifest(&own), |changed| changed["current"] = json!("other")))
        }
        How::Lease => {
            let changed = with(&manifest(&own), |manifest| {
                let info = &mut manifest["branches"][0]["info"];
                let epoch = info["epoch"].clone();
                info["lease"] = json!({"owner": "somebody", "epoch": epoch, "expires_at": 9_000_000_000_000_000_u64});
            });
            write(&own, "session.json", &changed);
        }
        How::Status => {
            let changed =
                with(&manifest(&own), |manifest| manifest["branches"][0]["info"]["status"] = json!("succeeded"));
            write(&own, "session.json", &changed);
        }
        How::Cut => {
            let kept: Vec<_> = lines(&own, Part::Main).into_iter().take_while(|line| last_of(line) <= 16).collect();
            fs::write(segment(&own, Part::Main), kept.concat()).unwrap();
        }
        How::Older => {}
        How::Delete(Part::Header) => fs::remove_file(own.join("session.json")).unwrap(),
        How::Delete(Part::Key) => keys().iter().for_each(|key| fs::remove_file(key).unwrap()),
        How::Delete(Part::Main) => fs::remove_dir_all(own.join("branches/main")).unwrap(),
        How::Delete(Part::Session) => fs::remove_dir_all(own).unwrap(),
        How::Delete(Part::Listed) | How::Hide => unreachable!("files have no index but the directory"),
        How::Delete(part) => change_line(&own, part, |_| None),
    }
}

/// The values in a folder, one of each session.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<PathBuf> = paths.filter(|path| !path.ends_with("lock")).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    found
}

pub fn flip_file(path: &Path) {
    fs::write(path, flip(&fs::read(path).unwrap())).unwrap();
}

fn segment(session: &Path, part: Part) -> PathBuf {
    let branch = if part == Part::Inbox { "inbox" } else { "main" };
    session.join("branches").join(branch).join("00000000000000000001.jsonl")
}

/// The lines of a branch, each with its newline.
fn lines(session: &Path, part: Part) -> Vec<Vec<u8>> {
    let bytes = fs::read(segment(session, part)).unwrap();
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn change_line(session: &Path, part: Part, change: impl Fn(Vec<u8>) -> Option<Vec<u8>>) {
    let mut lines = lines(session, part);
    let at = part.among(lines.len());
    let line = lines.remove(at);
    if let Some(changed) = change(line) {
        lines.insert(at, changed);
    }
    fs::write(segment(session, part), lines.concat()).unwrap();
}

/// A line that says of its place in a commit what another one says: which frames travel together differs from run
/// to run, and a commit that lacks a part is an unfinished write.
fn as_part_of(line: &[u8], other: &[u8]) -> Vec<u8> {
    let part = |line: &[u8]| match &serde_json::from_slice::<Value>(line).unwrap()["store"]["part"] {
        Value::Null => String::new(),
        part => format!(",\"part\":{part}"),
    };
    let text = std::str::from_utf8(line).unwrap().replacen(&part(line), "", 1);
    // Behind its checksum and its length, which are made anew, and the time of the commit.
    let (_, body) = text.split_once("\"v\":").unwrap();
    let (before, behind) = body.split_once("\"store\":{").unwrap();
    let (time, rest) = behind.split_at(behind.find([',', '}']).unwrap());
    let changed = format!("{{\"v\":{before}\"store\":{{{time}{}{rest}", part(other));
    object_to_line(&Json::parse(changed.trim_end()).unwrap()).unwrap()
}

fn last_of(line: &[u8]) -> u64 {
    let line: Value = serde_json::from_slice(line).unwrap();
    line["last"].as_u64().unwrap()
}

fn hash_at(line: &[u8], last: u64) -> Option<Value> {
    let line: Value = serde_json::from_slice(line).unwrap();
    (line["last"] == last).then(|| line["hash"].clone())
}

fn manifest(session: &Path) -> Value {
    serde_json::from_slice(&fs::read(session.join("session.json")).unwrap()).unwrap()
}

fn with(value: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut changed = value.clone();
    change(&mut changed);
    changed
}

/// Writes an object as a line whose checksum fits.
fn write(session: &Path, name: &str, object: &Value) {
    let mut object = object.clone();
    for field in ["crc", "len"] {
        object.as_object_mut().unwrap().remove(field);
    }
    fs::write(session.join(name), object_to_line(&object).unwrap()).unwrap();
}
