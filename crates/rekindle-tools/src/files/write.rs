//! Writing whole files.

use std::path::PathBuf;

use async_trait::async_trait;
use rekindle::Json;
use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::json;

use super::builder::{FileToolBuilder, Finish, Parts, spec};
use super::root::For;
use super::{blocking, decode, lines, output};

/// Writes a whole text file: it is there with all of its content, durably, or not at all. Directories
/// that are missing are made. Writing the same content again is the same, so a call in doubt is
/// repeated.
///
/// The result is `{"path", "bytes", "lines"}`.
#[derive(Clone, Debug)]
pub struct WriteFile(Parts);

#[derive(Deserialize)]
struct Arguments {
    path: String,
    content: String,
}

impl WriteFile {
    /// A tool that is not finished, for the files under `root`.
    pub fn builder(root: impl Into<PathBuf>) -> FileToolBuilder<Self> {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the root."},
                "content": {"type": "string", "description": "All of its new content."}
            },
            "required": ["path", "content"],
            "additionalProperties": false
        });
        let spec = spec("write_file", "Writes a text file, in place of one that is there.", parameters);
        let options = ToolOptions { writes: true, in_doubt: Some(InDoubtPolicy::Idempotent), ..ToolOptions::default() };
        FileToolBuilder::new(root.into(), spec, options, 4 << 20, Finish { make: Self, checks: false })
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.0.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.0.options
    }

    async fn call(&self, _: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let (arguments, root) = (decode::<Arguments>(arguments)?, self.0.root.clone());
        check_size(arguments.content.len(), self.0.max_bytes)?;
        let written = blocking(move || {
            let place = root.place(&arguments.path, For::Creating)?;
            place.replace(arguments.content.as_bytes())?;
            let content = &arguments.content;
            Ok(json!({"path": place.shown, "bytes": content.len(), "lines": lines(content)}))
        });
        Ok(output(written.await?))
    }
}

/// An error if that is more than may be written.
pub(super) fn check_size(bytes: usize, most: usize) -> Result<(), ToolError> {
    match bytes > most {
        true => Err(ToolError::failed(format!("the file would have {bytes} bytes, more than the {most} allowed"))),
        false => Ok(()),
    }
}
