//! From policy and history to the view that is sent, or to the summary that has to be made first.

use std::ops::Range;
use std::sync::Arc;

use rekindle_core::{Hash, Json, Result};
use serde::{Deserialize, Serialize};

use super::policy::{start_of_last, start_within};
use super::{HistoryIndex, Reduction, Summarise, View, closed};
use crate::message::Message;

/// A summary of the first messages of a history. It counts as long as they are what they were.
/// Kept in the register `summary`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How many messages it covers.
    pub through: u64,
    /// The hash of those messages, as by [`HistoryIndex::prefix_hash`].
    pub hash: Hash,
    /// What it says.
    pub text: String,
}

/// What to do before a model is called.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Plan {
    /// Send this.
    Send(View),
    /// Have this summarised, keep the [`Summary`], and plan again.
    Summarise {
        /// The summary will cover all messages before this one.
        through: usize,
        /// The first message that is sent to be summarised.
        from: usize,
        /// The summary it builds on.
        previous: Option<String>,
        /// What is sent to the model that summarises.
        request: View,
    },
}

impl Summary {
    /// A summary of the first `through` messages of `history`.
    pub fn new(index: &mut HistoryIndex, history: &[Json], through: usize, text: impl Into<String>) -> Self {
        let through = through.min(history.len());
        Self { through: through as u64, hash: index.prefix_hash(history, through), text: text.into() }
    }

    /// How many messages of `history` it covers, if it counts there.
    fn covers(&self, index: &mut HistoryIndex, history: &[Json]) -> Option<usize> {
        let through = usize::try_from(self.through).ok().filter(|through| *through <= history.len())?;
        (index.prefix_hash(history, through) == self.hash).then_some(through)
    }
}

impl Reduction {
    /// What to do with `history` before a model is called. The index is brought up to date; the
    /// cost follows what is new in the history and, if calls have to be closed, what is sent.
    pub fn plan(&self, index: &mut HistoryIndex, history: &Arc<Vec<Json>>, summary: Option<&Summary>) -> Result<Plan> {
        index.update(history)?;
        let start = match self {
            Self::Whole => 0,
            Self::KeepLast(messages) => start_of_last(index, *messages),
            Self::TokenBudget(tokens) => start_within(index, *tokens),
            Self::Summarise(summarise) => return summarise.plan(index, history, summary),
        };
        closed::view(index, history, Vec::new(), start..history.len()).map(Plan::Send)
    }
}

impl Summarise {
    fn plan(&self, index: &mut HistoryIndex, history: &Arc<Vec<Json>>, summary: Option<&Summary>) -> Result<Plan> {
        let valid = summary.and_then(|summary| Some((summary.covers(index, history)?, summary.text.as_str())));
        let covered = valid.map_or(0, |(covered, _)| covered);
        let lead = valid.map(|(_, text)| lead(text)).transpose()?;
        // A result that came after the summary may answer a call before it. The call is then sent
        // once more beside the summary, which stays right.
        let from = index.safe_at_or_before(covered);
        let through = start_of_last(index, self.keep_last);
        let view = |range: Range<usize>| closed::view(index, history, lead.into_iter().collect(), range);
        if history.len() - covered <= self.when_longer_than || through <= covered {
            return view(from..history.len()).map(Plan::Send);
        }
        let request = view(from..through)?.with_tail(vec![Message::user(&self.prompt).to_json()?]);
        Ok(Plan::Summarise { through, from, previous: valid.map(|(_, text)| text.to_owned()), request })
    }
}

