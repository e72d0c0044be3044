//! Listing directories.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use async_trait::async_trait;
use rekindle::Json;
use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rustix::fs::{AtFlags, Dir, FileType};
use serde::Deserialize;
use serde_json::{Value, json};

use super::builder::{FileToolBuilder, Finish, Parts, spec};
use super::root::{is_temporary, kind, open_directory};
use super::{blocking, decode, output};

/// The most entries that are listed.
const MAX_ENTRIES: usize = 2_000;
/// How deep directories are walked.
const MAX_DEPTH: usize = 32;

/// Lists a directory, or with `recursive` everything below it. Links are listed, not followed.
///
/// The result is `{"path", "entries": [{"path", "kind", "bytes"}]}`, in the order of their paths, with
/// `"truncated": true` if there is more. The kind is `file`, `directory`, `link` or `other`.
#[derive(Clone, Debug)]
pub struct ListFiles(Parts);

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    recursive: bool,
}

impl ListFiles {
    /// A tool that is not finished, for the files under `root`.
    pub fn builder(root: impl Into<PathBuf>) -> FileToolBuilder<Self> {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The directory, relative to the root; the root itself without it."},
                "recursive": {"type": "boolean", "description": "Whether to list what is below its directories too."}
            },
            "additionalProperties": false
        });
        let spec = spec("list_files", "Lists the files and directories in a directory.", parameters);
        FileToolBuilder::new(root.into(), spec, ToolOptions::default(), 256 << 10, Finish { make: Self, checks: false })
    }
}

#[async_trait]
impl Tool for ListFiles {
    fn spec(&self) -> &ToolSpec {
        &self.0.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.0.options
    }

    async fn call(&self, _: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let (arguments, root, most) = (decode::<Arguments>(arguments)?, self.0.root.clone(), self.0.max_bytes);
        let listed = blocking(move || {
            let path = arguments.path.as_deref().unwrap_or(".");
            let directory = root.directory(path)?;
            let mut listing = Listing { entries: Vec::new(), bytes: 0, most, truncated: false };
            let depth = if arguments.recursive { MAX_DEPTH } else { 1 };
            listing.add(&directory, "", depth).map_err(|error| format!("`{path}`: {error}"))?;
            Ok(listing.into_value(path))
        });
        Ok(output(listed.await?))
    }
}

struct Listing {
    entries: Vec<Value>,
    bytes: usize,
    most: usize,
    truncated: bool,
}

impl Listing {
    /// Adds what is in a directory, and below it as deep as that.
    fn add(&mut self, directory: &OwnedFd, before: &str, depth: usize) -> std::io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." && !is_temporary(&name) {
                names.push(name);
            }
        }
        names.sort_unstable();
        for name in names {
            // It may be gone by now, or have a name that is no text.
            let Ok(stat) = rustix::fs::statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = format!("{before}{name}");
            if !self.push(&path, kind(&stat), stat.st_size) {
                return Ok(());
            }
            if kind(&stat) == FileType::Directory
                && depth > 1
                && let Ok(inner) = open_directory(directory, &name)
            {
                self.add(&inner, &format!("{path}/"), depth - 1)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, path: &str, kind: FileType, bytes: i64) -> bool {
        self.bytes += path.len();
        if self.entries.len() >= MAX_ENTRIES || self.bytes > self.most {
            self.truncated = true;
        }
        if !self.truncated {
            self.entries.push(match kind {
                FileType::RegularFile => json!({"path": path, "kind": "file", "bytes": bytes}),
                FileType::Directory => json!({"path": path, "kind": "directory"}),
                FileType::Symlink => json!({"path": path, "kind": "link"}),
                _ => json!({"path": path, "kind": "other"}),
            });
        }
        !self.truncated
    }

    fn into_value(self, path: &str) -> Value {
        let mut value = json!({"path": path, "entries": self.entries});
        if self.truncated {
            value["truncated"] = true.into();
        }
        value
    }
}
