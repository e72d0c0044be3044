//! What the decisions on a wait come to, and whether an answer may be given at all.

use std::collections::BTreeSet;

use rekindle_core::record::{Decision, InboxAnswer, Voice, WaitDecision, WaitKind, WaitOpened};
use rekindle_core::{Error, Hash, Json, Result, Timestamp, WaitState};

use crate::tool::Schema;
use crate::wait::digest;

/// What a wait came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Agreed, with other arguments if they were edited.
    Approved {
        /// The arguments to use in place of those shown.
        arguments: Option<Json>,
    },
    /// Not agreed.
    Rejected {
        /// Why.
        reason: String,
    },
    /// Answered.
    Answered(Json),
    /// Nobody decided in time, and there is no default.
    Expired,
}

/// What a wait has come to at `now`, if anything, and whether it simply ran out of time.
pub(crate) fn verdict(wait: &WaitState, now: Timestamp) -> Option<(Verdict, bool)> {
    let decided = match wait.opened.kind {
        WaitKind::Approval => approval(&wait.opened, &wait.decisions),
        _ => wait.decisions.first().map(|decision| match decision.decision {
            Decision::Answer | Decision::Approve => {
                Verdict::Answered(decision.value.clone().unwrap_or_else(Json::null))
            }
            Decision::Reject => Verdict::Rejected { reason: decision.reason.clone() },
        }),
    };
    if let Some(verdict) = decided {
        return Some((verdict, false));
    }
    is_due(wait, now).then(|| (on_expiry(&wait.opened), true))
}

/// Returns true if the time of a wait has come, by the record that says so or by the clock.
pub(crate) fn is_due(wait: &WaitState, now: Timestamp) -> bool {
    wait.expired || wait.opened.expires_at.is_some_and(|at| at <= now)
}

fn approval(opened: &WaitOpened, decisions: &[WaitDecision]) -> Option<Verdict> {
    if let Some(no) = decisions.iter().find(|decision| decision.decision == Decision::Reject) {
        return Some(Verdict::Rejected { reason: no.reason.clone() });
    }
    let (edited, approvers) = agreed(opened, decisions);
    let enough = u32::try_from(approvers.len()).unwrap_or(u32::MAX) >= opened.approvals;
    enough.then(|| Verdict::Approved { arguments: edited.cloned() })
}

/// What is agreed to, if it is not what was shown at first, and by whom. An edit starts the count
/// again: what the others agreed to is not what will happen.
fn agreed<'a>(opened: &WaitOpened, decisions: &'a [WaitDecision]) -> (Option<&'a Json>, BTreeSet<Voice<'a>>) {
    let mut shown = opened.digest;
    let mut edited = None;
    let mut approvers = BTreeSet::new();
    for decision in decisions.iter().filter(|decision| decision.decision == Decision::Approve) {
        if let Some(arguments) = &decision.arguments {
            let wanted = digest(arguments).ok();
            if wanted != shown {
                approvers.clear();
            }
            (shown, edited) = (wanted, Some(arguments));
        }
        approvers.insert(decision.voice());
    }
    (edited, approvers)
}

/// The digest of what an approval is for now: of the arguments shown or, once somebody edited
/// them, of those.
pub(crate) fn shown_digest(wait: &WaitState) -> Option<Hash> {
    match agreed(&wait.opened, &wait.decisions).0 {
        Some(edited) => digest(edited).ok(),
        None => wait.opened.digest,
    }
}

fn on_expiry(opened: &WaitOpened) -> Verdict {
    match (&opened.default, opened.kind) {
        (Some(default), WaitKind::Approval) if default.as_str() == "true" => Verdict::Approved { arguments: None },
        (_, WaitKind::Approval) => Verdict::Rejected { reason: "nobody decided in time".into() },
        (Some(default), _) => Verdict::Answered(default.clone()),
        (None, WaitKind::Timer) => Verdict::Answered(Json::null()),
        (None, _) => Verdict::Expired,
    }
}

fn check_schema(opened: &WaitOpened, value: &Json, what: &str) -> Result<()> {
    let Some(schema) = &opened.schema else { return Ok(()) };
    Schema::new(schema)?
        .faults(value)
        .map_err(|faults| Error::invalid(format!("{what} not fit: {faults}")).hint(format!("the schema is {schema}")))
}

