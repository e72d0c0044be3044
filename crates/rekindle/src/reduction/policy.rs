//! What of a history is kept when a model is called. How a view is made of it stands in `plan`.

use std::sync::Arc;

use rekindle_core::Hash;

use super::HistoryIndex;
use crate::model::Model;

/// How much of the history is sent to a model. A call and its result are never separated: where
/// a cut would, it moves.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Reduction {
    /// All of it.
    #[default]
    Whole,
    /// At least that many of the last messages: a cut that would separate a call from its result
    /// moves up. The last message is always kept.
    KeepLast(usize),
    /// As many of the last messages as have at most that many tokens, estimated as by
    /// [`HistoryIndex::tokens`]. The last message is always kept, with what it cannot be separated
    /// from, even if that is more. Results made up to close open calls are not counted.
    TokenBudget(u64),
    /// A summary of the older messages, then the last ones.
    Summarise(Summarise),
}

/// How a history is summarised.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summarise {
    /// At least that many of the last messages are left out of a new summary; one at least.
    pub keep_last: usize,
    /// A new summary is made when more messages than this are in none.
    pub when_longer_than: usize,
    /// Who summarises, if not the model that is to be called.
    pub model: Option<Arc<dyn Model>>,
    /// What it is asked, as a person, behind the messages to summarise.
    pub prompt: String,
}

/// Asks for what an agent needs to go on, not for what reads well.
const PROMPT: &str = "Summarise the conversation above so that the work can go on from the summary alone. \
Keep what was asked for, the decisions and their reasons, names, numbers and paths exactly as they were, \
what the tools found and changed, what failed, and what is still to be done. \
If it begins with a summary, take over from it what still matters. Answer with the summary only.";

impl Summarise {
    /// Keeps the last `keep_last` messages as they are, and summarises when there are more than
    /// twice as many.
    pub fn new(keep_last: usize) -> Self {
        Self { keep_last, when_longer_than: keep_last.saturating_mul(2), model: None, prompt: PROMPT.into() }
    }

    /// Summarises when more than `messages` messages are in no summary.
    #[must_use]
    pub fn with_when_longer_than(mut self, messages: usize) -> Self {
        self.when_longer_than = messages;
        self
    }

    /// Has `model` summarise.
    #[must_use]
    pub fn with_model(mut self, model: Arc<dyn Model>) -> Self {
        self.model = Some(model);
        self
    }

    /// Asks for the summary with `prompt`.
    #[must_use]
    pub fn with_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.prompt = prompt.into();
        self
    }

    fn describe(&self) -> String {
        let model = self.model.as_ref().map_or_else(|| "same".into(), |model| format!("{:?}", model.name()));
        let prompt = Hash::of(self.prompt.as_bytes());
        let Self { keep_last, when_longer_than, .. } = self;
        format!("summarise(keep_last={keep_last},when_longer_than={when_longer_than},model={model},prompt={prompt})")
    }
}

impl Reduction {
    /// Its name: `whole`, `keep_last`, `token_budget` or `summarise`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::KeepLast(_) => "keep_last",
            Self::TokenBudget(_) => "token_budget",
            Self::Summarise(_) => "summarise",
        }
    }

    /// All that it does, in a stable form for fingerprints: the same text, the same views.
    pub fn describe(&self) -> String {
        match self {
            Self::Whole => self.name().into(),
            Self::KeepLast(messages) => format!("{}({messages})", self.name()),
            Self::TokenBudget(tokens) => format!("{}({tokens})", self.name()),
            Self::Summarise(summarise) => summarise.describe(),
        }
    }
}

/// Where the last `messages` messages begin, or a little earlier.
pub(super) fn start_of_last(index: &HistoryIndex, messages: usize) -> usize {
    index.safe_at_or_before(index.len().saturating_sub(messages.max(1)))
}

/// Where the messages that fit into `tokens` begin; the last group at least.
pub(super) fn start_within(index: &HistoryIndex, tokens: u64) -> usize {
    index.safe_at_or_after(index.first_within(tokens)).min(start_of_last(index, 1))
}

#[cfg(test)]
mod tests {
    use super::super::testing::history;
    use super::*;

    fn check(reduction: Reduction, name: &str, description: &str) {
        assert_eq!(reduction.name(), name);
        assert_eq!(reduction.describe(), description);
    }

    #[test]
    fn descriptions_are_stable() {
        check(Reduction::default(), "whole", "whole");
        check(Reduction::KeepLast(20), "keep_last", "keep_last(20)");
        check(Reduction::TokenBudget(8_000), "token_budget", "token_budget(8000)");
        let summarise = Summarise::new(10).with_prompt("short");
        let prompt = Hash::of(b"short");
        let description = format!("summarise(keep_last=10,when_longer_than=20,model=same,prompt={prompt})");
        check(Reduction::Summarise(summarise.clone()), "summarise", &description);
        let description = description.replace("=20", "=15");
        check(Reduction::Summarise(summarise.with_when_longer_than(15)), "summarise", &description);
    }

    #[test]
    fn cuts_move_up_for_a_count_and_down_for_a_budget() {
        let items = history("uucrua");
        let mut index = HistoryIndex::default();
        index.update(&items).unwrap();
        let last: Vec<_> = (0..8).map(|messages| start_of_last(&index, messages)).collect();
        assert_eq!(last, [5, 5, 4, 2, 2, 1, 0, 0]);
        let within = |from: usize| start_within(&index, index.tokens(from..items.len()));
        assert_eq!((0..=6).map(within).collect::<Vec<_>>(), [0, 1, 2, 4, 4, 5, 5]);
        assert_eq!(start_within(&HistoryIndex::default(), 0), 0);
    }
}
