//! What a directory holds and in which order, found out without keeping the states.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rekindle::Timestamp;
use rekindle::core::record::RunOutcome;
use serde_json::Value;

use super::Directory;
use super::state::{Conversation, Moment};
use crate::read::{self, Entry, Listing, Object, Read, array, field, sub, text};
use crate::{ImportOptions, time};

/// A checkpoint of which only its place in the order is known.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) path: PathBuf,
    pub(super) place: String,
    time: Option<Timestamp>,
    /// Where the index has it.
    listed: usize,
    pub(super) moment: Moment,
}

/// What a directory holds, in order.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) items: Vec<Item>,
    pub(super) skipped: Vec<(String, String)>,
    pub(super) warnings: Vec<(String, String)>,
    pub(super) state: Option<Object>,
    pub(super) conversations: Vec<Conversation>,
}

pub(super) fn survey(directory: &Directory, options: &ImportOptions) -> Read<Contents> {
    let listing = read::list(&directory.path, options)?;
    let mut contents = Contents { skipped: listing.passed_over.clone(), ..Contents::default() };
    if let Some(entry) = listing.file("state.json") {
        match read::object(&entry.path, options) {
            Ok(state) => contents.state = Some(state),
            Err(why) => contents.warnings.push((entry.place(), format!("the state of the session is not used: {why}"))),
        }
    }
    let files = read::list_in(&listing, "checkpoints", options)?;
    contents.skipped.extend(files.passed_over.clone());
    let index = index(&files, options, &mut contents);
    let places: BTreeMap<&str, usize> =
        index.iter().flatten().enumerate().map(|(place, id)| (id.as_str(), place)).collect();
    for entry in files.entries.iter().filter(|entry| entry.name != "index.json" && entry.stem().is_some()) {
        match read::object(&entry.path, options).and_then(|object| Item::of(entry, &object, &places)) {
            Ok(item) => contents.items.push(item),
            Err(why) => contents.skipped.push((entry.place(), why)),
        }
    }
    contents.compare(&files, index.as_ref());
    contents.order(directory);
    contents.conversations = conversations(&listing, options, &mut contents.skipped)?;
    contents.left_behind(&listing, options)?;
    Ok(contents)
}

/// The ids the index names, in order, unless there is none that can be used.
fn index(files: &Listing, options: &ImportOptions, contents: &mut Contents) -> Option<Vec<String>> {
    let Some(entry) = files.file("index.json") else {
        if !files.entries.is_empty() {
            let place = files.entries.first().map(Entry::place).unwrap_or_default();
            contents.warnings.push((place, "there is no index beside it".into()));
        }
        return None;
    };
    let read = read::object(&entry.path, options).and_then(|object| {
        let listed = array(&object, "checkpoints")?.ok_or("it names no checkpoints")?;
        let id = |value: &Value| match value {
            Value::Object(listed) => text(listed, "checkpoint_id").map(str::to_owned),
            _ => None,
        };
        listed.iter().map(|value| id(value).ok_or_else(|| "an entry has no id".to_owned())).collect()
    });
    read.map_err(|why| contents.warnings.push((entry.place(), format!("the index is not used: {why}")))).ok()
}

impl Item {
    fn of(entry: &Entry, object: &Object, places: &BTreeMap<&str, usize>) -> Read<Self> {
        let moment = Moment::read(object, entry.stem().unwrap_or_default())?;
        let listed = places.get(moment.id.as_str()).copied();
        Ok(Self {
            path: entry.path.clone(),
            place: entry.place(),
            time: field(object, "created_at").and_then(time::timestamp),
            listed: listed.unwrap_or(usize::MAX),
            moment,
        })
    }
}

impl Contents {
    /// Names where the index and the files differ.
    fn compare(&mut self, files: &Listing, index: Option<&Vec<String>>) {
        let Some(index) = index else { return };
        let place = files.file("index.json").map(Entry::place).unwrap_or_default();
        let stored: BTreeSet<&str> = self.items.iter().map(|item| item.moment.id.as_str()).collect();
        // A file that could not be read was named before.
        let files: BTreeSet<&str> = files.entries.iter().filter_map(Entry::stem).collect();
        for id in index {
            if !stored.contains(id.as_str()) && !files.contains(id.as_str()) {
                self.skipped.push((place.clone(), format!("it names `{id}`, and there is no such checkpoint")));
            }
        }
        for item in self.items.iter().filter(|item| item.listed == usize::MAX) {
            self.warnings.push((item.place.clone(), "the index does not name it".into()));
        }
    }

