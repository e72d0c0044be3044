//! Links and pictures of a document that lead to files of this project.

use std::path::Path;

/// The links that lead nowhere. `folder` is the one the document is in.
pub fn faults(document: &str, folder: &Path) -> Vec<String> {
    targets(document)
        .into_iter()
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .filter(|target| {
            let file = target.split('#').next().unwrap_or_default();
            !folder.join(file).exists()
        })
        .map(|target| format!("`{target}` leads nowhere"))
        .collect()
}

/// What stands in brackets behind `](`, outside of blocks.
fn targets(document: &str) -> Vec<&str> {
    let mut code = false;
    let mut found = Vec::new();
    for line in document.lines() {
        code ^= line.trim_start().starts_with("```");
        let behind = line.split("](").skip(1).filter(|_| !code);
        found.extend(behind.filter_map(|rest| rest.split_once(')').map(|(target, _)| target)));
    }
    found
}

#[test]
fn links_are_found_outside_of_blocks() {
    assert_eq!(targets("[a](b.md) ![c](d.svg)\n```\n[x](y)\n```\n[e](f#g)"), ["b.md", "d.svg", "f#g"]);
    assert_eq!(faults("[a](nowhere.md) [b](https://a.b) [c](#d)", Path::new(".")), ["`nowhere.md` leads nowhere"]);
}
