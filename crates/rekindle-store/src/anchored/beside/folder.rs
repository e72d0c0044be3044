//! Marks in a folder beside the one they are about: one small file for each session.
//!
//! ```text
//! lock                              held while a value changes
//! <namespace>/<kind>/<key>.value    length of the key, length of the value, key, value, check
//! ```
//!
//! Files are written in place and without a sync. What a crash tears fails its check and counts as
//! absent.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::values::{
    Change, Changed, Decision, MAX_VALUE_BYTES, MAX_VALUE_KEY_BYTES, ValueKey, ValueKind, ValuePage, ValueQuery, Values,
};
use rekindle_core::{Error, ErrorKind, Hash, Namespace, Result, file_name};

use crate::private::Modes;

const EXTENSION: &str = ".value";
const CHECK_BYTES: usize = 16;
const MOST_BYTES: u64 = (8 + MAX_VALUE_KEY_BYTES + MAX_VALUE_BYTES + CHECK_BYTES) as u64;

/// Values as files of a folder, written without syncs.
pub struct MarkFolder {
    root: PathBuf,
    /// The file that makes a directory the store the marks are about: marks get its mode.
    data: Option<PathBuf>,
    read_only: bool,
    lock: Mutex<Option<File>>,
}

impl MarkFolder {
    /// Nothing is made before it is needed.
    pub fn new(root: PathBuf, read_only: bool) -> Self {
        Self { root, data: None, read_only, lock: Mutex::new(None) }
    }

    /// The marks get the mode of the store in this directory.
    pub fn about(self, directory: &Path) -> Self {
        Self { data: Some(directory.join(crate::files::MARKER)), ..self }
    }

    fn modes(&self) -> Modes {
        self.data.as_deref().map_or(Modes::PRIVATE, Modes::like)
    }

    fn folder(&self, namespace: &Namespace, kind: ValueKind) -> PathBuf {
        self.root.join(file_name(namespace.as_str())).join(kind.as_str())
    }

    fn path(&self, key: &ValueKey) -> PathBuf {
        self.folder(key.namespace(), key.kind()).join(file_name(key.key()) + EXTENSION)
    }

    fn change_locked(&self, change: &Change) -> io::Result<Changed> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            self.modes().create_dir_all(&self.root)?;
            *lock = Some(self.modes().open_or_create(&self.root.join("lock"))?);
        }
        let Some(file) = lock.as_ref() else { return Err(io::ErrorKind::NotFound.into()) };
        file.lock()?;
        let changed = write(&self.path(&change.key), change, || self.modes());
        file.unlock()?;
        changed
    }

    fn failed(&self, error: io::Error) -> Error {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::PersistFailed,
            _ => ErrorKind::Unsupported,
        };
        Error::new(kind, format!("the marks in {} cannot be used: {error}", self.root.display()))
            .hint("make the folder readable and writable, or delete it")
    }
}

fn write(path: &Path, change: &Change, modes: impl Fn() -> Modes) -> io::Result<Changed> {
    let current = read(path, change.key.key())?;
    match change.decide(current.as_deref()) {
        Decision::Keep => return Ok(Changed::Done),
        Decision::Refuse => return Ok(Changed::Differs(current)),
        Decision::Write => {}
    }
    let Some(value) = &change.value else {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Changed::Done),
        };
    };
    let bytes = encode(change.key.key(), value);
    let mut file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let modes = modes();
            modes.create_dir_all(path.parent().unwrap_or(path))?;
            modes.open_or_create(path)?
        }
        other => other?,
    };
    file.write_all(&bytes)?;
    // Sizes rarely change, and setting one costs more than the write.
    if current.as_ref().is_none_or(|current| current.len() != value.len()) {
        file.set_len(bytes.len() as u64)?;
    }
    Ok(Changed::Done)
}

/// A value; nothing if there is none, or what is there fails its check.
fn read(path: &Path, key: &str) -> io::Result<Option<Bytes>> {
    Ok(read_any(path)?.filter(|(found, _)| found == key).map(|(_, value)| value))
}

