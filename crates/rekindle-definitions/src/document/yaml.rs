//! YAML: the events of the parser become a tree. Aliases and merge keys are written out, within
//! limits.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marked, StrInput, Tag};
use serde_json::Value;

use super::scalar;
use super::source::{Source, Span};
use super::tree::{Content, Count, DEEPEST, Key, Node, too_deep};
use crate::fault::{Fault, Faults, short};

pub(super) fn parse(source: &Source) -> Result<Node, Faults> {
    let mut reader = Reader::new(source);
    let mut parser = Parser::new_from_str(source.text());
    reader.document(&mut parser)
}

type Events<'a> = Parser<'a, StrInput<'a>>;

struct Reader<'a> {
    source: &'a Source,
    /// Where each character begins, if some of them are longer than a byte.
    characters: Option<Vec<usize>>,
    count: Count,
    /// What anchors stand for; nothing while it is still being read.
    anchors: HashMap<usize, Option<Anchored>>,
}

/// What an anchor stands for, with how many values it holds and how deeply they nest.
struct Anchored {
    node: Node,
    values: usize,
    height: usize,
}

/// A list or a mapping that is being read.
enum Open {
    List { anchor: usize, start: usize, items: Vec<Node> },
    Map { anchor: usize, start: usize, entries: Vec<(Key, Node)>, key: Option<MapKey>, merges: Vec<Node> },
}

/// The key whose value comes next.
enum MapKey {
    Named(Key),
    Merge,
}

impl<'a> Reader<'a> {
    fn new(source: &'a Source) -> Self {
        let text = source.text();
        let characters = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { source, characters, count: Count::default(), anchors: HashMap::new() }
    }

    fn document(&mut self, parser: &mut Events<'a>) -> Result<Node, Faults> {
        let mut stack: Vec<Open> = Vec::new();
        let mut root: Option<Node> = None;
        while let Some(event) = parser.next_event() {
            let (event, marked) = event.map_err(|error| self.syntax(&error))?;
            let span = self.span(&marked);
            match event {
                Event::DocumentStart(_) if root.is_some() => {
                    let fault = self.source.fault(&span, "a second document begins here");
                    return Err(fault.with_hint("a file holds one document: write the other into its own file").into());
                }
                Event::StreamEnd => break,
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                event => {
                    if let Some(node) = self.step(event, span, &mut stack)? {
                        root = Some(node);
                    }
                }
            }
        }
        root.ok_or_else(|| self.source.whole("the file is empty").into())
    }

