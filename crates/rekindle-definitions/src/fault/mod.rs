//! What is wrong with a file, each fault with its place and what to do about it. How faults are
//! drawn stands in `render`; what finds them stands elsewhere.

mod excerpt;
mod render;

use std::fmt;

pub(crate) use excerpt::Excerpt;

/// The longest message; what is longer is cut, as parts of it may come from the file.
const LONGEST: usize = 600;
/// How many faults are told.
const MOST: usize = 100;

/// Something that is wrong with a file.
///
/// ```
/// use rekindle_definitions::{Definition, Format};
///
/// let text = "name: guide\nmodel: openai/gpt-5\npromt: hello\n";
/// let faults = Definition::parse("agent.yaml", text, Format::Yaml).unwrap_err();
/// let fault = faults.iter().next().unwrap();
/// assert_eq!((fault.line, fault.column), (Some(3), Some(1)));
/// assert!(fault.to_string().starts_with("agent.yaml:3:1: unknown key `promt`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// What is wrong.
    pub message: String,
    /// The file, as it was named when it was read.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column, from 1, in characters.
    pub column: Option<usize>,
    /// How many characters it is about; 0 if that is not known.
    pub length: usize,
    /// The field, e.g. `steps[3].dependencies[0]`; empty for the whole file.
    pub path: String,
    /// What to do about it.
    pub hint: Option<String>,
    pub(crate) excerpt: Option<Excerpt>,
}

impl Fault {
    /// A fault without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: shown(&message.into()),
            file: None,
            line: None,
            column: None,
            length: 0,
            path: String::new(),
            hint: None,
            excerpt: None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(shown(&hint.into()));
        self
    }

    /// The file it is in.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(shown(&file.into()));
        self
    }

    /// It for people, over several lines: the message, the place, the line with what is meant
    /// underlined, and the hint. Plain text without colours.
    pub fn render(&self) -> String {
        render::render(self)
    }

    pub(crate) fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = shown(&path.into());
        self
    }

    /// Without the line of the file: it may hold a secret.
    pub(crate) fn without_excerpt(mut self) -> Self {
        self.excerpt = None;
        self
    }

    /// Where it is, as far as that is known: `agent.yaml:12:5`.
    fn place(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => Some(format!("{file}:{line}:{column}")),
            (Some(line), None) => Some(format!("{file}:{line}")),
            _ => Some(file.to_owned()),
        }
    }
}

impl fmt::Display for Fault {
    /// One line: place, message and hint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a file and those it refers to; at least one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// A single one.
    pub fn one(fault: Fault) -> Self {
        Self(vec![fault])
    }

    /// The faults, in the order they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.0.iter()
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Every fault with its line of the file, as [`Fault::render`] draws it.
    pub fn excerpts(&self) -> String {
        self.0.iter().map(Fault::render).collect::<Vec<_>>().join("\n\n")
    }
}

impl fmt::Display for Faults {
    /// A line for each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self::one(fault)
    }
}

impl From<Faults> for rekindle::Error {
    fn from(faults: Faults) -> Self {
        let more = faults.len().saturating_sub(1);
        let first = faults.0.first();
        let message = first.map_or_else(String::new, |fault| {
            let bare = Fault { hint: None, ..fault.clone() };
            if more > 0 { format!("{bare}, and {more} more") } else { bare.to_string() }
        });
        let error = Self::invalid(message);
        match first.and_then(|fault| fault.hint.clone()) {
            Some(hint) => error.hint(hint).because(faults),
            None => error.because(faults),
        }
    }
}

impl IntoIterator for Faults {
    type Item = Fault;
    type IntoIter = std::vec::IntoIter<Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Fault;
    type IntoIter = std::slice::Iter<'a, Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Faults that are being gathered: there may be none yet.
#[derive(Debug, Default)]
pub(crate) struct Gathered(Vec<Fault>);

impl Gathered {
    pub(crate) fn add(&mut self, fault: Fault) {
        // Once is enough: some things are looked at twice. A file may be made to have a fault in every
        // word, so they are not all kept.
        if self.0.len() < MOST && !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    pub(crate) fn add_all(&mut self, faults: Faults) {
        faults.into_iter().for_each(|fault| self.add(fault));
    }

    /// The value, or nothing and its faults gathered.
    pub(crate) fn take<T>(&mut self, result: Result<T, Faults>) -> Option<T> {
        result.map_err(|faults| self.add_all(faults)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether no more are kept: looking for others is of no use.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    pub(crate) fn settle(self) -> Result<(), Faults> {
        if self.0.is_empty() { Ok(()) } else { Err(Faults(self.0)) }
    }
}

/// Text from a file as it may be shown: without control characters, and not too long.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(LONGEST));
    for (number, c) in text.chars().enumerate() {
        if number == LONGEST {
            out.push('…');
            break;
        }
        match c.is_control() || is_invisible(c) {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out
}

/// A name from a file, cut so that a message stays readable.
pub(crate) fn short(name: &str) -> String {
    match name.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Characters that change how the text around them is drawn.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
