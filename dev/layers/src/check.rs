//! Applies the rules to crates that were read.

use std::collections::HashMap;

use crate::manifest::Section;
use crate::rules::{CRATES, PROTOCOLS, STORE_ITEMS, UPPER};
use crate::source::{Found, paths};
use crate::workspace::{Crate, File};

/// Returns everything that breaks a rule, each with its place.
pub fn check(crates: &[Crate]) -> Vec<String> {
    let mut faults = Vec::new();
    for checked in crates {
        match (checked.published, CRATES.iter().find(|(name, _)| *name == checked.name)) {
            (true, Some((_, allowed))) => {
                manifest(checked, crates, allowed, &mut faults);
                sources(checked, crates, allowed, &mut faults);
            }
            (true, None) => {
                faults.push(format!("{}: it stands in no layer; give it a line in `rules::CRATES`", checked.name));
            }
            (false, _) if !checked.says_unpublished => {
                faults.push(format!("{}: it stands in dev/ and must say `publish = false`", checked.name));
            }
            (false, _) => {}
        }
    }
    faults
}

fn manifest(checked: &Crate, crates: &[Crate], allowed: &[&str], faults: &mut Vec<String>) {
    let mut fault = |what: String| faults.push(format!("{}: Cargo.toml: {what}", checked.name));
    if checked.says_unpublished {
        fault("it is not published, so it belongs into dev/".into());
    }
    for dependency in &checked.dependencies {
        let package = dependency.package.as_str();
        if let Some(users) = protocol(&package.replace('-', "_"), &checked.name) {
            fault(format!("only {users} may depend on {package}"));
        }
        let Some(ours) = crates.iter().find(|other| other.name == package) else { continue };
        match (ours.published, dependency.section) {
            (true, Section::Dev) => {}
            (true, _) if allowed.contains(&package) => {}
            (true, _) => fault(format!("it may not depend on {package}")),
            (false, Section::Dev) if !dependency.has_version => {}
            (false, Section::Dev) => fault(format!("{package} is not published: name it by path, without a version")),
            (false, _) => fault(format!("{package} is not published: only tests may use it")),
        }
    }
}

fn sources(checked: &Crate, crates: &[Crate], allowed: &[&str], faults: &mut Vec<String>) {
    let names = re_exports(checked);
    for file in &checked.files {
        for found in paths(&file.text, &file.module) {
            let mut fault = |what: String| faults.push(format!("{}:{}: {what}", file.path, found.line));
            if let Some(other) = crates.iter().find(|other| found.path[0] == other.name.replace('-', "_")) {
                // Dev-dependencies are there for tests alone; the compiler sees to that.
                let tests =
                    checked.dependencies.iter().any(|dev| dev.package == other.name && dev.section == Section::Dev);
                if other.name != checked.name && !tests && !allowed.contains(&other.name.as_str()) {
                    fault(format!("{} may not use {}", checked.name, other.name));
                }
                let item = found.path.get(1).map_or("*", String::as_str);
                if (checked.name.as_str(), other.name.as_str()) == ("rekindle", "rekindle-store")
                    && !STORE_ITEMS.contains(&item)
                {
                    fault(format!("the engine sees stores through the traits of rekindle-core, not `{item}`"));
                }
            }
            for name in &found.path {
                if let Some(users) = protocol(name, &checked.name) {
                    fault(format!("only {users} may name `{name}`"));
                }
            }
            for what in above(&checked.name, file, &found, &names) {
                fault(what);
            }
        }
    }
}

/// Returns the crates that may name a protocol, if `name` is one and `user` is none of them.
fn protocol(name: &str, user: &str) -> Option<String> {
    let protocol = PROTOCOLS.iter().find(|protocol| protocol.names.contains(&name))?;
    (!protocol.crates.contains(&user)).then(|| protocol.crates.join(", "))
}

/// Names that the root of a crate gives to items of its modules, with their paths.
fn re_exports(checked: &Crate) -> HashMap<String, Vec<String>> {
    let root = checked.files.iter().filter(|file| file.module.is_empty());
    let found = root.flat_map(|file| paths(&file.text, &[])).filter(|found| found.module.is_empty());
    found
        .filter_map(|found| {
            let path = found.absolute().unwrap_or_else(|| found.beside());
            found.name.filter(|_| path.len() > 2).map(|name| (name, path))
        })
        .collect()
}

/// Faults of a path that leads to a module above the one it is written in.
fn above(within: &str, file: &File, found: &Found, names: &HashMap<String, Vec<String>>) -> Vec<String> {
    let rules = || UPPER.iter().filter(|rule| rule.within == within);
    if file.module.is_empty() || rules().next().is_none() {
        return Vec::new();
    }
    let path = found.absolute().unwrap_or_else(|| found.beside());
    if path == ["crate", "*"] {
        return vec!["everything of the crate: name what is used".into()];
    }
    let path = path.get(1).and_then(|name| names.get(name)).unwrap_or(&path);
    let broken = rules()
        .filter(|rule| is_in(&path[1..], rule.module) && !rule.users.iter().any(|user| is_in(&file.module, user)));
    broken.map(|rule| format!("only {} may use `{}`", rule.users.join(", "), rule.module)).collect()
}

/// Returns true if a path leads into a module.
fn is_in(path: &[String], module: &str) -> bool {
    let segments: Vec<&str> = module.split("::").collect();
    path.len() >= segments.len() && path.iter().zip(segments).all(|(found, wanted)| found == wanted)
}
