//! JSON: serde_json says whether it is right, a small scanner where everything stands.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::scalar;
use super::source::{Source, Span};
use super::tree::{Content, Count, DEEPEST, Key, Node, too_deep};
use crate::fault::Faults;

pub(super) fn parse(source: &Source) -> Result<Node, Faults> {
    // Reads over the text without recursion, so depth does not matter yet.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(source.text()) {
        return Err(syntax(source, &error));
    }
    let mut scanner = Scanner { source, text: source.text().as_bytes(), at: 0, count: Count::default() };
    scanner.value(0)
}

fn syntax(source: &Source, error: &serde_json::Error) -> Faults {
    let byte = source.byte_at(error.line().saturating_sub(1), error.column().saturating_sub(1));
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    source.fault(&(byte..byte + 1), format!("this is not JSON: {what}")).into()
}

/// Walks over text that is known to be JSON.
struct Scanner<'a> {
    source: &'a Source,
    text: &'a [u8],
    at: usize,
    count: Count,
}

impl Scanner<'_> {
    fn value(&mut self, depth: usize) -> Result<Node, Faults> {
        self.space();
        let start = self.at;
        let opens = matches!(self.peek(), Some(b'[' | b'{'));
        if opens && depth == DEEPEST {
            return Err(too_deep(self.source, &(start..start)).into());
        }
        self.count.add(1, self.source, &(start..start + 1))?;
        let content = match self.peek() {
            Some(b'[') => Content::List(self.list(depth)?),
            Some(b'{') => Content::Map(self.map(depth)?),
            Some(b'"') => Content::Scalar(Value::String(self.string()?)),
            _ => Content::Scalar(self.word()?),
        };
        Ok(Node { span: start..self.at, content })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Faults> {
        let mut items = Vec::new();
        while self.goes_on(b']') {
            items.push(self.value(depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, Faults> {
        let mut entries = Vec::new();
        while self.goes_on(b'}') {
            let start = self.at;
            let name = self.string()?;
            let key = Key { name, span: start..self.at };
            self.space();
            self.at += 1; // the colon
            entries.push((key, self.value(depth + 1)?));
        }
        Ok(entries)
    }

    /// Steps over an opening bracket or a comma; whether another item follows.
    fn goes_on(&mut self, end: u8) -> bool {
        self.space();
        if self.peek() == Some(end) {
            self.at += 1;
            return false;
        }
        self.at += 1;
        self.space();
        if self.peek() == Some(end) {
            self.at += 1;
            return false;
        }
        true
    }

    fn string(&mut self) -> Result<String, Faults> {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek().filter(|byte| *byte != b'"') {
            self.at += if byte == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        let span = start..self.at.min(self.text.len());
        let text = self.slice(&span);
        serde_json::from_str(text).map_err(|_| self.source.fault(&span, "this is no legal text of JSON").into())
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<Value, Faults> {
        let start = self.at;
        while self.peek().is_some_and(|byte| !matches!(byte, b',' | b']' | b'}') && !byte.is_ascii_whitespace()) {
            self.at += 1;
        }
        let span = start..self.at;
        let text = self.slice(&span);
        let value = match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "null" => Ok(Value::Null),
            _ if text.contains(['.', 'e', 'E']) => scalar::float(text),
            _ => scalar::whole(text, 10, text),
        };
        value.map_err(|why| self.source.fault(&span, why).into())
    }

    fn slice(&self, span: &Span) -> &str {
        self.source.text().get(span.clone()).unwrap_or_default()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}
