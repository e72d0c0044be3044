//! What the tests share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rekindle::{Error, Result, Secret, SecretRef, SecretSource};
use rekindle_definitions::{Built, Definition, Fault, Faults, Format};

/// Secrets by the name of a variable.
#[derive(Debug, Default)]
pub struct Variables(pub BTreeMap<String, String>);

impl SecretSource for Variables {
    fn resolve(&self, reference: &SecretRef) -> Result<Secret> {
        let found = self.0.get(reference.rest()).filter(|_| reference.scheme() == "env");
        found.map(Secret::new).ok_or_else(|| Error::not_found(format!("`{}` is not set", reference.as_str())))
    }
}

/// A directory with files in it.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }
}

/// The environment commands need to be found.
pub fn environment() -> Vec<(String, String)> {
    ["PATH", "HOME"].into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect()
}

/// Builds a definition with the usual environment and no secrets.
pub async fn build(definition: Definition) -> Result<Built, Faults> {
    definition.builder().environment(environment()).secrets(Arc::new(Variables::default())).build().await
}

/// The faults of a YAML file that cannot be read.
pub fn refused(text: &str) -> Faults {
    refused_as("f.yaml", text, Format::Yaml)
}

pub fn refused_as(name: &str, text: &str, format: Format) -> Faults {
    match Definition::parse(name, text, format) {
        Ok(_) => panic!("it was read: {text}"),
        Err(faults) => faults,
    }
}

/// The faults of a YAML file that is read but cannot be built.
pub async fn unbuildable(text: &str) -> Faults {
    match build(Definition::parse("f.yaml", text, Format::Yaml).unwrap()).await {
        Ok(_) => panic!("it was built: {text}"),
        Err(faults) => faults,
    }
}

/// The only fault; its one-line form.
pub fn only(faults: &Faults) -> &Fault {
    assert_eq!(faults.len(), 1, "{faults}");
    faults.iter().next().unwrap()
}

/// Checks place, message and hint of the first fault.
#[track_caller]
pub fn check(faults: &Faults, place: (usize, usize), message: &str, hint: &str) {
    let fault = faults.iter().next().unwrap();
    assert_eq!((fault.line, fault.column), (Some(place.0), Some(place.1)), "{faults}");
    assert!(fault.message.contains(message), "{faults}");
    assert!(fault.hint.as_deref().unwrap_or_default().contains(hint), "{faults}");
    // Drawing never fails.
    assert!(faults.excerpts().contains("error: "));
}
