//! What a folder holds and in which order, found out without keeping any of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rekindle::{Json, Timestamp};
use serde_json::Value;

use super::Folder;
use crate::read::{self, Entry, Listing, Object, Read, array, count, field, sub, text};
use crate::{ImportOptions, MARK, time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Checkpoint,
    Snapshot,
}

/// A snapshot or checkpoint of which only its place in time is known.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) place: String,
    pub(super) time: Option<Timestamp>,
    pub(super) at: Option<Value>,
    pub(super) step: u64,
}

/// What a folder holds, in order.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) items: Vec<Item>,
    pub(super) skipped: Vec<(String, String)>,
    pub(super) warnings: Vec<(String, String)>,
    pub(super) agent: Option<String>,
    pub(super) times: BTreeMap<String, Value>,
    pub(super) metadata: BTreeMap<String, Json>,
    /// Files of pending writes, by the id of their checkpoint.
    pub(super) pending: BTreeMap<String, PathBuf>,
}

pub(super) fn survey(folder: &Folder, options: &ImportOptions) -> Read<Contents> {
    let listing = read::list(&folder.path, options)?;
    let mut contents = Contents::default();
    let manifest = manifest(&listing, options, &mut contents);
    for (kind, name) in [(Kind::Checkpoint, "checkpoints"), (Kind::Snapshot, "snapshots")] {
        let files = read::list_in(&listing, name, options)?;
        contents.skipped.extend(files.passed_over.clone());
        let mut newest = None;
        for entry in &files.entries {
            let Some(stem) = entry.stem() else { continue };
            match read::object(&entry.path, options) {
                Ok(object) => contents.add(kind, stem, entry, &object, &manifest, &mut newest),
                Err(why) => contents.skipped.push((entry.place(), why)),
            }
        }
        contents.missing(kind, &listing, &files, &manifest);
    }
    contents.items.sort_by(|a, b| (a.time, a.kind, a.step, &a.id).cmp(&(b.time, b.kind, b.step, &b.id)));
    if contents.items.iter().any(|item| item.time.is_none()) && contents.items.len() > 1 {
        let note = "some of its files say no time; they come first".to_owned();
        contents.warnings.push((folder.place(), note));
    }
    contents.find_pending(folder, options);
    Ok(contents)
}

/// What the manifest says of each file.
type Manifest = BTreeMap<(bool, String), Object>;

fn manifest(listing: &Listing, options: &ImportOptions, contents: &mut Contents) -> Option<Manifest> {
    let entry = listing.file("manifest.json")?;
    let read = read::object(&entry.path, options).and_then(|object| {
        let mut manifest = Manifest::new();
        for (snapshot, name, id) in
            [(true, "snapshots", "snapshot_id"), (false, "checkpoints", "execution_checkpoint_id")]
        {
            for value in array(&object, name)?.unwrap_or_default() {
                let Value::Object(entry) = value else { return Err(format!("an entry of `{name}` is not an object")) };
                let id = text(entry, id).or_else(|| text(entry, "checkpoint_id")).or_else(|| text(entry, "id"));
                let id = id.ok_or_else(|| format!("an entry of `{name}` has no id"))?;
                manifest.insert((snapshot, id.to_owned()), entry.clone());
            }
        }
        Ok(manifest)
    });
    read.map_err(|why| contents.warnings.push((entry.place(), format!("the manifest is not used: {why}")))).ok()
}

impl Contents {
    fn add(
        &mut self,
        kind: Kind,
        stem: &str,
        entry: &Entry,
        object: &Object,
        manifest: &Option<Manifest>,
        newest: &mut Option<Option<Timestamp>>,
    ) {
        let listed = manifest.as_ref().and_then(|all| all.get(&(kind == Kind::Snapshot, stem.to_owned())));
        if manifest.is_some() && listed.is_none() {
            self.warnings.push((entry.place(), "the manifest does not name it".into()));
        }
        let names: &[&str] = if kind == Kind::Snapshot { &["last_activity", "created_at"] } else { &["created_at"] };
        let own = names.iter().find_map(|name| field(object, name));
        let at = listed.and_then(|listed| field(listed, "created_at")).or(own).cloned();
        let step = step_of(object).or_else(|| listed.and_then(|listed| count(listed, "step"))).unwrap_or(0);
        let time = at.as_ref().and_then(time::timestamp);
        if newest.is_none_or(|newest| newest <= time) {
            *newest = Some(time);
            self.describe(kind, object, &entry.place());
        }
        self.items.push(Item {
            kind,
            id: stem.to_owned(),
            path: entry.path.clone(),
            place: entry.place(),
            time,
            at,
            step,
        });
    }

    /// What the newest file says of the session as a whole.
    fn describe(&mut self, kind: Kind, object: &Object, place: &str) {
        for (name, ours) in [("created_at", "created_at"), ("last_activity", "last_activity")] {
            if let (Kind::Snapshot, Some(value)) = (kind, field(object, name)) {
                self.times.insert(ours.to_owned(), value.clone());
            }
        }
        let state = sub(object, "execution_state").ok().flatten();
        let agent = text(object, "agent_name").or_else(|| state.and_then(|state| text(state, "agent_name")));
        self.agent = agent.map(str::to_owned).or(self.agent.take());
        if let (Kind::Snapshot, Ok(Some(metadata))) = (kind, sub(object, "metadata")) {
            self.metadata = metadata.iter().map(|(key, value)| (key.clone(), Json::from(value.clone()))).collect();
            if let Some(value) = self.metadata.remove(MARK) {
                self.warnings.push((place.to_owned(), format!("its metadata `{MARK}` are kept as `source.{MARK}`")));
                self.metadata.insert(format!("source.{MARK}"), value);
            }
        }
    }

    /// Names what the manifest has and the folder has not.
    fn missing(&mut self, kind: Kind, listing: &Listing, files: &Listing, manifest: &Option<Manifest>) {
        let place = listing.file("manifest.json").map(Entry::place).unwrap_or_default();
        let stems: BTreeSet<&str> = files.entries.iter().filter_map(Entry::stem).collect();
        for (snapshot, id) in manifest.iter().flat_map(Manifest::keys) {
            if *snapshot == (kind == Kind::Snapshot) && !stems.contains(id.as_str()) {
                self.skipped.push((place.clone(), format!("it names `{id}`, and there is no such file")));
            }
        }
    }

    /// The files of pending writes that belong to a checkpoint of the session.
    fn find_pending(&mut self, folder: &Folder, options: &ImportOptions) {
        let Some(Ok(listing)) = folder.pending.as_ref().map(|path| read::list(path, options)) else { return };
        for item in self.items.iter().filter(|item| item.kind == Kind::Checkpoint) {
            if let Some(entry) = listing.file(&format!("{}_{}.json", folder.id, item.id)) {
                self.pending.insert(item.id.clone(), entry.path.clone());
            }
        }
    }
}

fn step_of(object: &Object) -> Option<u64> {
    let metadata = sub(object, "metadata").ok().flatten();
    metadata.and_then(|metadata| count(metadata, "step")).or_else(|| count(object, "step"))
}
