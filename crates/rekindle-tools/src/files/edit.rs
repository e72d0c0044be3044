//! Replacing a text in a file.

use std::io::Read as _;
use std::path::PathBuf;

use async_trait::async_trait;
use rekindle::Json;
use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{Checked, Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::builder::{FileToolBuilder, Finish, Parts, spec};
use super::root::{For, Place};
use super::{blocking, decode, lines, output};

/// Replaces a text in a file that occurs in it exactly once. The file is replaced as a whole, so it
/// is the old one or the new one at any time; after a crash it shows which.
///
/// The result is `{"path", "bytes", "lines"}`.
#[derive(Clone, Debug)]
pub struct EditFile(Parts);

#[derive(Clone, Deserialize)]
struct Arguments {
    path: String,
    old: String,
    new: String,
}

impl EditFile {
    /// A tool that is not finished, for the files under `root`.
    pub fn builder(root: impl Into<PathBuf>) -> FileToolBuilder<Self> {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the root."},
                "old": {"type": "string", "minLength": 1, "description": "The text to replace. It must occur exactly once."},
                "new": {"type": "string", "description": "What comes in its place."}
            },
            "required": ["path", "old", "new"],
            "additionalProperties": false
        });
        let spec = spec("edit_file", "Replaces a text in a file.", parameters);
        // Two edits of one file at a time would lose one of them.
        let options = ToolOptions {
            writes: true,
            in_doubt: Some(InDoubtPolicy::Check),
            concurrency: Some(1),
            ..ToolOptions::default()
        };
        FileToolBuilder::new(root.into(), spec, options, 4 << 20, Finish { make: Self, checks: true })
    }

    async fn content(&self, arguments: &Arguments) -> Result<(Place, String), ToolError> {
        let (root, path, most) = (self.0.root.clone(), arguments.path.clone(), self.0.max_bytes);
        blocking(move || {
            let place = root.place(&path, For::Replacing)?;
            let (file, bytes) = place.read()?;
            if bytes > most as u64 {
                return Err(format!("`{}` has {bytes} bytes, more than the {most} allowed", place.shown));
            }
            let mut content = Vec::new();
            let read = file.take(most as u64).read_to_end(&mut content);
            read.map_err(|error| format!("`{}`: {error}", place.shown))?;
            match String::from_utf8(content) {
                Ok(content) => Ok((place, content)),
                Err(_) => Err(format!("`{}` is no text", place.shown)),
            }
        })
        .await
    }
}

#[async_trait]
impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.0.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.0.options
    }

    async fn call(&self, _: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let arguments: Arguments = decode(arguments)?;
        let (place, before) = self.content(&arguments).await?;
        let after = match before.matches(&*arguments.old).count() {
            1 => before.replacen(&*arguments.old, &arguments.new, 1),
            0 => return Err(ToolError::failed(format!("the old text does not occur in `{}`", place.shown))),
            n => {
                return Err(ToolError::failed(format!(
                    "the old text occurs {n} times in `{}`; give more of it",
                    place.shown
                )));
            }
        };
        super::write::check_size(after.len(), self.0.max_bytes)?;
        let written = blocking(move || {
            place.replace(after.as_bytes())?;
            Ok(told(&place, &after))
        });
        Ok(output(written.await?))
    }

    async fn check(&self, _: &ToolContext, arguments: &Json) -> Result<Checked, ToolError> {
        let arguments: Arguments = decode(arguments)?;
        let (place, content) = self.content(&arguments).await?;
        Ok(match happened(&content, &arguments.old, &arguments.new) {
            Some(true) => Checked::Happened(Json::from(told(&place, &content))),
            Some(false) => Checked::DidNotHappen,
            None => Checked::Unknown,
        })
    }
}

fn told(place: &Place, content: &str) -> Value {
    json!({"path": place.shown, "bytes": content.len(), "lines": lines(content)})
}

/// Whether `old` was replaced by `new`, as far as a file shows it.
fn happened(content: &str, old: &str, new: &str) -> Option<bool> {
    // The old text may be part of the new one, so it is looked for beside that.
    let (has_new, beside) = match new.is_empty() {
        true => (false, content.matches(old).count()),
        false => (content.contains(new), content.split(new).map(|part| part.matches(old).count()).sum()),
    };
    match (has_new, beside) {
        (true, 0) => Some(true),
        (false, 1) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_shows_whether_it_was_edited() {
        let check = |content: &str, old: &str, new: &str, expected| {
            assert_eq!(happened(content, old, new), expected, "{content}: {old} -> {new}");
        };
        check("a cat", "cat", "dog", Some(false));
        check("a dog", "cat", "dog", Some(true));
        check("a cat, a dog", "cat", "dog", None);
        check("a cat", "cat", "cat and dog", Some(false));
        check("a cat and dog", "cat", "cat and dog", Some(true));
        check("xx", "x", "xx", Some(true));
        check("x", "x", "xx", Some(false));
        check("a cat and dog, a cat", "cat", "cat and dog", None);
        check("a cat", "cat", "", Some(false));
        check("a ", "cat", "", None);
        check("neither", "cat", "dog", None);
    }
}