    /// One event of the content; the whole of it once it is complete.
    fn step(&mut self, event: Event<'_>, span: Span, stack: &mut Vec<Open>) -> Result<Option<Node>, Faults> {
        if stack.len() == DEEPEST && matches!(event, Event::SequenceStart(..) | Event::MappingStart(..)) {
            return Err(too_deep(self.source, &span).into());
        }
        let done = match event {
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(Open::Map { key, .. }) = stack.last_mut().filter(|open| open.wants_key()) {
                    *key = Some(self.key(&text, style, span)?);
                    return Ok(None);
                }
                self.count.add(1, self.source, &span)?;
                let value = value(&text, style, tag.as_deref()).map_err(|why| self.source.fault(&span, why))?;
                let node = Node::scalar(value, span);
                self.keep(anchor, &node)?;
                node
            }
            Event::Alias(anchor) => {
                self.check_key(stack, &span)?;
                self.alias(anchor, span, stack.len())?
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(anchor, tag, &span, stack)?;
                stack.push(Open::List { anchor, start: span.start, items: Vec::new() });
                return Ok(None);
            }
            Event::MappingStart(anchor, tag) => {
                self.begin(anchor, tag, &span, stack)?;
                stack.push(Open::Map { anchor, start: span.start, entries: Vec::new(), key: None, merges: Vec::new() });
                return Ok(None);
            }
            _ => match stack.pop() {
                Some(open) => self.close(open, span.end)?,
                None => return Ok(None),
            },
        };
        self.put(done, stack)
    }

    /// A list or a mapping begins.
    fn begin(&mut self, anchor: usize, tag: Option<Cow<'_, Tag>>, span: &Span, stack: &[Open]) -> Result<(), Faults> {
        self.check_key(stack, span)?;
        self.count.add(1, self.source, span)?;
        if anchor > 0 {
            self.anchors.insert(anchor, None);
        }
        match tag.filter(|tag| !(is_core(tag) && matches!(tag.suffix.as_str(), "map" | "seq"))) {
            Some(tag) => {
                Err(self.source.fault(span, format!("the tag `{}` is not known here", short_tag(&tag))).into())
            }
            None => Ok(()),
        }
    }

    /// An error if a key should stand here: what begins is none.
    fn check_key(&self, stack: &[Open], span: &Span) -> Result<(), Faults> {
        match stack.last().is_some_and(Open::wants_key) {
            true => {
                let fault = self.source.fault(span, "a key must be plain text, no list, mapping or alias");
                Err(fault.with_hint("if this is a value that begins with `{`, `[` or `*`, put it in quotes").into())
            }
            false => Ok(()),
        }
    }

    fn key(&self, text: &str, style: ScalarStyle, span: Span) -> Result<MapKey, Faults> {
        if style == ScalarStyle::Plain && text == "<<" {
            return Ok(MapKey::Merge);
        }
        if text.is_empty() && style == ScalarStyle::Plain {
            return Err(self.source.fault(&span, "there is no key here").into());
        }
        Ok(MapKey::Named(Key { name: text.to_owned(), span }))
    }

    fn put(&mut self, node: Node, stack: &mut [Open]) -> Result<Option<Node>, Faults> {
        match stack.last_mut() {
            None => return Ok(Some(node)),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, merges, .. }) => match key.take() {
                Some(MapKey::Named(key)) => entries.push((key, node)),
                Some(MapKey::Merge) => merges.push(node),
                None => return Err(self.source.fault(&node.span, "there is no key for this value").into()),
            },
        }
        Ok(None)
    }

    fn close(&mut self, open: Open, end: usize) -> Result<Node, Faults> {
        let (anchor, node) = match open {
            Open::List { anchor, start, items } => {
                (anchor, Node { span: start..end.max(start), content: Content::List(items) })
            }
            Open::Map { anchor, start, mut entries, merges, .. } => {
                self.merge(&mut entries, merges)?;
                (anchor, Node { span: start..end.max(start), content: Content::Map(entries) })
            }
        };
        self.keep(anchor, &node)?;
        Ok(node)
    }

    fn keep(&mut self, anchor: usize, node: &Node) -> Result<(), Faults> {
        if anchor > 0 {
            let (values, height) = node.measure();
            // A copy is kept, so it counts too.
            self.count.add(values, self.source, &node.span)?;
            self.anchors.insert(anchor, Some(Anchored { node: node.clone(), values, height }));
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Span, depth: usize) -> Result<Node, Faults> {
        let anchored = match self.anchors.get(&anchor) {
            Some(Some(anchored)) => anchored,
            Some(None) => return Err(self.source.fault(&span, "this alias stands for something it is part of").into()),
            None => return Err(self.source.fault(&span, "there is no anchor of that name").into()),
        };
        if depth + anchored.height > DEEPEST {
            return Err(too_deep(self.source, &span).into());
        }
        self.count.add(anchored.values, self.source, &span)?;
        // What is inside keeps the places where it was written.
        Ok(Node { span, content: anchored.node.content.clone() })
    }

    /// Adds what is merged in: what the mapping says itself counts, then what was named first.
    fn merge(&mut self, entries: &mut Vec<(Key, Node)>, merges: Vec<Node>) -> Result<(), Faults> {
        let mut known: HashSet<String> = entries.iter().map(|(key, _)| key.name.clone()).collect();
        for merged in merges {
            let span = merged.span.clone();
            let sources = match merged.content {
                Content::List(items) => items,
                content => vec![Node { span: span.clone(), content }],
            };
            for one in sources {
                let Content::Map(fields) = one.content else {
                    return Err(self.source.fault(&span, "`<<` takes a mapping or a list of mappings").into());
                };
                entries.extend(fields.into_iter().filter(|(key, _)| known.insert(key.name.clone())));
            }
        }
        Ok(())
    }

    fn span(&self, marked: &Marked) -> Span {
        let byte = |index: usize| match &self.characters {
            Some(characters) => characters.get(index).copied().unwrap_or(self.source.text().len()),
            None => index.min(self.source.text().len()),
        };
        byte(marked.start.index())..byte(marked.end.index())
    }

    /// What the parser could not read. Tabs are behind most of what is hard to see.
    fn syntax(&self, error: &ScanError) -> Fault {
        let line = error.marker().line().saturating_sub(1);
        // The parser may notice it before or behind the line; if it names a tab, further behind.
        let behind = if error.info().contains("tab") { 50 } else { 0 };
        for number in (line..=line + behind).chain(line.checked_sub(1)) {
            let text = self.source.line(number);
            let indentation = &text[..text.len() - text.trim_start().len()];
            if let Some(tab) = indentation.find('\t').filter(|_| !text.trim_start().is_empty()) {
                let at = self.source.line_start(number) + tab;
                let fault = self.source.fault(&(at..at + 1), "YAML does not allow tabs for indentation");
                return fault.with_hint("indent with spaces");
            }
        }
        let place = self.span(&Marked::new(*error.marker(), *error.marker()));
        if error.info().contains("recursion limit") {
            return too_deep(self.source, &place);
        }
        let fault = self.source.fault(&place, format!("this is not YAML: {}", error.info()));
        match error.info() {
            info if info.contains("mapping values") => {
                fault.with_hint("a text with `: ` in it needs quotes; otherwise look at the indentation")
            }
            info if info.contains("quoted scalar") => fault.with_hint("is the quote at its end missing?"),
            _ => fault,
        }
    }
}

impl Open {
    fn wants_key(&self) -> bool {
        matches!(self, Self::Map { key: None, .. })
    }
}

fn is_core(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() || tag.handle == "!!"
}

fn short_tag(tag: &Tag) -> String {
    let handle = if is_core(tag) { "!!" } else { tag.handle.as_str() };
    short(&format!("{handle}{}", tag.suffix))
}

/// What a scalar stands for.
fn value(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let unknown = |tag: &Tag| Err(format!("the tag `{}` is not known here", short_tag(tag)));
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { scalar::plain(text) } else { Ok(Value::String(text.to_owned())) };
    };
    if !is_core(tag) && tag.handle != "!" {
        return unknown(tag);
    }
    // A lone `!` says that it is text.
    let wanted = match (is_core(tag), tag.suffix.as_str()) {
        (true, "str") | (false, "") => return Ok(Value::String(text.to_owned())),
        (true, wanted @ ("int" | "float" | "bool" | "null")) => wanted,
        _ => return unknown(tag),
    };
    let value = scalar::plain(text)?;
    let fits = match wanted {
        "int" => value.is_i64() || value.is_u64(),
        "float" => value.is_number(),
        "bool" => value.is_boolean(),
        _ => value.is_null(),
    };
    if fits { Ok(value) } else { Err(format!("`{}` does not fit the tag `!!{wanted}`", short(text))) }
}