    /// By time, then as the index has it, then by name.
    fn order(&mut self, directory: &Directory) {
        self.items.sort_by(|a, b| (a.time, a.listed, &a.place).cmp(&(b.time, b.listed, &b.place)));
        let listed = self.items.iter().map(|item| item.listed).filter(|listed| *listed != usize::MAX);
        if !listed.is_sorted() {
            let note = "the times of its checkpoints and its index disagree; the order is that of the times";
            self.warnings.push((directory.place(), note.into()));
        }
        for at in 1..self.items.len() {
            let (before, behind) = self.items.split_at_mut(at);
            if let (Some(before), Some(behind)) = (before.last(), behind.first_mut()) {
                behind.moment.follow(&before.moment);
            }
        }
        // From the end, so that what one learns reaches those before it.
        for at in (1..self.items.len()).rev() {
            let (before, behind) = self.items.split_at_mut(at);
            if let (Some(before), Some(behind)) = (before.last_mut(), behind.first()) {
                before.moment.learn(&behind.moment);
            }
        }
    }

    /// Says what is not taken over.
    fn left_behind(&mut self, listing: &Listing, options: &ImportOptions) -> Read<()> {
        for name in ["data", "logs"] {
            let count = read::list_in(listing, name, options)?.entries.len();
            if let (Some(entry), true) = (listing.dir(name), count > 0) {
                self.warnings.push((entry.place(), format!("{count} entries are not taken over")));
            }
        }
        Ok(())
    }

    /// How the session ended, as its state says, and whether that can be right.
    pub(super) fn end(&self) -> Option<(RunOutcome, String)> {
        let state = self.state.as_ref()?;
        let error =
            text(state, "error").or_else(|| sub(state, "result").ok().flatten().and_then(|of| text(of, "error")));
        let reason = error.unwrap_or_default().to_owned();
        let outcome = match text(state, "status")?.to_ascii_lowercase().as_str() {
            "completed" | "complete" | "succeeded" | "success" => RunOutcome::Succeeded,
            "failed" | "error" => RunOutcome::Failed,
            "cancelled" | "canceled" => RunOutcome::Cancelled,
            _ => RunOutcome::Paused,
        };
        Some((outcome, reason))
    }
}

/// The conversations of the nodes, each as it was when the session was stored.
fn conversations(
    listing: &Listing,
    options: &ImportOptions,
    skipped: &mut Vec<(String, String)>,
) -> Read<Vec<Conversation>> {
    let nodes = read::list_in(listing, "conversations", options)?;
    skipped.extend(nodes.passed_over.clone());
    let mut conversations = Vec::new();
    for node in nodes.dirs() {
        match conversation(node, options, skipped) {
            Ok(conversation) => conversations.push(conversation),
            Err(why) => skipped.push((node.place(), why)),
        }
    }
    Ok(conversations)
}

fn conversation(node: &Entry, options: &ImportOptions, skipped: &mut Vec<(String, String)>) -> Read<Conversation> {
    let files = read::list(&node.path, options)?;
    let mut side = |name: &str| {
        let read = files.file(name).map(|entry| (entry.place(), read::json(&entry.path, options)))?;
        read.1.map_err(|why| skipped.push((read.0, why))).ok()
    };
    let (meta, cursor) = (side("meta.json"), side("cursor.json"));
    let parts = read::list_in(&files, "parts", options)?;
    skipped.extend(parts.passed_over.clone());
    let bytes: u64 = parts.entries.iter().map(|entry| read::size(&entry.path)).sum();
    if bytes > options.max_file_bytes {
        return Err(format!("its parts have {bytes} bytes; {} are allowed", options.max_file_bytes));
    }
    let mut messages: Vec<(u64, Value)> = Vec::new();
    for (number, entry) in parts.entries.iter().filter(|entry| entry.stem().is_some()).enumerate() {
        // A conversation with a hole in it is another conversation.
        let object = read::object(&entry.path, options).map_err(|why| format!("`{}`: {why}", entry.name))?;
        let seq = read::count(&object, "seq").unwrap_or(number as u64);
        messages.push((seq, Value::Object(object)));
    }
    messages.sort_by_key(|(seq, _)| *seq);
    let messages: Vec<Value> = messages.into_iter().map(|(_, message)| message).collect();
    Conversation::new(&node.name, node.place(), &messages, meta, cursor)
}
