//! Reading what strangers wrote: files of bounded size, listings of bounded length, fields by
//! names whose spelling does not matter. No path is ever made from what stands in a file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rekindle::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

use super::ImportOptions;

/// What was read, or why it could not be.
pub(super) type Read<T> = std::result::Result<T, String>;

/// An object of a file.
pub(super) type Object = Map<String, Value>;

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
}

impl Entry {
    /// The name without `.json`, if it is a file that ends so.
    pub(super) fn stem(&self) -> Option<&str> {
        self.name.strip_suffix(".json").filter(|stem| !self.is_dir && !stem.is_empty())
    }

    pub(super) fn place(&self) -> String {
        self.path.display().to_string()
    }
}

/// What a directory holds, in the order of the names, and what of it was passed over and why.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    pub(super) passed_over: Vec<(String, String)>,
}

impl Listing {
    /// The entry of exactly that name.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
        self.entries.get(at)
    }

    pub(super) fn dir(&self, name: &str) -> Option<&Entry> {
        self.get(name).filter(|entry| entry.is_dir)
    }

    pub(super) fn file(&self, name: &str) -> Option<&Entry> {
        self.get(name).filter(|entry| !entry.is_dir)
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_dir)
    }
}

/// Lists a directory. Links, pipes and names that are not UTF-8 are passed over.
pub(super) fn list(dir: &Path, options: &ImportOptions) -> Read<Listing> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(dir).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        let place = entry.path().display().to_string();
        if listing.entries.len() >= options.max_files {
            let reason = format!("the directory has more than {} entries; the rest was not read", options.max_files);
            listing.passed_over.push((dir.display().to_string(), reason));
            break;
        }
        match (entry.file_name().into_string(), entry.file_type()) {
            (Err(_), _) => listing.passed_over.push((place, "its name is not UTF-8".into())),
            (_, Err(error)) => listing.passed_over.push((place, error.to_string())),
            (Ok(name), Ok(kind)) if kind.is_dir() || kind.is_file() => {
                listing.entries.push(Entry { name, path: entry.path(), is_dir: kind.is_dir() });
            }
            (Ok(_), Ok(kind)) if kind.is_symlink() => {
                listing.passed_over.push((place, "it is a symbolic link, and links are not followed".into()));
            }
            (Ok(_), Ok(_)) => listing.passed_over.push((place, "it is neither a file nor a directory".into())),
        }
    }
    listing.entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listing)
}

/// The same for a directory that may be absent.
pub(super) fn list_in(parent: &Listing, name: &str, options: &ImportOptions) -> Read<Listing> {
    parent.dir(name).map_or_else(|| Ok(Listing::default()), |entry| list(&entry.path, options))
}

/// One JSON value from a file.
pub(super) fn json(path: &Path, options: &ImportOptions) -> Read<Value> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let limit = options.max_file_bytes;
    let too_large = |size: u64| format!("it has {size} bytes; {limit} are allowed");
    if size > limit {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    parse(&bytes)
}

/// One JSON object from a file.
pub(super) fn object(path: &Path, options: &ImportOptions) -> Read<Object> {
    into_object(json(path, options)?)
}

pub(super) fn into_object(value: Value) -> Read<Object> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err("it is not a JSON object".into()),
    }
}

pub(super) fn parse(bytes: &[u8]) -> Read<Value> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(text).map_err(|error| format!("it is not JSON that can be read: {error}"))
}

/// A field by any spelling of its name: `callId`, `CallId` and `call_id` are the same. Null counts
/// as absent.
pub(super) fn field<'a>(object: &'a Object, name: &str) -> Option<&'a Value> {
    let exact = object.get(name);
    let same = |key: &str| normal(key).eq(normal(name));
    let value = exact.or_else(|| object.iter().find(|(key, _)| same(key)).map(|(_, value)| value));
    value.filter(|value| !value.is_null())
}

fn normal(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase)
}

/// Whether two names are spellings of one.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    normal(a).eq(normal(b))
}

pub(super) fn text<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    field(object, name).and_then(Value::as_str)
}

pub(super) fn count(object: &Object, name: &str) -> Option<u64> {
    field(object, name).and_then(Value::as_u64)
}

pub(super) fn truth(object: &Object, name: &str) -> Option<bool> {
    field(object, name).and_then(Value::as_bool)
}

/// A field that is an object; none if it is absent, an error if it is something else.
pub(super) fn sub<'a>(object: &'a Object, name: &str) -> Read<Option<&'a Object>> {
    match field(object, name) {
        None => Ok(None),
        Some(Value::Object(found)) => Ok(Some(found)),
        Some(_) => Err(format!("`{name}` is not an object")),
    }
}

/// A field that is an array; none if it is absent, an error if it is something else.
pub(super) fn array<'a>(object: &'a Object, name: &str) -> Read<Option<&'a [Value]>> {
    match field(object, name) {
        None => Ok(None),
        Some(Value::Array(found)) => Ok(Some(found)),
        Some(_) => Err(format!("`{name}` is not an array")),
    }
}

/// The last part of a path, if it is text.
pub(super) fn name_of(path: &Path) -> Option<String> {
    path.file_name().map(OsString::from)?.into_string().ok()
}

/// An absolute path without `.` or links, or an error that says what is missing.
pub(super) fn existing(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Invalid,
        };
        Error::new(kind, format!("`{}` cannot be read", path.display())).because(error).hint("check the path")
    })
}

/// How many bytes a file has; none if that cannot be told.
pub(super) fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::new(ErrorKind::Closed, "the source could not be read to its end").because(error))
}
