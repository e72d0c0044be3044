//! Reading text files.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use async_trait::async_trait;
use rekindle::Json;
use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::builder::{FileToolBuilder, Finish, Parts, spec};
use super::root::For;
use super::{blocking, decode, output};

/// Reads a text file, or some of its lines.
///
/// The result is `{"path", "text", "first_line", "lines", "total_lines", "bytes"}`, with
/// `"truncated": true` if the lines that were asked for were longer than the limit. Of a file that is
/// no text: `{"path", "bytes", "binary": true}`.
#[derive(Clone, Debug)]
pub struct ReadFile(Parts);

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
}

impl ReadFile {
    /// A tool that is not finished, for the files under `root`.
    pub fn builder(root: impl Into<PathBuf>) -> FileToolBuilder<Self> {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the root."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, from 1."},
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read."}
            },
            "required": ["path"],
            "additionalProperties": false
        });
        let spec = spec("read_file", "Reads a text file, or some of its lines.", parameters);
        FileToolBuilder::new(root.into(), spec, ToolOptions::default(), 256 << 10, Finish { make: Self, checks: false })
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.0.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.0.options
    }

    async fn call(&self, _: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let (arguments, root, most) = (decode::<Arguments>(arguments)?, self.0.root.clone(), self.0.max_bytes);
        let read = blocking(move || {
            let place = root.place(&arguments.path, For::Reading)?;
            let (file, bytes) = place.read()?;
            let first = arguments.offset.unwrap_or(1).max(1);
            let last = arguments.limit.map_or(u64::MAX, |limit| first.saturating_add(limit - 1));
            let part = Part::read(file, first, last, most).map_err(|error| format!("`{}`: {error}", place.shown))?;
            Ok(part.into_value(&place.shown, first, bytes))
        });
        Ok(output(read.await?))
    }
}

/// Some lines of a file.
struct Part {
    text: Vec<u8>,
    lines: u64,
    total: u64,
    truncated: bool,
    binary: bool,
}

impl Part {
    /// Reads the lines from `first` to `last`, but no more than `most` bytes of them. The whole file
    /// passes by, a piece at a time, to count its lines.
    fn read(file: File, first: u64, last: u64, most: usize) -> std::io::Result<Self> {
        let mut file = BufReader::with_capacity(64 << 10, file);
        let mut part = Self { text: Vec::new(), lines: 0, total: 0, truncated: false, binary: false };
        let mut at_start = true;
        loop {
            let piece = file.fill_buf()?;
            if piece.is_empty() {
                return Ok(part);
            }
            part.binary |= piece.contains(&0);
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                part.total += u64::from(at_start);
                if (first..=last).contains(&part.total) {
                    part.take(line, at_start, most);
                }
                at_start = line.ends_with(b"\n");
            }
            let count = piece.len();
            file.consume(count);
        }
    }

    fn take(&mut self, line: &[u8], begins: bool, most: usize) {
        let room = if self.truncated { 0 } else { (most - self.text.len()).min(line.len()) };
        self.truncated |= room < line.len();
        self.lines += u64::from(begins && room > 0);
        self.text.extend_from_slice(&line[..room]);
    }

    fn into_value(mut self, path: &str, first: u64, bytes: u64) -> Value {
        if let Err(error) = std::str::from_utf8(&self.text) {
            match self.truncated && error.error_len().is_none() {
                // The limit lies in the middle of a character.
                true => self.text.truncate(error.valid_up_to()),
                false => self.binary = true,
            }
        }
        if self.binary {
            return json!({"path": path, "bytes": bytes, "binary": true});
        }
        let text = String::from_utf8_lossy(&self.text);
        let mut value = json!({
            "path": path, "text": text, "first_line": first, "lines": self.lines,
            "total_lines": self.total, "bytes": bytes
        });
        if self.truncated {
            value["truncated"] = true.into();
        }
        value
    }
}
