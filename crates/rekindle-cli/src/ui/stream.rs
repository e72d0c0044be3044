//! A JSON document whose list may be longer than memory: written item by item.

use std::io::{self, Write as _};

use serde::Serialize;
use serde_json::{Map, Value};

/// A document with one list under way, on standard output.
#[derive(Debug)]
pub struct Stream {
    begun: bool,
}

impl Stream {
    /// Begins a document whose list has that name.
    pub fn begin(name: &str) -> io::Result<Self> {
        let mut out = io::stdout().lock();
        write!(out, "{{\n  {}: [", Value::from(name))?;
        Ok(Self { begun: false })
    }

    /// One more item of the list.
    pub fn item<T: Serialize>(&mut self, item: &T) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(if self.begun { b",\n    " } else { b"\n    " })?;
        self.begun = true;
        serde_json::to_writer(&mut out, item).map_err(io::Error::from)
    }

    /// Ends the list and the document, with more fields behind the list.
    pub fn end(self, fields: &Map<String, Value>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(if self.begun { b"\n  ]" } else { b"]" })?;
        for (name, value) in fields {
            write!(out, ",\n  {}: {value}", Value::from(name.as_str()))?;
        }
        writeln!(out, "\n}}")
    }
}
