//! TOML: the parser of the `toml` crate gives every value with its place.

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::scalar;
use super::source::{Source, Span};
use super::tree::{Content, Count, DEEPEST, Key, Node, too_deep};
use crate::fault::Faults;

pub(super) fn parse(source: &Source) -> Result<Node, Faults> {
    let table = DeTable::parse(source.text()).map_err(|error| {
        let end = source.text().len();
        let span = error.span().unwrap_or(end..end);
        let message = error.message().trim();
        match message.contains("recurs") {
            true => Faults::one(too_deep(source, &span)),
            false => source.fault(&span, format!("this is not TOML: {}", message.replace('\n', ", "))).into(),
        }
    })?;
    let mut reader = Reader { source, count: Count::default() };
    let span = 0..0;
    let content = Content::Map(reader.table(table.into_inner(), 0)?);
    Ok(Node { span, content })
}

struct Reader<'a> {
    source: &'a Source,
    count: Count,
}

impl Reader<'_> {
    fn value(&mut self, value: Spanned<DeValue<'_>>, depth: usize) -> Result<Node, Faults> {
        let span = value.span();
        self.count.add(1, self.source, &span)?;
        let content = match value.into_inner() {
            DeValue::Array(items) => {
                self.check_depth(depth, &span)?;
                let items = items.into_iter().map(|item| self.value(item, depth + 1));
                Content::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => {
                self.check_depth(depth, &span)?;
                Content::Map(self.table(table, depth)?)
            }
            scalar => Content::Scalar(self.scalar(scalar, &span)?),
        };
        Ok(Node { span, content })
    }

    fn table(&mut self, table: DeTable<'_>, depth: usize) -> Result<Vec<(Key, Node)>, Faults> {
        let entries = table.into_iter().map(|(key, value)| {
            let span = key.span();
            Ok((Key { name: key.into_inner().into_owned(), span }, self.value(value, depth + 1)?))
        });
        entries.collect()
    }

    fn scalar(&self, value: DeValue<'_>, span: &Span) -> Result<Value, Faults> {
        let value = match value {
            DeValue::String(text) => Ok(Value::String(text.into_owned())),
            DeValue::Integer(number) => scalar::whole(number.as_str(), number.radix(), number.as_str()),
            DeValue::Float(number) => scalar::float(number.as_str()),
            DeValue::Boolean(yes) => Ok(Value::Bool(yes)),
            DeValue::Datetime(time) => Ok(Value::String(time.to_string())),
            DeValue::Array(_) | DeValue::Table(_) => Ok(Value::Null),
        };
        value.map_err(|why| self.source.fault(span, why).into())
    }

    fn check_depth(&self, depth: usize, span: &Span) -> Result<(), Faults> {
        if depth >= DEEPEST { Err(too_deep(self.source, span).into()) } else { Ok(()) }
    }
}
