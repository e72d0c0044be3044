//! The fold, the diff and compaction over arbitrary histories.

use proptest::prelude::*;

use super::*;
use crate::id::BranchId;
use crate::position::{Hash, Seq};
use crate::record::*;

fn log() -> LogName {
    LogName::new("messages").unwrap()
}

fn effect(n: u8) -> EffectId {
    EffectId::new(format!("e{n}")).unwrap()
}

fn wait(n: u8) -> WaitId {
    WaitId::new(format!("w{n}")).unwrap()
}

fn run(n: u8) -> crate::id::RunId {
    crate::id::RunId::new(format!("r{n}")).unwrap()
}

fn intent(n: u8) -> Record {
    EffectIntent::new(effect(n), EffectKind::Tool, "t", Hash::of(&[n])).into()
}

fn outcome(n: u8, status: OutcomeStatus) -> Record {
    EffectOutcome::new(effect(n), status, Some(Json::from(format!("result {n}").as_str()))).into()
}

/// Any record, whether or not it can follow the ones before it.
pub(crate) fn any_record() -> impl Strategy<Value = Record> {
    let n = 0u8..4;
    let small = (n.clone(), 0u32..1_000);
    prop_oneof![
        small.clone().prop_map(|(_, v)| LogAppend::new(log(), vec![Json::from(v.to_string().as_str())]).into()),
        small.clone().prop_map(|(n, v)| {
            RegisterSet::new(
                RegisterKey::new(format!("k{n}")).unwrap(),
                Json::parse(format!("{{\"v\":[{v}]}}")).unwrap(),
            )
            .into()
        }),
        n.clone().prop_map(|n| RegisterUnset::new(RegisterKey::new(format!("k{n}")).unwrap()).into()),
        n.clone().prop_map(intent),
        n.clone().prop_map(|n| outcome(n, OutcomeStatus::Ok)),
        n.clone().prop_map(|n| outcome(n, OutcomeStatus::InfraError)),
        n.clone().prop_map(|n| EffectPartial::new(effect(n), Json::from("p")).into()),
        (n.clone(), n.clone()).prop_map(|(a, b)| LogAppendOutcomes::new(log(), vec![effect(a), effect(b)]).into()),
        small
            .clone()
            .prop_map(|(n, v)| Checkpoint::new(crate::id::CheckpointId::new(format!("c{n}-{v}")).unwrap()).into()),
        (n.clone(), any::<bool>())
            .prop_map(|(n, resume)| RunStarted::new(run(n), "agent").continuing(resume.then(|| run(0))).into()),
        n.clone().prop_map(|n| {
            let branch = if n == 0 { BranchId::inbox() } else { BranchId::main() };
            HistoryLost::new(branch, Seq(u64::from(n) + 1), Seq(9)).into()
        }),
        n.clone().prop_map(|n| RunEnded::new(run(n), RunOutcome::Idle).into()),
        n.clone().prop_map(|n| RunState::new(run(n), RunStateKind::Waiting).into()),
        n.clone().prop_map(|n| WaitOpened::new(wait(n), WaitKind::Question).into()),
        n.clone().prop_map(|n| WaitClosed::new(wait(n), WaitCloseReason::Answered, None).into()),
        (0u64..4, 0u64..3).prop_map(|(at, remove)| LogSplice::new(log(), at, remove, vec![Json::from("s")]).into()),
        (0u64..9).prop_map(|n| InboxTaken::new(Seq(n)).into()),
        n.prop_map(|n| Record::Unknown(Unknown { tag: format!("future_{n}"), body: Json::null() })),
    ]
}

/// Histories whose every record can follow the ones before it.
pub(crate) fn any_history() -> impl Strategy<Value = Vec<Record>> {
    proptest::collection::vec(any_record(), 0..80).prop_map(|records| {
        let mut state = State::default();
        let possible = |state: &mut State, record: &Record| {
            let mut next = state.clone();
            let ok = next.apply(record).is_ok();
            if ok {
                *state = next;
            }
            ok
        };
        records.into_iter().filter(|record| possible(&mut state, record)).collect()
    })
}

fn fold(records: &[Record]) -> State {
    let mut state = State::default();
    records.iter().for_each(|record| state.apply(record).unwrap());
    state
}

#[test]
fn settled_outcomes_reach_the_log_in_call_order_and_share_their_text() {
    let records = [
        intent(1),
        intent(2),
        outcome(2, OutcomeStatus::Ok),
        outcome(1, OutcomeStatus::Ok),
        LogAppendOutcomes::new(log(), vec![effect(1), effect(2)]).into(),
    ];
    let state = fold(&records);
    let texts: Vec<_> = state.log(&log()).iter().map(Json::as_str).collect();
    assert_eq!(texts, ["\"result 1\"", "\"result 2\""]);
    let Record::EffectOutcome(stored) = &records[3] else { panic!("an outcome stands there") };
    assert!(state.log(&log())[0].is_shared_with(stored.value.as_ref().unwrap()));
    assert_eq!(state.effects().count(), 0, "what was taken into a log is done with");
}

#[test]
fn a_log_that_is_held_does_not_change() {
    let mut state = fold(&[LogAppend::new(log(), vec![Json::from("a")]).into()]);
    let held = state.shared_log(&log());
    state.apply(&LogAppend::new(log(), vec![Json::from("b")]).into()).unwrap();
    assert_eq!((held.len(), state.log(&log()).len()), (1, 2));
}