fn approves_something_else(wait: &WaitState) -> Error {
    let shown = shown_digest(wait).map(|digest| digest.to_string()).unwrap_or_default();
    let editor = wait.decisions.iter().rev().find(|decision| decision.arguments.is_some());
    let message = match editor {
        Some(editor) => format!("{} changed the arguments, and this approval is for others", editor.author),
        None => "the approval is not for the arguments that are shown".to_owned(),
    };
    let arguments = editor.and_then(|editor| editor.arguments.as_ref()).or(wait.opened.arguments.as_ref());
    let arguments = arguments.map(Json::to_string).unwrap_or_default();
    Error::invalid(message).hint(format!("look at {arguments} and approve digest {shown}, or reject the call"))
}

/// An error unless `answer`, given at `at` by the store's time, fits the wait.
pub(crate) fn check_answer(wait: &WaitState, answer: &InboxAnswer, at: Timestamp) -> Result<()> {
    let opened = &wait.opened;
    if is_due(wait, at) {
        let message = format!("the wait `{}` has expired", opened.wait);
        return Err(Error::new(rekindle_core::ErrorKind::WaitClosed, message)
            .hint("resume the session: the default of the wait counts"));
    }
    match (opened.kind, answer.decision) {
        (WaitKind::Timer, _) => return Err(Error::invalid("a timer takes no answer")),
        (WaitKind::Approval, Decision::Answer) => {
            return Err(Error::invalid("this wait is for an approval: approve or reject it"));
        }
        (WaitKind::Approval, Decision::Approve) if answer.digest != shown_digest(wait) => {
            return Err(approves_something_else(wait));
        }
        (WaitKind::Question | WaitKind::Signal, Decision::Approve) => {
            return Err(Error::invalid("this wait is not for an approval").hint("answer it with a value, or reject it"));
        }
        (WaitKind::Approval, Decision::Approve) => {
            answer
                .arguments
                .iter()
                .try_for_each(|arguments| check_schema(opened, arguments, "the edited arguments do"))?;
        }
        (WaitKind::Question | WaitKind::Signal, Decision::Answer) => {
            check_schema(opened, &answer.value.clone().unwrap_or_else(Json::null), "the answer does")?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rekindle_core::record::Extra;
    use rekindle_core::{MessageId, WaitId};

    use super::*;
    use crate::wait::WaitSpec;

    fn wait(spec: WaitSpec) -> WaitState {
        let opened = spec.open(WaitId::new("w").unwrap(), Timestamp(0)).unwrap();
        WaitState { opened, decisions: Vec::new(), reminded: false, expired: false }
    }

    fn approval_of(approvals: u32) -> WaitSpec {
        WaitSpec::approval("pay?", Json::parse(r#"{"cents":5}"#).unwrap()).with_approvals(approvals)
    }

    fn by(author: &str, decision: Decision, arguments: Option<&str>) -> WaitDecision {
        WaitDecision {
            wait: WaitId::new("w").unwrap(),
            decision,
            author: author.into(),
            credential: None,
            claimed: false,
            value: Some(Json::from("v")),
            arguments: arguments.map(|text| Json::parse(text).unwrap()),
            digest: None,
            reason: "because".into(),
            extra: Extra::new(),
        }
    }

    fn check(spec: WaitSpec, decisions: &[WaitDecision], now: u64, expected: Option<Verdict>) {
        let wait = WaitState { decisions: decisions.to_vec(), ..wait(spec) };
        assert_eq!(verdict(&wait, Timestamp(now)).map(|(verdict, _)| verdict), expected);
    }

    #[test]
    fn approvals_count_people_not_clicks() {
        let yes = |author| by(author, Decision::Approve, None);
        let approved = Some(Verdict::Approved { arguments: None });
        check(approval_of(1), &[], 1, None);
        check(approval_of(1), &[yes("a")], 1, approved.clone());
        check(approval_of(2), &[yes("a"), yes("a")], 1, None);
        check(approval_of(2), &[yes("a"), yes("b")], 1, approved);
        let rejected = Some(Verdict::Rejected { reason: "because".into() });
        check(approval_of(2), &[yes("a"), by("b", Decision::Reject, None)], 1, rejected);
    }

    #[test]
    fn approvals_count_credentials_not_the_names_given_with_them() {
        let with = |author: &str, credential: &str, claimed: bool| WaitDecision {
            credential: Some(credential.into()),
            claimed,
            ..by(author, Decision::Approve, None)
        };
        let approved = Some(Verdict::Approved { arguments: None });
        check(approval_of(2), &[with("a", "uid:1@box", true), with("b", "uid:1@box", true)], 1, None);
        check(approval_of(2), &[with("a", "token:a", false), with("b", "token:a", true)], 1, None);
        check(approval_of(2), &[with("a", "token:a", false), with("b", "token:b", false)], 1, approved.clone());
        // A name that was only claimed takes nobody's voice away.
        check(approval_of(2), &[with("b", "uid:1@box", true), with("b", "token:b", false)], 1, approved.clone());
        check(approval_of(2), &[by("a", Decision::Approve, None), with("b", "token:b", false)], 1, approved);
    }

    #[test]
    fn an_edit_needs_everybody_to_agree_again() {
        let edit = by("b", Decision::Approve, Some("{}"));
        let approved_as = |text: &str| Some(Verdict::Approved { arguments: Some(Json::parse(text).unwrap()) });
        let approved = approved_as("{}");
        check(approval_of(2), &[by("a", Decision::Approve, None), edit.clone()], 1, None);
        check(approval_of(2), &[edit.clone(), by("a", Decision::Approve, None)], 1, approved.clone());
        check(approval_of(2), &[edit, by("a", Decision::Approve, Some("{ }"))], 1, approved_as("{ }"));
    }

    #[test]
    fn time_decides_when_nobody_does() {
        let second = std::time::Duration::from_secs(1);
        check(WaitSpec::question("?").expiring(second, None), &[], 999_999, None);
        check(WaitSpec::question("?").expiring(second, None), &[], 1_000_000, Some(Verdict::Expired));
        let default = Some(Json::from("blue"));
        let answered = Some(Verdict::Answered(Json::from("blue")));
        check(WaitSpec::question("?").expiring(second, default), &[], 1_000_000, answered);
        check(WaitSpec::timer(second), &[], 1_000_000, Some(Verdict::Answered(Json::null())));
        let late = Some(Verdict::Rejected { reason: "nobody decided in time".into() });
        check(approval_of(1).expiring(second, None), &[], 1_000_000, late);
        let yes = Some(Json::parse("true").unwrap());
        check(approval_of(1).expiring(second, yes), &[], 1_000_000, Some(Verdict::Approved { arguments: None }));
    }

    #[test]
    fn answers_must_fit_what_was_shown() {
        let answer = |decision, value: &str, digest| InboxAnswer {
            message: MessageId::new("m").unwrap(),
            wait: WaitId::new("w").unwrap(),
            decision,
            author: "a".into(),
            credential: None,
            claimed: false,
            value: Some(Json::parse(value).unwrap()),
            arguments: None,
            digest,
            reason: String::new(),
            extra: Extra::new(),
        };
        let code = |wait: &WaitState, answer: &InboxAnswer, now| {
            check_answer(wait, answer, Timestamp(now)).map_err(|error| error.code()).err()
        };
        let approval = wait(approval_of(1));
        let digest = approval.opened.digest;
        assert_eq!(code(&approval, &answer(Decision::Approve, "1", digest), 1), None);
        assert_eq!(code(&approval, &answer(Decision::Approve, "1", Some(Hash::of(b"x"))), 1), Some("RK0001"));
        assert_eq!(code(&approval, &answer(Decision::Approve, "1", None), 1), Some("RK0001"));
        assert_eq!(code(&approval, &answer(Decision::Answer, "1", digest), 1), Some("RK0001"));
        // After an edit, only what was edited can be approved.
        let edited = WaitState { decisions: vec![by("b", Decision::Approve, Some("{}"))], ..approval.clone() };
        assert_eq!(code(&edited, &answer(Decision::Approve, "1", digest), 1), Some("RK0001"));
        assert_eq!(code(&edited, &answer(Decision::Approve, "1", shown_digest(&edited)), 1), None);
        let question = wait(WaitSpec::question("?").with_schema(Json::parse(r#"{"type":"integer"}"#).unwrap()));
        assert_eq!(code(&question, &answer(Decision::Answer, "1", None), 1), None);
        assert_eq!(code(&question, &answer(Decision::Answer, "\"x\"", None), 1), Some("RK0001"));
        assert_eq!(code(&question, &answer(Decision::Approve, "1", None), 1), Some("RK0001"));
        let short = wait(WaitSpec::question("?").expiring(std::time::Duration::from_micros(5), None));
        assert_eq!(code(&short, &answer(Decision::Answer, "1", None), 5), Some("RK0020"));
    }
}