/// The message that stands for what was summarised.
fn lead(text: &str) -> Result<Json> {
    let mut message = Message::user(format!("Summary of the conversation so far: {text}"));
    message.extra.insert("summary".into(), true.into());
    message.to_json()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{histories, history, shape_of};
    use super::*;
    use crate::message::Part;

    fn sent(plan: Plan) -> View {
        match plan {
            Plan::Send(view) => view,
            plan => panic!("{plan:?}"),
        }
    }

    /// No call is open, no result lacks its call, and nothing of `range` is missing but orphans.
    fn check_whole(view: &View, index: &HistoryIndex, history: &Arc<Vec<Json>>) {
        let mut open: Vec<String> = Vec::new();
        for message in view.messages() {
            for part in message.unwrap().parts {
                match part {
                    Part::ToolCall(call) => open.push(call.id),
                    Part::ToolResult(result) => {
                        let call = open.iter().position(|id| *id == result.call);
                        open.swap_remove(call.unwrap_or_else(|| panic!("orphan in {view:?}")));
                    }
                    _ => {}
                }
            }
        }
        assert!(open.is_empty(), "open calls in {view:?}");
        let range = view.range();
        assert!(index.is_safe(range.start) && index.is_safe(range.end), "{range:?}");
        let is_tidy = index.open_calls(range.clone()).next().is_none() && index.orphans(range.clone()).next().is_none();
        assert_eq!(view.shares(history), is_tidy);
        let with_orphan: Vec<_> = index.orphans(range.clone()).map(|place| place.message).collect();
        let expected = range.filter(|at| !with_orphan.contains(at)).map(|at| &history[at]);
        let mut items = view.items();
        for item in expected {
            assert!(items.any(|other| other == item), "{item} is missing or out of order");
        }
    }

    /// A view of each policy, and what its start has to be.
    fn check(history: &Arc<Vec<Json>>) {
        let mut index = HistoryIndex::default();
        let len = history.len();
        let mut plan = |reduction: Reduction| {
            let view = sent(reduction.plan(&mut index, history, None).unwrap());
            check_whole(&view, &index, history);
            assert_eq!(view.range().end, len);
            (view.range().start, index.clone())
        };
        assert_eq!(plan(Reduction::Whole).0, 0);
        for n in 0..len + 2 {
            let (start, index) = plan(Reduction::KeepLast(n));
            assert!(len - start >= n.min(len));
            // Without its first group it would be too short.
            let second = index.safe_at_or_after(start + 1);
            assert!(start == len || second > len.saturating_sub(n.max(1)), "{start} for {n} of {len}");
        }
        for tokens in (0..400).step_by(7) {
            let (start, index) = plan(Reduction::TokenBudget(tokens));
            let last_group = index.safe_at_or_before(len.saturating_sub(1));
            assert!(index.tokens(start..len) <= tokens || start == last_group);
            // One group more would be too much.
            let more = index.safe_at_or_before(start.saturating_sub(1));
            assert!(start == 0 || index.tokens(more..len) > tokens, "{start} for {tokens}");
        }
    }

    #[test]
    fn every_policy_sends_whole_views_of_any_history() {
        for shape in histories(300, 24) {
            check(&Arc::new(shape.items()));
        }
    }

    /// A history grows message by message; a summary is made whenever one is planned.
    fn check_growing(items: &[Json], summarise: &Summarise) {
        let reduction = Reduction::Summarise(summarise.clone());
        let mut index = HistoryIndex::default();
        let mut summary: Option<Summary> = None;
        for len in 0..=items.len() {
            let history = Arc::new(items[..len].to_vec());
            let mut plan = reduction.plan(&mut index, &history, summary.as_ref()).unwrap();
            if let Plan::Summarise { through, from, previous, request } = plan {
                check_whole(&request, &index, &history);
                assert_eq!(request.range(), from..through);
                assert_eq!(previous, summary.as_ref().map(|summary| summary.text.clone()));
                let covered = summary.as_ref().map_or(0, |summary| summary.through as usize);
                assert!(from <= covered && covered < through && len - covered > summarise.when_longer_than);
                summary = Some(Summary::new(&mut index, &history, through, format!("as of {len}")));
                plan = reduction.plan(&mut index, &history, summary.as_ref()).unwrap();
            }
            let view = sent(plan);
            check_whole(&view, &index, &history);
            assert_eq!(view.range().end, len);
            let covered = summary.as_ref().map_or(0, |summary| summary.through as usize);
            assert_eq!(view.range().start, index.safe_at_or_before(covered));
            assert_eq!(shape_of(&view).starts_with('S'), summary.is_some());
        }
    }

    #[test]
    fn summaries_of_any_history_are_of_whole_views() {
        for shape in histories(40, 40) {
            for keep_last in 0..4 {
                let summarise = Summarise::new(keep_last);
                check_growing(&shape.items(), &summarise);
                check_growing(&shape.items(), &summarise.with_when_longer_than(keep_last));
            }
        }
    }

    /// What is planned for `letters`: the messages, and what is summarised if anything is.
    fn check_summary(letters: &str, summary: Option<&Summary>, expected: &str, summarised: Option<Range<usize>>) {
        let history = Arc::new(history(letters));
        let reduction = Reduction::Summarise(Summarise::new(2));
        let (view, range) = match reduction.plan(&mut HistoryIndex::default(), &history, summary).unwrap() {
            Plan::Send(view) => (view, None),
            Plan::Summarise { through, from, request, .. } => (request, Some(from..through)),
        };
        assert_eq!(shape_of(&view), expected);
        assert_eq!(range, summarised);
    }

    #[test]
    fn a_summary_covers_what_is_older_and_builds_on_the_last_one() {
        check_summary("uaua", None, "uaua", None);
        check_summary("uauau", None, "uauu", Some(0..3));
        check_summary("uaucr", None, "uauu", Some(0..3));
        check_summary("ucrrrr", None, "ucru", Some(0..4));
        let items = history("uauaucrua");
        let summary = Summary::new(&mut HistoryIndex::default(), &items, 3, "so far");
        check_summary("uauau", Some(&summary), "Sau", None);
        check_summary("uauaucr", Some(&summary), "Saucr", None);
        check_summary("uauaucru", Some(&summary), "Sauu", Some(3..5));
        check_summary("uauaucrua", Some(&summary), "Saucru", Some(3..7));
    }

    #[test]
    fn a_call_that_was_answered_after_its_summary_is_sent_with_its_result() {
        let items = history("ucuau");
        let summary = Summary::new(&mut HistoryIndex::default(), &items, 3, "so far");
        check_summary("ucuau", Some(&summary), "Sau", None);
        check_summary("ucuaur", Some(&summary), "Scuaur", None);
    }

    #[test]
    fn a_summary_of_other_messages_does_not_count() {
        let items = history("uauau");
        let summary = Summary::new(&mut HistoryIndex::default(), &items, 3, "so far");
        check_summary("uauau", Some(&summary), "Sau", None);
        check_summary("uaaau", Some(&summary), "uaau", Some(0..3));
        check_summary("ua", Some(&summary), "ua", None);
        let stored = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&stored).unwrap(), summary);
    }

    #[test]
    fn an_edit_is_noticed_once_the_index_is_cleared() {
        let mut items = history("uauau");
        let mut index = HistoryIndex::default();
        let summary = Summary::new(&mut index, &items, 3, "so far");
        assert_eq!(summary.covers(&mut index, &items), Some(3));
        items[1] = history("u").remove(0);
        index.clear();
        assert_eq!(summary.covers(&mut index, &items), None);
    }

    #[test]
    fn the_summary_is_marked() {
        let text = r#"{"role":"user","parts":[{"text":"Summary of the conversation so far: x"}],"summary":true}"#;
        assert_eq!(lead("x").unwrap().as_str(), text);
    }
}
