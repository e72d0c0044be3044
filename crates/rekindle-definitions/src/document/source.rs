//! The text of a file, and the lines and columns of what stands in it.

use std::ops::Range;

use crate::fault::{Excerpt, Fault};

/// Where something stands in the text, in bytes.
pub(super) type Span = Range<usize>;

/// The text of a file.
#[derive(Debug)]
pub(super) struct Source {
    name: String,
    text: String,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl Source {
    pub(super) fn new(name: &str, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { name: name.to_owned(), text: text.to_owned(), lines: std::iter::once(0).chain(breaks).collect() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The text of a line, numbered from 0, without its line break.
    pub(super) fn line(&self, number: usize) -> &str {
        let Some(start) = self.lines.get(number) else { return "" };
        let end = self.lines.get(number + 1).copied().unwrap_or(self.text.len());
        self.text[*start..end].trim_end_matches(['\n', '\r'])
    }

    /// Where a line begins, numbered from 0.
    pub(super) fn line_start(&self, number: usize) -> usize {
        self.lines.get(number).copied().unwrap_or(self.text.len())
    }

    /// The line that `byte` is in, numbered from 0.
    pub(super) fn line_of(&self, byte: usize) -> usize {
        self.lines.partition_point(|start| *start <= byte).saturating_sub(1)
    }

    /// The place of a byte that lies so many bytes behind the beginning of a line.
    pub(super) fn byte_at(&self, line: usize, offset: usize) -> usize {
        self.boundary(self.line_start(line).saturating_add(offset))
    }

    /// A fault of the whole file.
    pub(super) fn whole(&self, message: impl Into<String>) -> Fault {
        Fault::new(message).with_file(&self.name)
    }

    /// A fault at `span`.
    pub(super) fn fault(&self, span: &Span, message: impl Into<String>) -> Fault {
        let start = self.boundary(span.start);
        let end = self.boundary(span.end.max(start));
        let line = self.line_of(start);
        let text = self.line(line);
        let from = self.line_start(line);
        let column = self.text[from..start].chars().count();
        // Only what is on the first line is underlined.
        let end = end.min(from + text.len()).max(start);
        let length = self.text[start..end].trim_end().chars().count();
        Fault {
            line: Some(line + 1),
            column: Some(column + 1),
            length,
            excerpt: Some(Excerpt::of(text, column)),
            ..self.whole(message)
        }
    }

    fn boundary(&self, byte: usize) -> usize {
        let byte = byte.min(self.text.len());
        (0..=byte).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, span: Span, expected: (usize, usize, usize)) {
        let fault = Source::new("f", text).fault(&span, "m");
        assert_eq!((fault.line.unwrap(), fault.column.unwrap(), fault.length), expected, "{text:?} {span:?}");
    }

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        check("abc", 1..2, (1, 2, 1));
        check("ä: x\r\nüb: y\r\n", 7..10, (2, 1, 2));
        check("ä: x\r\nüb: y\r\n", 8..11, (2, 1, 3));
        check("a\nb", 3..9, (2, 2, 0));
        check("a: |\n  x\n  y\n", 3..12, (1, 4, 1));
        check("", 0..0, (1, 1, 0));
    }
}