fn read_any(path: &Path) -> io::Result<Option<(String, Bytes)>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MOST_BYTES).read_to_end(&mut bytes)?,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Ok(decode(&bytes))
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&Hash::of(bytes).0[..CHECK_BYTES]);
    check
}

fn encode(key: &str, value: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = Vec::with_capacity(8 + key.len() + value.len() + CHECK_BYTES);
    bytes.extend(length(key.len()));
    bytes.extend(length(value.len()));
    bytes.extend(key.as_bytes());
    bytes.extend(value);
    let check = check(&bytes);
    bytes.extend(check);
    bytes
}

fn decode(bytes: &[u8]) -> Option<(String, Bytes)> {
    let number = |at: usize| -> Option<usize> {
        usize::try_from(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)).ok()
    };
    let key_end = number(0)?.checked_add(8)?;
    let end = key_end.checked_add(number(4)?)?;
    if bytes.get(end..end.checked_add(CHECK_BYTES)?)? != check(bytes.get(..end)?) {
        return None;
    }
    let key = std::str::from_utf8(bytes.get(8..key_end)?).ok()?.to_owned();
    Some((key, Bytes::copy_from_slice(bytes.get(key_end..end)?)))
}

/// The key of a file by its name; nothing if only its content says.
fn key_of(name: &str) -> Option<String> {
    if name.contains("%~") {
        return None;
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        match first {
            b'%' => {
                let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &behind[2..];
            }
            byte => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn list(folder: &Path, query: &ValueQuery) -> io::Result<ValuePage> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ValuePage::default()),
        Err(error) => return Err(error),
    };
    let mut keys = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(EXTENSION));
        let Some(name) = name else { continue };
        let key = match key_of(name) {
            Some(key) => key,
            None => match read_any(&path)? {
                Some((key, _)) => key,
                None => continue,
            },
        };
        if query.after.as_ref().is_none_or(|after| key > *after) {
            keys.push((key, path));
        }
    }
    keys.sort_unstable();
    let values = keys.into_iter().filter_map(|(key, path)| match read(&path, &key) {
        Ok(value) => value.map(|value| Ok((key, value))),
        Err(error) => Some(Err(error)),
    });
    ValuePage::fill(query.limit, values)
}

/// Calls wait for no disk, so they are made where they are asked for.
#[async_trait]
impl Values for MarkFolder {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        let path = self.path(key);
        let value = read(&path, key.key()).map_err(|error| self.failed(error))?;
        if value.is_some() || !path.exists() {
            return Ok(value);
        }
        // Perhaps it was being written.
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = OpenOptions::new().read(true).open(self.root.join("lock")).and_then(|file| {
            file.lock_shared()?;
            Ok(file)
        });
        let value = read(&path, key.key()).map_err(|error| self.failed(error));
        drop((locked, lock));
        value
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        if self.read_only {
            return Err(Error::new(ErrorKind::Unsupported, "the store was opened read-only"));
        }
        self.change_locked(change).map_err(|error| self.failed(error))
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        list(&self.folder(&query.namespace, query.kind), query).map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_marks_in_files() {
        let seeds = [encode("key", b"value"), encode("", b""), encode("\u{1f980}", &[0; 100])];
        let repair = |bytes: &mut Vec<u8>| {
            if let Some(end) = bytes.len().checked_sub(CHECK_BYTES) {
                let sum = check(&bytes[..end]);
                bytes[end..].copy_from_slice(&sum);
            }
        };
        rekindle_fuzz::fuzz!("mark-file").seeds(seeds).repair(repair).bytes(|bytes| {
            let (key, value) = decode(bytes)?;
            assert_eq!(decode(&encode(&key, &value)), Some((key, value)));
            Some(())
        });
        rekindle_fuzz::fuzz!("mark-file-name").seeds(["a%2fb", "ses_1", "%2e"]).text(key_of);
    }
}
