//! A disk in memory that knows what is synced and what is not, fails or loses power at a chosen
//! operation, and shows what could be found on it afterwards.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rekindle_store::files::disk::{Disk, DiskFile, OpenMode};

const SECTOR: usize = 512;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Power fails during this operation: it may have happened, and nothing works afterwards.
    PowerCut(usize),
    /// This operation fails.
    Once(usize, io::ErrorKind),
    /// This operation and all later ones fail.
    From(usize, io::ErrorKind),
}

/// What is found after the power failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Nothing that was not synced.
    Synced,
    /// Everything.
    Everything,
    /// Everything, but only this many per mille of the last write.
    Torn(usize),
    /// Everything, but zeros instead of the last write.
    Zeroed,
    /// Everything, but zeros instead of the first sector of the last write.
    FirstSectorLost,
    /// Content that was not synced, but no entries of directories.
    EntriesLost,
    /// Entries of directories that were not synced, but no content.
    ContentLost,
}

pub const IMAGES: [Image; 11] = [
    Image::Synced,
    Image::Everything,
    Image::Torn(1),
    Image::Torn(300),
    Image::Torn(500),
    Image::Torn(700),
    Image::Torn(999),
    Image::Zeroed,
    Image::FirstSectorLost,
    Image::EntriesLost,
    Image::ContentLost,
];

#[derive(Clone, Debug)]
enum Node {
    File { now: Vec<u8>, synced: Vec<u8>, dirty: Vec<bool> },
    Directory { now: BTreeMap<String, usize>, synced: BTreeMap<String, usize> },
}

#[derive(Clone, Debug)]
struct LastWrite {
    node: usize,
    before: Vec<u8>,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    nodes: Vec<Node>,
    locks: HashMap<usize, (bool, usize)>,
    operations: usize,
    fault: Fault,
    dead: bool,
    last_write: Option<LastWrite>,
    counts: (usize, usize),
    bytes_read: usize,
}

#[derive(Clone, Debug)]
pub struct SimulatedDisk(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    node: usize,
    writable: bool,
    held: Mutex<Option<bool>>,
}

fn power() -> io::Error {
    io::Error::other("the power is off")
}

/// Whether an operation is carried out, and what its caller hears.
enum Step {
    Done,
    DoneUnheard,
    Failed(io::Error),
}

impl State {
    fn step(&mut self) -> Step {
        if self.dead {
            return Step::Failed(power());
        }
        self.operations += 1;
        match self.fault {
            Fault::PowerCut(at) if self.operations == at => {
                self.dead = true;
                Step::DoneUnheard
            }
            Fault::Once(at, kind) if self.operations == at => Step::Failed(kind.into()),
            Fault::From(at, kind) if self.operations >= at => Step::Failed(kind.into()),
            _ => Step::Done,
        }
    }

