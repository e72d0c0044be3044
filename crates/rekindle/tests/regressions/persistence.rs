//! A store that is away for a while: nothing is lost, and nothing is written twice.

use std::time::Duration;

use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::tool::{ToolContext, ToolError, tool};
use rekindle::{Event, Json, LiveKind, PersistFailure};
use rekindle_models::Script;
use rekindle_store::Fault;

use crate::kit::{HeldModel, Rig, agent, eventually, of, soon};
use crate::support::Of;

/// A tool keeps a partial result for each of `patience` while its store is away, and gives up
/// waiting for it after that many milliseconds; then once more when the store is back.
async fn keeps_all_it_gave_up(fault: Fault, patience: &'static [u64]) {
    let rig = Rig::memory().await;
    let (session, plan) = rig.faulty().await;
    let keep = tool("keep", "Keeps.", move |call: ToolContext, _: Of| {
        let plan = plan.clone();
        async move {
            plan.fail_from(0, fault);
            for (number, millis) in patience.iter().enumerate() {
                let kept = call.keep_partial(Json::from(number.to_string().as_str()));
                let given_up = tokio::time::timeout(Duration::from_millis(*millis), kept).await.is_err();
                assert!(given_up, "the store is away");
            }
            plan.heal();
            call.keep_partial(Json::from("last")).await?;
            Ok::<_, ToolError>("ok")
        }
    });
    let (agent, _) = agent(Script::new("m").call("keep", of("x")).text("done"), |builder| {
        builder.durability(Durability::Sync).on_persist_failure(PersistFailure::Pause).tool(keep)
    });
    assert_eq!(soon(agent.run_once("go", &session)).await.unwrap().text(), "done");
    assert!(!rig.results().await[0].error, "{:?}", rig.results().await);
    let kept = rig.records().await.into_iter().filter_map(|record| match record {
        Record::EffectPartial(partial) => Some(partial.value.decode::<String>().unwrap()),
        _ => None,
    });
    let expected = (0..patience.len()).map(|number| number.to_string()).chain(["last".to_owned()]);
    assert_eq!(kept.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn what_a_tool_kept_is_stored_although_it_gave_up_waiting_for_a_store_out_of_reach() {
    keeps_all_it_gave_up(Fault::Unreachable, &[60, 60, 60]).await;
}

#[tokio::test]
async fn what_a_tool_kept_is_stored_although_it_gave_up_waiting_for_a_full_store_at_any_moment() {
    keeps_all_it_gave_up(Fault::Full, &[120, 4, 120, 4, 120, 4, 120, 4, 120, 4, 120, 4]).await;
}

#[tokio::test]
async fn a_run_that_stood_still_while_its_disk_was_full_writes_nothing_twice() {
    let rig = Rig::memory().await;
    let (session, plan) = rig.faulty().await;
    let model = HeldModel::new(Script::new("m").text("the answer"), 0);
    let agent = model.agent(|builder| builder.on_persist_failure(PersistFailure::Pause));
    let mut run = agent.run("go", &session).await.unwrap();
    soon(model.began()).await;
    // It can be read and not written, and the writer has given up before there is an answer.
    plan.fail_from(0, Fault::Full);
    eventually(async || (plan.calls() >= 3).then_some(())).await;
    model.release();
    let away = |event: &Event| matches!(event, Event::Live(live) if matches!(live.kind, LiveKind::StoreAway { .. }));
    soon(async { while !away(&run.next_event().await.unwrap().unwrap()) {} }).await;
    // It tries more than once to go on, each time with three attempts.
    let before = plan.calls();
    eventually(async || (plan.calls() > before + 9).then_some(())).await;
    plan.heal();
    let report = soon(run.report()).await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "the answer"));
    let records = rig.records().await;
    let answers = records.iter().filter(|record| matches!(record, Record::LogAppendOutcomes(_)));
    assert_eq!(answers.count(), 1);
    rig.world.engine().journal().load(rig.key(), None).await.unwrap();
    assert_eq!(rig.messages().await.len(), 2);
}
