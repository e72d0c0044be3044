//! Small values of the file store: one file each, replaced whole under the lock of its folder.
//!
//! A value is read without the lock: its file holds the old content or the new one, and its name
//! alone is what a crash can take back.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::codec::{object_from_line, object_to_line};
use rekindle_core::values::{
    Change, Changed, Decision, MAX_VALUE_BYTES, MAX_VALUE_KEY_BYTES, ValueKey, ValueKind, ValuePage, ValueQuery,
    Values, check_keys,
};
use rekindle_core::{Error, Namespace, Result, file_name};
use serde::{Deserialize, Serialize};

use super::disk::{DiskFile, OpenMode};
use super::layout::{Layout, reading, writing};
use super::{Core, FileStore};
use crate::names::from_file_name;

/// No file of a value is longer: every byte as two digits, or escaped, and the names around it.
const LARGEST_FILE: usize = 6 * (MAX_VALUE_BYTES + MAX_VALUE_KEY_BYTES) + 4_096;
/// Number of threads that read values at once.
const READERS: usize = 4;
const SUFFIX: &str = ".json";

/// Folders whose entries this process has made durable.
#[derive(Debug, Default)]
pub(super) struct Folders(Mutex<HashSet<PathBuf>>);

/// The content of a value's file.
#[derive(Serialize, Deserialize)]
struct Stored {
    namespace: String,
    kind: String,
    key: String,
    /// The value, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The value as hexadecimal digits, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

impl Stored {
    fn new(key: &ValueKey, value: &[u8]) -> Self {
        let text = std::str::from_utf8(value).ok();
        let hex = || value.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            namespace: key.namespace().to_string(),
            kind: key.kind().to_string(),
            key: key.key().to_owned(),
            text: text.map(str::to_owned),
            hex: text.is_none().then(hex),
        }
    }

    fn value(self) -> Option<Bytes> {
        let digits = match (self.text, self.hex) {
            (Some(text), None) => return Some(text.into()),
            (None, Some(hex)) => hex,
            _ => return None,
        };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits
            .len()
            .is_multiple_of(2)
            .then(|| digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>())?
            .map(Bytes::from)
    }
}

impl Layout {
    fn values(&self, namespace: &Namespace, kind: ValueKind) -> PathBuf {
        self.root.join("values").join(file_name(namespace.as_str())).join(kind.as_str())
    }

    fn value(&self, key: &ValueKey) -> PathBuf {
        self.values(key.namespace(), key.kind()).join(file_name(key.key()) + SUFFIX)
    }

    /// Key and value in a file, if it is there.
    fn read_value(&self, path: &Path, namespace: &Namespace, kind: ValueKind) -> Result<Option<(String, Bytes)>> {
        let file = match self.disk.open(path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(reading(path))?,
        };
        let damaged = |what: &str| {
            Error::corrupt(format!("{} {what}", path.display())).hint("restore the file from a copy, or remove it")
        };
        let bytes = file.read_start(LARGEST_FILE).map_err(reading(path))?;
        let stored: Stored = object_from_line(&bytes).map_err(|error| damaged(&error.to_string()))?;
        let name = file_name(&stored.key) + SUFFIX;
        let here = path.file_name().is_some_and(|found| found == name.as_str());
        if !here || stored.namespace != namespace.as_str() || stored.kind != kind.as_str() {
            return Err(damaged("holds another value than its name says"));
        }
        let key = stored.key.clone();
        let value = stored.value().ok_or_else(|| damaged("does not hold a value"))?;
        Ok(Some((key, value)))
    }
}

impl Core {
    fn find_value(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        let found = self.layout.read_value(&self.layout.value(key), key.namespace(), key.kind())?;
        match found {
            // Two keys that are too long for a name may share it by chance, hardly ever otherwise.
            Some((stored, _)) if stored != key.key() => {
                Err(Error::corrupt(format!("the value of another key is in the place of `{}`", key.key())))
            }
            found => Ok(found.map(|(_, value)| value)),
        }
    }

