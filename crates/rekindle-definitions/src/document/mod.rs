//! Files as values with places: YAML, TOML and JSON become one kind of tree, and every value and
//! key in it knows where it stands. What the values mean is not known here.

mod decode;
mod json;
mod known;
mod located;
mod scalar;
mod source;
mod toml;
mod tree;
mod yaml;

use std::path::Path;
use std::sync::Arc;

use rekindle::core::Hash;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fault::{Fault, Faults};
pub(crate) use decode::{SECRET_BY_VALUE, quoted};
pub(crate) use known::{did_you_mean, list};
use located::Places;
pub(crate) use located::{child, path_of};
use source::Source;

/// The largest file.
const LARGEST: usize = 4 << 20;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2.
    Yaml,
    /// TOML 1.0.
    Toml,
    /// JSON.
    Json,
}

impl Format {
    /// The extensions of files that are understood.
    pub const EXTENSIONS: [&str; 4] = ["yaml", "yml", "toml", "json"];

    /// The format of a file, by its extension.
    pub fn of_path(path: &Path) -> Result<Self, Faults> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Ok(Self::Yaml),
            "toml" => Ok(Self::Toml),
            "json" => Ok(Self::Json),
            _ => {
                let known: Vec<String> = Self::EXTENSIONS.iter().map(|known| format!(".{known}")).collect();
                let fault = Fault::new("the name of the file does not say how it is written");
                let hint = format!("give it one of these endings: {}", known.join(", "));
                Err(fault.with_file(path.display().to_string()).with_hint(hint).into())
            }
        }
    }
}

/// A file that was read: its value, and where everything in it stands. Cheap to clone.
///
/// ```
/// use rekindle_definitions::{Document, Format};
///
/// #[derive(Debug, serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Server { port: u16 }
///
/// let document = Document::parse("server.toml", "port = 'x'", Format::Toml)?;
/// let faults = document.decode::<Server>("").unwrap_err();
/// assert_eq!(faults.to_string(), "server.toml:1:8: expected a whole number, found the text \"x\"");
/// # Ok::<(), rekindle_definitions::Faults>(())
/// ```
#[derive(Clone, Debug)]
pub struct Document(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    value: Value,
    places: Places,
    /// Of the bytes it was read from.
    hash: Hash,
}

impl Document {
    /// Reads `text`; `name` is what faults call it.
    pub fn parse(name: &str, text: &str, format: Format) -> Result<Self, Faults> {
        let hash = Hash::of(text.as_bytes());
        let source = Source::new(name, text.strip_prefix('\u{feff}').unwrap_or(text));
        if source.text().len() > LARGEST {
            let message = format!("the file is larger than {} MiB", LARGEST >> 20);
            return Err(source.whole(message).into());
        }
        let tree = match format {
            Format::Yaml => yaml::parse(&source),
            Format::Toml => toml::parse(&source),
            Format::Json => json::parse(&source),
        }?;
        let (value, places) = located::locate(tree, &source)?;
        Ok(Self(Arc::new(Inner { source, value, places, hash })))
    }

    /// The same of bytes, which must be UTF-8.
    pub fn parse_bytes(name: &str, bytes: &[u8], format: Format) -> Result<Self, Faults> {
        if bytes.len() > LARGEST {
            return Err(Source::new(name, "").whole(format!("the file is larger than {} MiB", LARGEST >> 20)).into());
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
            let source = Source::new(name, &valid);
            let fault =
                source.fault(&(valid.len()..valid.len()), "the file is not UTF-8: this byte is not legal there");
            Faults::one(fault.with_hint("save it as UTF-8"))
        })?;
        Self::parse(name, text, format)
    }

    /// Reads a file; its extension says how it is written.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Faults> {
        let path = path.as_ref();
        let format = Format::of_path(path)?;
        Self::parse_bytes(&path.display().to_string(), &read(path)?, format)
    }

    /// What faults call it.
    pub fn name(&self) -> &str {
        self.0.source.name()
    }

    /// The hash of the bytes it was read from.
    pub fn hash(&self) -> Hash {
        self.0.hash
    }

    /// All of it.
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// What stands at `pointer` (JSON Pointer; empty for all of it), as a typed value.
    pub fn decode<T: DeserializeOwned>(&self, pointer: &str) -> Result<T, Faults> {
        let value = self.at(pointer).cloned().unwrap_or(Value::Null);
        self.decode_value(value, pointer)
    }

    /// A fault about the value at `pointer`, or about what is nearest to it.
    pub fn fault(&self, pointer: &str, message: impl Into<String>) -> Fault {
        let (at, place) = self.0.places.nearest(pointer);
        let span = if at == pointer { place.value.clone() } else { place.key_or_value() };
        self.0.source.fault(&span, message).with_path(path_of(pointer))
    }

    /// A fault about the key that stands at `pointer`.
    pub fn key_fault(&self, pointer: &str, message: impl Into<String>) -> Fault {
        let (_, place) = self.0.places.nearest(pointer);
        self.0.source.fault(&place.key_or_value(), message).with_path(path_of(pointer))
    }

    /// What stands at `pointer`.
    pub(crate) fn at(&self, pointer: &str) -> Option<&Value> {
        self.0.value.pointer(pointer)
    }

    /// A part of what stands at `pointer`, as a typed value.
    pub(crate) fn decode_value<T: DeserializeOwned>(&self, value: Value, pointer: &str) -> Result<T, Faults> {
        decode::decode(self, value, pointer)
    }
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Faults> {
    use std::io::Read;
    let failed = |error: std::io::Error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            std::io::ErrorKind::IsADirectory => "this is a directory, not a file".to_owned(),
            _ => format!("the file cannot be read: {error}"),
        };
        Faults::one(Fault::new(what).with_file(path.display().to_string()))
    };
    let mut bytes = Vec::new();
    // One byte more than is allowed tells a file that is too large, without reading all of it.
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(LARGEST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
