//! The crates of the workspace: their manifests and the sources that others see.

use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

use toml::Table;

use crate::manifest::{Dependency, dependencies};

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Its package.
    pub name: String,
    /// True if it stands in `crates/`.
    pub published: bool,
    /// True if its manifest says `publish = false`.
    pub says_unpublished: bool,
    /// Its dependencies.
    pub dependencies: Vec<Dependency>,
    /// The files under `src`.
    pub files: Vec<File>,
}

/// A source.
#[derive(Clone, Debug)]
pub struct File {
    /// From the root of the workspace on.
    pub path: String,
    /// The module that it is; none for the root of the crate.
    pub module: Vec<String>,
    /// Its content.
    pub text: String,
}

impl Crate {
    /// A crate without sources. `workspace` is the manifest at the root.
    pub fn new(manifest: &str, workspace: &str, published: bool) -> Result<Self> {
        let (manifest, workspace) = (parse(manifest)?, parse(workspace)?);
        let package = manifest.get("package").ok_or_else(|| Error::other("it has no [package]"))?;
        let name = package.get("name").and_then(toml::Value::as_str);
        Ok(Self {
            name: name.ok_or_else(|| Error::other("its package has no name"))?.to_owned(),
            published,
            says_unpublished: package.get("publish").and_then(toml::Value::as_bool) == Some(false),
            dependencies: dependencies(&manifest, &workspace),
            files: Vec::new(),
        })
    }

    /// The crate with a source more; `path` is that from `src` on.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str) -> Self {
        let module = module_of(Path::new(path));
        self.files.push(File { path: format!("{}/src/{path}", self.name), module, text: text.to_owned() });
        self
    }
}

fn parse(text: &str) -> Result<Table> {
    text.parse().map_err(Error::other)
}

/// Reads every crate under `crates` and `dev`.
pub fn load(root: &Path) -> Result<Vec<Crate>> {
    let workspace = fs::read_to_string(root.join("Cargo.toml"))?;
    let mut crates = Vec::new();
    for (folder, published) in [("crates", true), ("dev", false)] {
        for folder in sorted(&root.join(folder))?.into_iter().filter(|path| path.join("Cargo.toml").is_file()) {
            let context = |error: Error| Error::other(format!("{}: {error}", folder.display()));
            let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
            let mut made = Crate::new(&manifest, &workspace, published).map_err(context)?;
            let source = folder.join("src");
            let mut paths = Vec::new();
            sources(&source, &mut paths).map_err(context)?;
            for path in paths {
                let module = module_of(path.strip_prefix(&source).unwrap_or(&path));
                let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                made.files.push(File { path: shown, module, text: fs::read_to_string(&path)? });
            }
            crates.push(made);
        }
    }
    Ok(crates)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    Ok(paths)
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for path in sorted(folder)? {
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The module that a file under `src` is.
fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_root = module.len() == 1 && module.iter().all(|name| name == "lib" || name == "main");
    if is_root || module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    module
}
