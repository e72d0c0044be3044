//! What the binary is made of: licences that may be passed on, and no crate that was decided against.

use std::process::Command;

use serde_json::Value;

/// Licences whose terms this project can keep. One of the alternatives of a crate must be here.
const LICENCES: [&str; 12] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "CDLA-Permissive-2.0",
    "Unicode-3.0",
];

/// A second TLS stack, C libraries that need more than a compiler, and what is no longer kept.
const BANNED: [&str; 5] = ["openssl-sys", "aws-lc-sys", "native-tls", "serde_yaml", "bincode"];

#[test]
fn every_dependency_may_be_used() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100);
    let wrong = |package: &&Value| {
        let licence = package["license"].as_str().unwrap_or_default();
        !is_allowed(licence) || BANNED.contains(&package["name"].as_str().unwrap())
    };
    let wrong: Vec<_> = packages.iter().filter(wrong).map(|package| (&package["name"], &package["license"])).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Whether one of the alternatives can be kept, and of it every part.
fn is_allowed(licence: &str) -> bool {
    let bare = licence.replace(['(', ')'], "").replace('/', " OR ");
    // `A AND (B OR C)` is read as it stands: every part of the `AND` must have an alternative.
    bare.split(" AND ").all(|part| part.split(" OR ").any(|name| LICENCES.contains(&name.trim())))
}

#[test]
fn licences_are_read() {
    assert!(is_allowed("MIT OR GPL-3.0"));
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(is_allowed("Unlicense/MIT"));
    assert!(!is_allowed("GPL-3.0-only"));
    assert!(!is_allowed("MIT AND GPL-3.0-only"));
    assert!(!is_allowed(""));
}