    fn change_value(&self, change: &Change) -> Result<Changed> {
        let (layout, key) = (&self.layout, &change.key);
        let folder = layout.values(key.namespace(), key.kind());
        // Released when it is closed.
        let _lock = self.lock_values(&folder)?;
        let current = self.find_value(key)?;
        match change.decide(current.as_deref()) {
            // The process that wrote it may have died before it was durable.
            Decision::Keep => layout.sync_dir(&folder)?,
            Decision::Refuse => return Ok(Changed::Differs(current)),
            Decision::Write => self.write_value(key, change.value.as_deref())?,
        }
        Ok(Changed::Done)
    }

    fn write_value(&self, key: &ValueKey, value: Option<&[u8]>) -> Result<()> {
        let path = self.layout.value(key);
        if let Some(value) = value {
            let line = object_to_line(&Stored::new(key, value))
                .map_err(|error| Error::invalid("the value cannot be written as a line").because(error))?;
            return self.layout.replace(&path, &line);
        }
        match self.layout.disk.remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(writing(&path))?,
        }
        self.layout.sync_dir(&self.layout.values(key.namespace(), key.kind()))
    }

    fn lock_values(&self, folder: &Path) -> Result<Box<dyn DiskFile>> {
        let mut known = self.folders.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(folder) {
            for parent in folder.ancestors().take(3).collect::<Vec<_>>().into_iter().rev() {
                self.layout.create_dir(parent)?;
            }
            known.insert(folder.to_owned());
        }
        drop(known);
        let lock = self.layout.create(&folder.join("lock"))?;
        lock.lock(true).map_err(writing(folder))?;
        Ok(lock)
    }

    fn list_values(&self, query: &ValueQuery) -> Result<ValuePage> {
        let folder = self.layout.values(&query.namespace, query.kind);
        let mut found = Vec::new();
        for name in self.layout.names(&folder)? {
            let Some(encoded) = name.strip_suffix(SUFFIX) else { continue };
            let path = folder.join(&name);
            // A long key is in the file alone.
            let key = match from_file_name(encoded) {
                Some(key) => Some(key),
                None => self.layout.read_value(&path, &query.namespace, query.kind)?.map(|(key, _)| key),
            };
            found.extend(key.filter(|key| query.after.as_ref().is_none_or(|after| key > after)).map(|key| (key, path)));
        }
        found.sort_unstable();
        // One may have gone meanwhile.
        let values =
            found.iter().filter_map(|(_, path)| self.layout.read_value(path, &query.namespace, query.kind).transpose());
        ValuePage::fill(query.limit, values)
    }
}

#[async_trait]
impl Values for FileStore {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        let (core, wanted) = (self.core.clone(), key.clone());
        let found = self.workers.run(key, move || core.find_value(&wanted)).await;
        found.map_err(|error| error.during("get value"))
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        let share = keys.len().div_ceil(READERS).max(1);
        let mut shares = keys.chunks(share);
        let mut read = || {
            let (core, keys) = (self.core.clone(), shares.next().unwrap_or_default().to_vec());
            let first = keys.first().cloned();
            let find = move || keys.iter().map(|key| core.find_value(key)).collect::<Result<Vec<_>>>();
            self.workers.run(first, find)
        };
        let found = tokio::try_join!(read(), read(), read(), read());
        let (mut all, second, third, fourth) = found.map_err(|error| error.during("get values"))?;
        all.extend([second, third, fourth].into_iter().flatten());
        Ok(all)
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        if !self.core.layout.writable {
            let error = Error::invalid("the store was opened to read only").hint("open it to read and write");
            return Err(error.during("change value"));
        }
        let (core, request) = (self.core.clone(), change.clone());
        let changed = self.workers.run(&change.key, move || core.change_value(&request)).await;
        changed.map_err(|error| error.during("change value"))
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        let (core, request) = (self.core.clone(), query.clone());
        let listed = self.workers.run((&query.namespace, query.kind), move || core.list_values(&request)).await;
        listed.map_err(|error| error.during("list values"))
    }
}