    /// Counts a change, makes it unless it fails, and says what the caller hears.
    fn change(&mut self, make: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        match self.step() {
            Step::Failed(error) => Err(error),
            Step::Done => make(self),
            Step::DoneUnheard => make(self).and(Err(power())),
        }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        if self.dead {
            return Err(power());
        }
        let mut node = 0;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
            node = *self.entries(node)?.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    fn parent(&self, path: &Path) -> io::Result<(usize, String)> {
        let parent = self.find(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        self.entries(parent)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok((parent, name.to_owned()))
    }

    fn entries(&self, node: usize) -> io::Result<&BTreeMap<String, usize>> {
        match &self.nodes[node] {
            Node::Directory { now, .. } => Ok(now),
            Node::File { .. } => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn entries_mut(&mut self, node: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[node] {
            Node::Directory { now, .. } => now,
            Node::File { .. } => panic!("checked by the caller"),
        }
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let (parent, name) = self.parent(path)?;
        self.nodes.push(node);
        let index = self.nodes.len() - 1;
        self.entries_mut(parent).insert(name, index);
        Ok(index)
    }

    fn content(&self, node: usize) -> io::Result<&Vec<u8>> {
        match &self.nodes[node] {
            _ if self.dead => Err(power()),
            Node::File { now, .. } => Ok(now),
            Node::Directory { .. } => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn write(&mut self, node: usize, offset: usize, bytes: &[u8]) {
        let Node::File { now, dirty, .. } = &mut self.nodes[node] else { panic!("a directory was opened as a file") };
        let before = now.clone();
        let end = offset + bytes.len();
        let len = now.len().max(end);
        now.resize(len, 0);
        dirty.resize(len, true);
        now[offset..end].copy_from_slice(bytes);
        dirty[offset..end].fill(true);
        self.last_write = Some(LastWrite { node, before, offset, bytes: bytes.to_vec() });
    }

    // A failed sync leaves the pages clean: a later one that succeeds does not write them.
    fn sync(&mut self, node: usize, succeeds: bool) {
        let Node::File { now, synced, dirty } = &mut self.nodes[node] else { return };
        if succeeds {
            synced.resize(now.len(), 0);
            for (index, byte) in now.iter().enumerate().filter(|(index, _)| dirty[*index]) {
                synced[index] = *byte;
            }
        }
        dirty.fill(false);
    }
}

impl SimulatedDisk {
    pub fn new() -> Self {
        let root = Node::Directory { now: BTreeMap::new(), synced: BTreeMap::new() };
        Self(Arc::new((Mutex::new(State { nodes: vec![root], ..State::default() }), Condvar::new())))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    pub fn set_fault(&self, fault: Fault) {
        self.state().fault = fault;
    }

    /// Changes a file behind everybody's back.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let node = state.find(path).unwrap();
        if let Node::File { now, synced, dirty } = &mut state.nodes[node] {
            change(now);
            synced.clone_from(now);
            *dirty = vec![false; now.len()];
        }
    }

    /// How many operations changed something so far.
    pub fn operations(&self) -> usize {
        self.state().operations
    }

    /// How often a file was written and synced so far.
    pub fn counts(&self) -> (usize, usize) {
        self.state().counts
    }

    /// How many bytes of files were read so far.
    pub fn bytes_read(&self) -> usize {
        self.state().bytes_read
    }

    /// The disk as it could be found after the power failed now.
    pub fn after_power_cut(&self, image: Image) -> Self {
        let state = self.state();
        let mut nodes = state.nodes.clone();
        for (index, node) in nodes.iter_mut().enumerate() {
            match node {
                Node::File { now, synced, dirty } => {
                    if matches!(image, Image::Synced | Image::ContentLost) {
                        now.clone_from(synced);
                    } else if let Some(last) =
                        state.last_write.as_ref().filter(|last| last.node == index && now != synced)
                    {
                        spoil(now, synced.len(), last, image);
                    }
                    synced.clone_from(now);
                    *dirty = vec![false; now.len()];
                }
                Node::Directory { now, synced } => {
                    if matches!(image, Image::Synced | Image::EntriesLost) {
                        now.clone_from(synced);
                    }
                    synced.clone_from(now);
                }
            }
        }
        Self(Arc::new((Mutex::new(State { nodes, ..State::default() }), Condvar::new())))
    }
}

// Only bytes that were never on the disk can be missing from it.
fn spoil(now: &mut Vec<u8>, synced: usize, last: &LastWrite, image: Image) {
    let start = last.offset.max(synced);
    let end = (last.offset + last.bytes.len()).min(now.len());
    match image {
        Image::Torn(permille) if now.len() == last.before.len().max(last.offset + last.bytes.len()) => {
            let kept = (last.bytes.len() * permille / 1000).max(1);
            now.clone_from(&last.before);
            now.resize(now.len().max(last.offset + kept), 0);
            now[last.offset..last.offset + kept].copy_from_slice(&last.bytes[..kept]);
        }
        Image::Zeroed if start < end => now[start..end].fill(0),
        Image::FirstSectorLost => {
            let sector = (start / SECTOR + 1) * SECTOR;
            if sector < end {
                now[start..sector].fill(0);
            }
        }
        _ => {}
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let node = match state.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && mode == OpenMode::Create => {
                state.parent(path)?;
                state.change(|state| {
                    let file = Node::File { now: Vec::new(), synced: Vec::new(), dirty: Vec::new() };
                    state.add(path, file).map(|_| ())
                })?;
                state.find(path)?
            }
            other => other?,
        };
        state.content(node)?;
        let writable = mode == OpenMode::Create;
        Ok(Box::new(SimulatedFile { disk: self.clone(), node, writable, held: Mutex::new(None) }))
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        let state = self.state();
        let node = state.find(path)?;
        state.content(node).map(|content| content.len() as u64)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let node = state.find(path)?;
        Ok(state.entries(node)?.keys().cloned().collect())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.parent(path)?;
        state.change(|state| {
            state.add(path, Node::Directory { now: BTreeMap::new(), synced: BTreeMap::new() }).map(|_| ())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let node = state.find(from)?;
        let (from_parent, from_name) = state.parent(from)?;
        let (to_parent, to_name) = state.parent(to)?;
        state.change(|state| {
            state.entries_mut(from_parent).remove(&from_name);
            state.entries_mut(to_parent).insert(to_name, node);
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.find(path)?;
        let (parent, name) = state.parent(path)?;
        state.change(|state| {
            state.entries_mut(parent).remove(&name);
            Ok(())
        })
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        self.remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let node = state.find(path)?;
        let cut = matches!(state.fault, Fault::PowerCut(at) if at == state.operations + 1);
        state.change(|state| {
            if let (Node::Directory { now, synced }, false) = (&mut state.nodes[node], cut) {
                synced.clone_from(now);
            }
            Ok(())
        })
    }
}

impl DiskFile for SimulatedFile {
    fn size(&self) -> io::Result<u64> {
        self.disk.state().content(self.node).map(|content| content.len() as u64)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        match self.disk.state().find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => Ok(found? == self.node),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        let content = state.content(self.node)?;
        let start = (offset as usize).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        state.bytes_read += count;
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(self.writable, "written through a file opened to read");
        let mut state = self.disk.state();
        state.counts.0 += 1;
        match state.step() {
            Step::Done => state.write(self.node, offset as usize, bytes),
            Step::DoneUnheard => {
                state.write(self.node, offset as usize, bytes);
                return Err(power());
            }
            Step::Failed(error) => {
                if !state.dead {
                    // A full disk takes the beginning.
                    state.write(self.node, offset as usize, &bytes[..bytes.len() / 2]);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        assert!(self.writable, "cut through a file opened to read");
        let node = self.node;
        self.disk.state().change(|state| {
            if let Node::File { now, dirty, .. } = &mut state.nodes[node] {
                now.resize(len as usize, 0);
                dirty.resize(len as usize, true);
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.counts.1 += 1;
        match state.step() {
            Step::Done => state.sync(self.node, true),
            Step::DoneUnheard => return Err(power()),
            Step::Failed(error) => {
                state.sync(self.node, false);
                return Err(error);
            }
        }
        Ok(())
    }

    fn lock(&self, exclusive: bool) -> io::Result<()> {
        let mut state = self.disk.state();
        loop {
            if state.dead {
                return Err(power());
            }
            let (locked, shared) = state.locks.entry(self.node).or_default();
            if !*locked && (!exclusive || *shared == 0) {
                if exclusive {
                    *locked = true;
                } else {
                    *shared += 1;
                }
                *self.held.lock().unwrap() = Some(exclusive);
                return Ok(());
            }
            state = self.disk.0.1.wait(state).unwrap();
        }
    }

    fn unlock(&self) -> io::Result<()> {
        if let Some(exclusive) = self.held.lock().unwrap().take() {
            let mut state = self.disk.state();
            let (locked, shared) = state.locks.entry(self.node).or_default();
            if exclusive {
                *locked = false;
            } else {
                *shared -= 1;
            }
            self.disk.0.1.notify_all();
        }
        Ok(())
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let _ = self.unlock();
    }
}
