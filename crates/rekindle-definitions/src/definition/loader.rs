//! Files that refer to files: relative to the one that names them, never in a circle.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use rekindle::SecretRef;

use super::read::{Spot, read};
use super::{Definition, Kind};
use crate::document::{self, Document, Format};
use crate::fault::{Fault, Faults, short};

/// How many files may refer to each other in a row.
const DEEPEST: usize = 16;

pub(super) fn load(path: &Path) -> Result<Definition, Faults> {
    Loader::default().file(path, None)
}

pub(super) fn parse(name: &str, text: &str, format: Format) -> Result<Definition, Faults> {
    let document = Document::parse(name, text, format)?;
    let spot = Spot { document: &document, pointer: "", path: None, base: Path::new(""), kind: None, name: None };
    read(&mut Loader::default(), &spot, None)
}

/// Reads files and remembers which.
#[derive(Default)]
pub(super) struct Loader {
    /// The files that are being read, each because the one before it names it.
    open: Vec<PathBuf>,
    /// Those that were read.
    known: HashMap<PathBuf, Definition>,
    /// How deeply definitions stand inside each other.
    depth: usize,
}

impl Loader {
    fn file(&mut self, path: &Path, kind: Option<Kind>) -> Result<Definition, Faults> {
        let document = Document::load(path)?;
        let real = real(path);
        self.open.push(real.clone());
        let base = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let spot = Spot { document: &document, pointer: "", path: Some(path), base: &base, kind, name: None };
        let read = self.deeper(&spot, None);
        self.open.pop();
        let definition = read?;
        self.known.insert(real, definition.clone());
        Ok(definition)
    }

    /// What `path` leads to; `from` is who names it.
    pub(super) fn reference(
        &mut self,
        from: &Spot<'_>,
        pointer: &str,
        path: &str,
        kind: Kind,
    ) -> Result<Definition, Faults> {
        let fault = |message: String| from.document.fault(pointer, message);
        let full = resolve_path(from.base, path);
        let real = real(&full);
        if let Some(first) = self.open.iter().position(|open| *open == real) {
            let chain = self.open[first..].iter().chain([&real]).map(|path| name_of(path)).collect::<Vec<_>>();
            return Err(fault(format!("files refer to each other in a circle: {}", chain.join(" → "))).into());
        }
        let definition = match self.known.get(&real) {
            Some(known) => known.clone(),
            None => {
                let found = std::fs::metadata(&full).map_err(|error| {
                    let why = match error.kind() {
                        std::io::ErrorKind::NotFound => "does not exist".to_owned(),
                        _ => format!("cannot be read: {error}"),
                    };
                    fault(format!("the file `{}` {why}", short(path))).with_hint("paths are relative to this file")
                })?;
                if found.is_dir() {
                    return Err(fault(format!("`{}` is a directory, not a file", short(path))).into());
                }
                self.file(&full, None)?
            }
        };
        match definition.kind() == kind {
            true => Ok(definition),
            false => Err(fault(format!(
                "`{}` holds {}, not {}",
                short(path),
                definition.kind().with_article(),
                kind.with_article()
            ))
            .into()),
        }
    }

    /// What stands inside something else.
    pub(super) fn inline(&mut self, spot: &Spot<'_>, outer: &super::Inner) -> Result<Definition, Faults> {
        self.deeper(spot, Some(outer))
    }

    fn deeper(&mut self, spot: &Spot<'_>, outer: Option<&super::Inner>) -> Result<Definition, Faults> {
        if self.depth == DEEPEST {
            let fault = spot.document.fault(spot.pointer, "definitions refer to each other too deeply");
            return Err(fault.with_hint(format!("at most {DEEPEST} may stand inside each other")).into());
        }
        self.depth += 1;
        let read = read(self, spot, outer);
        self.depth -= 1;
        read
    }
}

/// `path` as seen from the directory `base`.
pub(crate) fn resolve_path(base: &Path, path: &str) -> PathBuf {
    base.join(path).components().filter(|part| *part != Component::CurDir).collect()
}

/// Where a secret is, as seen from the directory `base`.
pub(crate) fn resolve_secret(base: &Path, reference: &SecretRef) -> SecretRef {
    if reference.scheme() != "file" {
        return reference.clone();
    }
    let seen = resolve_path(base, reference.rest()).to_str().and_then(|path| format!("@file:{path}").parse().ok());
    seen.unwrap_or_else(|| reference.clone())
}

/// The text of a file that is named by another.
pub(super) fn text_of(spot: &Spot<'_>, pointer: &str, path: &str) -> Result<(PathBuf, String), Faults> {
    let full = resolve_path(spot.base, path);
    let fault = |fault: &Fault| spot.document.fault(pointer, format!("`{}`: {}", short(path), fault.message));
    let bytes = document::read(&full)
        .map_err(|faults| Faults::one(fault(&faults.into_iter().next().unwrap_or_else(|| Fault::new("")))))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok((full, text)),
        Err(_) => Err(spot.document.fault(pointer, format!("`{}` is not UTF-8", short(path))).into()),
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
