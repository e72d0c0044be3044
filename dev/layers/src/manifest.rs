//! Dependencies as manifests name them.

use toml::{Table, Value};

/// Where a manifest names a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[dependencies]`, also those of a platform.
    Normal,
    /// `[dev-dependencies]`.
    Dev,
    /// `[build-dependencies]`.
    Build,
}

/// A dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Name of the package, whatever it is called here.
    pub package: String,
    /// Where it is named.
    pub section: Section,
    /// True if a version is given, here or in the workspace. `cargo package` drops dev-dependencies without one.
    pub has_version: bool,
}

const SECTIONS: [(&str, Section); 3] =
    [("dependencies", Section::Normal), ("dev-dependencies", Section::Dev), ("build-dependencies", Section::Build)];

/// Lists the dependencies of a manifest; `workspace` is the manifest at the root.
pub(crate) fn dependencies(manifest: &Table, workspace: &Table) -> Vec<Dependency> {
    let shared = workspace.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|targets| targets.values());
    let tables = std::iter::once(manifest).chain(platforms.filter_map(Value::as_table));
    let mut found = Vec::new();
    for table in tables {
        for (key, section) in SECTIONS {
            for (name, entry) in table.get(key).and_then(Value::as_table).into_iter().flatten() {
                let inherits = entry.get("workspace").is_some();
                let entry = shared.and_then(|shared| shared.get(name)).filter(|_| inherits).unwrap_or(entry);
                let package = entry.get("package").and_then(Value::as_str).unwrap_or(name);
                let has_version = entry.is_str() || entry.get("version").is_some();
                found.push(Dependency { package: package.to_owned(), section, has_version });
            }
        }
    }
    found
}
