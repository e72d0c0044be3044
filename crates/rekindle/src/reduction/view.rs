//! The view: what is sent to a model. Shares the history it was computed from.

use std::ops::Range;
use std::sync::Arc;

use rekindle_core::{Json, Result};

use crate::message::Message;

/// The messages that are sent to a model: a lead (a summary, say), a stretch of the history and
/// a tail (a question about it, say). Holding it copies no message.
#[derive(Clone, Debug, Default)]
pub struct View {
    lead: Vec<Json>,
    /// The history, or what stands for a stretch of it.
    body: Arc<Vec<Json>>,
    /// What of the body is shown.
    shown: Range<usize>,
    tail: Vec<Json>,
    /// What of the history is shown.
    range: Range<usize>,
}

impl View {
    /// All of `history`.
    pub fn whole(history: Arc<Vec<Json>>) -> Self {
        let range = 0..history.len();
        Self::stretch(Vec::new(), history, range)
    }

    /// `lead`, then that stretch of `history`. A range beyond the history is cut to it.
    pub fn stretch(lead: Vec<Json>, history: Arc<Vec<Json>>, range: Range<usize>) -> Self {
        let end = range.end.min(history.len());
        let range = range.start.min(end)..end;
        Self { lead, body: history, shown: range.clone(), tail: Vec::new(), range }
    }

    /// Exactly `items`.
    pub fn of(items: Vec<Json>) -> Self {
        Self { lead: items, ..Self::default() }
    }

    /// `lead`, then `items`, which stand for that stretch of the history.
    pub(super) fn standing_for(lead: Vec<Json>, items: Vec<Json>, range: Range<usize>) -> Self {
        Self { range, ..Self::stretch(lead, Arc::new(items), 0..usize::MAX) }
    }

    /// The same with `tail` behind everything.
    #[must_use]
    pub fn with_tail(mut self, tail: Vec<Json>) -> Self {
        self.tail = tail;
        self
    }

    /// How many messages it has.
    pub fn len(&self) -> usize {
        self.lead.len() + self.shown.len() + self.tail.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stretch of the history it shows.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The messages in their stored form.
    pub fn items(&self) -> impl DoubleEndedIterator<Item = &Json> {
        self.lead.iter().chain(&self.body[self.shown.clone()]).chain(&self.tail)
    }

    /// The messages.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = Result<Message>> {
        self.items().map(Message::from_json)
    }

    /// Whether it was made without copying `history`.
    #[cfg(test)]
    pub(super) fn shares(&self, history: &Arc<Vec<Json>>) -> bool {
        Arc::ptr_eq(&self.body, history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(range: Range<u32>) -> Vec<Json> {
        range.map(|number| Json::of(&number).unwrap()).collect()
    }

    fn check(view: View, expected: Range<u32>) {
        assert_eq!(view.items().cloned().collect::<Vec<_>>(), numbers(expected.clone()));
        assert_eq!(view.len(), expected.len());
        assert_eq!(view.is_empty(), expected.is_empty());
    }

    #[test]
    fn a_view_is_lead_stretch_and_tail() {
        let history = Arc::new(numbers(0..6));
        check(View::default(), 0..0);
        check(View::of(numbers(3..5)), 3..5);
        check(View::whole(Arc::clone(&history)), 0..6);
        check(View::stretch(Vec::new(), Arc::clone(&history), 2..99), 2..6);
        check(View::stretch(Vec::new(), Arc::clone(&history), 7..9), 0..0);
        let view = View::stretch(numbers(0..2), Arc::clone(&history), 2..4).with_tail(numbers(4..6));
        assert!(view.shares(&history));
        check(view, 0..6);
        let view = View::standing_for(numbers(0..1), numbers(1..3), 4..6);
        assert_eq!(view.range(), 4..6);
        check(view, 0..3);
    }
}