#[test]
fn an_effect_without_a_settling_outcome_is_open() {
    let state = fold(&[
        intent(1),
        intent(2),
        outcome(2, OutcomeStatus::InfraError),
        intent(3),
        outcome(3, OutcomeStatus::ToolError),
    ]);
    let open: Vec<_> = state.open_effects().map(|effect| effect.intent.effect.as_str()).collect();
    assert_eq!(open, ["e1", "e2"]);
}

proptest! {
    /// A batch passes the check exactly if its records can be applied one after the other.
    #[test]
    fn a_batch_passes_the_check_if_all_of_it_can_be_applied(
        history in any_history(),
        batch in proptest::collection::vec(any_record(), 0..12),
    ) {
        let state = fold(&history);
        let mut applied = state.clone();
        let one_by_one = batch.iter().try_for_each(|record| applied.apply(record));
        let checked = state.check(&batch);
        prop_assert_eq!(checked.map_err(|error| error.to_string()), one_by_one.map_err(|error| error.to_string()));
    }
}

#[test]
fn what_cannot_follow_is_an_error() {
    for record in [
        LogAppendOutcomes::new(log(), vec![effect(1)]).into(),
        LogSplice::new(log(), 1, 0, vec![]).into(),
        LogSplice::new(log(), u64::MAX, u64::MAX, vec![]).into(),
    ] {
        let mut state = State::default();
        assert_eq!(state.apply(&record).unwrap_err().code(), "RK0011", "{record:?}");
        assert_eq!(state, State::default());
    }
}

#[test]
fn a_settled_effect_stays_settled_and_stragglers_change_nothing() {
    let settled = fold(&[intent(1), outcome(1, OutcomeStatus::Ok)]);
    let late = [intent(1), outcome(1, OutcomeStatus::Cancelled), EffectPartial::new(effect(1), Json::null()).into()];
    for record in late {
        let mut state = settled.clone();
        state.apply(&record).unwrap();
        assert_eq!(state, settled, "{record:?}");
    }
    let second = EffectIntent { attempt: 2, ..EffectIntent::new(effect(1), EffectKind::Tool, "t", Hash::of(&[1])) };
    let retried = fold(&[intent(1), outcome(1, OutcomeStatus::InfraError), second.into()]);
    for record in [outcome(1, OutcomeStatus::Ok), outcome(9, OutcomeStatus::Ok)] {
        let mut state = retried.clone();
        state.apply(&record).unwrap();
        assert_eq!(state, retried, "{record:?}");
    }
}

#[test]
fn differences_read_well() {
    let set = |key: &str, json: &str| {
        Record::from(RegisterSet::new(RegisterKey::new(key).unwrap(), Json::parse(json).unwrap()))
    };
    let say = |text: &str| Record::from(LogAppend::new(log(), vec![Json::from(text)]));
    let before = fold(&[say("a"), say("b"), set("loop", r#"{"i":1,"ok":true}"#), set("gone", "1")]);
    let after = fold(&[say("a"), say("c"), say("d"), set("loop", r#"{"i":2,"ok":true}"#), set("new/key", "[1]")]);
    let diff = StateDiff::between(&before, &after);
    assert_eq!(
        diff.to_string(),
        "log messages: 1 kept, 1 removed, 2 added\n  - \"b\"\n  + \"c\"\n  + \"d\"\nregister gone: removed\n  - 1\n\
         register loop: changed\n  ~ /i: 1 → 2\nregister new/key: added\n  + [1]\n"
    );
    assert!(StateDiff::between(&before, &before).is_empty());
}

proptest! {
    #[test]
    fn compaction_keeps_the_state(history in any_history()) {
        let before = fold(&history);
        let compacted = compact(history.clone()).unwrap();
        let after = fold(&compacted);
        prop_assert_eq!(&before, &after);
        prop_assert_eq!(compact(compacted.clone()).unwrap(), compacted);
    }

    #[test]
    fn a_patch_turns_one_state_into_the_other(a in any_history(), b in any_history()) {
        let (before, after) = (fold(&a), fold(&b));
        let patch = StateDiff::between(&before, &after).to_json_patch().unwrap();
        let mut document = before.to_value().unwrap();
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        json_patch::patch(&mut document, &patch).unwrap();
        let mut expected = after.to_value().unwrap();
        // A log that only the first state has is emptied, not removed: logs are never removed.
        for name in document["logs"].as_object().unwrap().keys().cloned().collect::<Vec<_>>() {
            expected["logs"].as_object_mut().unwrap().entry(name).or_insert_with(|| serde_json::json!([]));
        }
        prop_assert_eq!(document, expected);
    }

    #[test]
    fn no_record_makes_the_fold_panic(records in proptest::collection::vec(any_record(), 0..60)) {
        let mut state = State::default();
        for record in &records {
            let _ = state.apply(record);
        }
    }
}

#[test]
fn what_was_intended_before_records_were_lost_may_have_ended_in_them() {
    let lost = |branch| Record::from(HistoryLost::new(branch, Seq(7), Seq(9)));
    let check = |records: &[Record], expected: &[(u8, bool)]| {
        let state = fold(records);
        for (n, before) in expected {
            assert_eq!(state.effect(&effect(*n)).map(|effect| effect.before_loss), Some(*before), "{n}");
        }
    };
    check(&[intent(1), lost(BranchId::main()), intent(2)], &[(1, true), (2, false)]);
    check(&[intent(1), lost(BranchId::inbox())], &[(1, false)]);
    check(&[intent(1), lost(BranchId::main()), intent(1)], &[(1, false)]);
    assert_eq!(fold(&[lost(BranchId::inbox())]).lost().len(), 1);
}
