//! What a provider that keeps the conversation on its side has of it, and what it lacks.

use std::sync::Arc;

use rekindle_core::{Hash, Json, MessageId, Result};
use serde::{Deserialize, Serialize};

use super::{HistoryIndex, View, closed};

/// How far a provider has the conversation: up to its own last answer. Kept in the register
/// `cursor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderCursor {
    /// How many messages it has, its answer the last of them.
    pub index: u64,
    /// That answer.
    pub message: MessageId,
    /// The hash of those messages, as by [`HistoryIndex::prefix_hash`].
    pub hash: Hash,
    /// The provider's id of the answer.
    pub response: String,
}

impl ProviderCursor {
    /// The cursor after an answer, which is the last message of `history`.
    pub fn after(index: &mut HistoryIndex, history: &[Json], message: MessageId, response: impl Into<String>) -> Self {
        let hash = index.prefix_hash(history, history.len());
        Self { index: history.len() as u64, message, hash, response: response.into() }
    }

    /// What the provider lacks, its open calls closed; nothing if what it has is not what stands
    /// in `history` and all has to be sent again.
    pub fn unsent(&self, index: &mut HistoryIndex, history: &Arc<Vec<Json>>) -> Result<Option<View>> {
        index.update(history)?;
        let Some(answer) = self.answer(index, history)? else { return Ok(None) };
        // When the answer was asked for, every call before it was closed, with a made-up result if
        // need be. The provider would take a real one that came since for a second one.
        if !index.is_safe(answer) {
            return Ok(None);
        }
        closed::view_after(index, history, Vec::new(), answer, answer + 1..history.len()).map(Some)
    }

    /// Where the provider's answer stands, if everything up to it is as it was.
    fn answer(&self, index: &mut HistoryIndex, history: &[Json]) -> Result<Option<usize>> {
        let count = usize::try_from(self.index).ok().filter(|count| *count <= history.len());
        let Some(answer) = count.and_then(|count| count.checked_sub(1)) else { return Ok(None) };
        if index.prefix_hash(history, answer + 1) != self.hash {
            return Ok(None);
        }
        let stored: Identified = history[answer].decode()?;
        Ok((stored.id.as_ref() == Some(&self.message)).then_some(answer))
    }
}

/// As much of a message as a cursor compares.
#[derive(Deserialize)]
struct Identified {
    id: Option<MessageId>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{history, shape_of};
    use super::*;

    /// What is sent of `after` if the provider has `before`.
    fn check(before: &str, after: &str, expected: Option<&str>) {
        let mut index = HistoryIndex::default();
        let items = history(before);
        let message = MessageId::new(format!("msg_{}", items.len() - 1)).unwrap();
        let cursor = ProviderCursor::after(&mut index, &items, message, "resp_1");
        let items = Arc::new(history(after));
        if !after.starts_with(before) {
            index.clear();
        }
        for mut index in [index, HistoryIndex::default()] {
            let view = cursor.unsent(&mut index, &items).unwrap();
            assert_eq!(view.as_ref().map(shape_of).as_deref(), expected, "{after} behind {before}");
        }
    }

    #[test]
    fn only_what_is_behind_the_answer_is_sent() {
        check("ua", "ua", Some(""));
        check("ua", "uau", Some("u"));
        check("uc", "ucr", Some("r"));
        check("uaua", "uauacru", Some("cru"));
    }

    #[test]
    fn calls_of_the_answer_are_closed() {
        check("uc", "uc", Some("s"));
        check("ud", "udru", Some("rsu"));
        check("uc", "ucu", Some("su"));
        check("uc", "ucrr", Some("r"));
    }

    #[test]
    fn calls_before_the_answer_are_not_closed_twice() {
        check("ucua", "ucuau", Some("u"));
        check("ucua", "ucuar", None);
    }

    #[test]
    fn another_history_is_sent_again() {
        check("uaua", "ua", None);
        check("uaua", "uuuau", None);
        check("uaua", "uauuu", None);
    }

    #[test]
    fn the_answer_must_have_its_id() {
        let items = Arc::new(history("ua"));
        let mut index = HistoryIndex::default();
        let cursor = ProviderCursor::after(&mut index, &items, MessageId::new("msg_9").unwrap(), "resp_1");
        assert!(cursor.unsent(&mut index, &items).unwrap().is_none());
        let stored = serde_json::to_string(&cursor).unwrap();
        assert_eq!(serde_json::from_str::<ProviderCursor>(&stored).unwrap(), cursor);
    }

    #[test]
    fn what_is_behind_the_answer_is_shared() {
        let items = Arc::new(history("uaur"));
        let mut index = HistoryIndex::default();
        let cursor = ProviderCursor::after(&mut index, &items[..2], MessageId::new("msg_1").unwrap(), "resp_1");
        let items = Arc::new(items[..3].to_vec());
        assert!(cursor.unsent(&mut index, &items).unwrap().unwrap().shares(&items));
    }
}
