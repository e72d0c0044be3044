//! Flows: steps that are settled stay settled, waits are waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::{Decision, InboxAnswer, InboxMode, RunOutcome};
use rekindle::wait::WaitSpec;
use rekindle::{Error, ErrorKind, Flow, FlowContext, Json, OnWait, RunOptions};
use tokio::sync::Notify;

use crate::kit::{Counter, Rig, ended, follow, recorded, soon};
use crate::support::Kind;

#[tokio::test]
async fn a_message_for_a_failed_flow_does_not_make_its_settled_steps_run_again() {
    let rig = Rig::memory().await;
    let (counter, trouble) = (Counter::default(), Arc::new(AtomicBool::new(true)));
    let (charged, troubled) = (counter.clone(), trouble.clone());
    let flow = Flow::new("f", move |ctx: FlowContext, _: u32| {
        let (charged, troubled) = (charged.clone(), troubled.clone());
        async move {
            let charge = |_| {
                charged.add();
                async { Ok(1) }
            };
            let paid: u32 = ctx.step("charge", &1, charge).await?;
            if troubled.load(Ordering::SeqCst) { Err(Error::invalid("later trouble")) } else { Ok(paid) }
        }
    });
    flow.run_once(&1u32, &rig.session).await.unwrap_err();
    rig.send(&[rig.message(InboxMode::Queue, "hello")]).await;
    let again = async || ended(flow.resume(&rig.again().await).await).await;
    again().await.unwrap_err();
    trouble.store(false, Ordering::SeqCst);
    assert_eq!(again().await.unwrap().outcome, RunOutcome::Succeeded);
    assert_eq!(counter.count(), 1);
}

#[tokio::test]
async fn a_flow_that_takes_every_error_for_a_rejection_still_waits() {
    let rig = Rig::memory().await;
    let flow = Flow::new("f", async |ctx: FlowContext, _: u32| {
        let decided = ctx.wait("ok", &WaitSpec::approval("may I?", Json::null())).await;
        Ok(if decided.is_ok() { "approved" } else { "rejected" })
    });
    let report = flow.run_once(&1u32, &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting, "{:?}", report.value);
    rig.send(&[rig.answer(&rig.wait().await, Decision::Approve, "maria").into()]).await;
    let report = ended(flow.resume(&rig.again().await).await).await.unwrap();
    assert_eq!(report.value.unwrap().as_str(), "\"approved\"");
}

fn asks(record: &Record, prompt: &str) -> bool {
    matches!(record, Record::WaitOpened(wait) if wait.prompt == prompt)
}

#[tokio::test]
async fn a_wait_its_flow_gave_up_does_not_keep_a_run_busy_that_holds_for_another() {
    let rig = Rig::memory().await;
    let give_up = Arc::new(Notify::new());
    let given_up = give_up.clone();
    let flow = Flow::new("f", move |ctx: FlowContext, _: u32| {
        let given_up = given_up.clone();
        async move {
            let first = WaitSpec::question("a?").expiring(Duration::from_millis(50), None);
            tokio::select! {
                answer = ctx.wait("a", &first) => return answer,
                () = given_up.notified() => {}
            }
            ctx.wait("b", &WaitSpec::question("b?")).await
        }
    })
    .with_options(RunOptions { on_wait: OnWait::Hold, ..RunOptions::default() });
    let run = flow.run(&1u32, &rig.session).await.unwrap();
    recorded(&rig, |record| asks(record, "a?")).await;
    give_up.notify_one();
    recorded(&rig, |record| asks(record, "b?")).await;
    rig.world.clock.advance(Duration::from_secs(1));
    let mut events = follow(&rig).await;
    let many = async {
        for _ in 0..100 {
            events.next().await.unwrap();
        }
    };
    assert!(tokio::time::timeout(Duration::from_millis(500), many).await.is_err(), "it writes without end");
    let wait = rig.waits().await.into_iter().find(|wait| wait.prompt == "b?").unwrap();
    let value = Some(Json::from("fine"));
    rig.send(&[InboxAnswer { value, ..rig.answer(&wait, Decision::Answer, "maria") }.into()]).await;
    assert_eq!(soon(run.report()).await.unwrap().value.unwrap().as_str(), "\"fine\"");
}

#[tokio::test]
async fn two_waits_at_the_same_time_are_both_open_when_the_run_ends() {
    let rig = Rig::new(Kind::Sqlite).await;
    let flow = Flow::new("f", async |ctx: FlowContext, (): ()| {
        let (first, second) = (WaitSpec::question("a?"), WaitSpec::question("b?"));
        let (a, b) = tokio::join!(ctx.wait("a", &first), ctx.wait("b", &second));
        Ok((a?, b?))
    })
    .with_options(RunOptions { durability: Durability::Sync, ..RunOptions::default() });
    let report = flow.run_once(&(), &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting, "{}", report.reason);
    let mut asked: Vec<_> = rig.waits().await.into_iter().map(|wait| wait.prompt).collect();
    asked.sort();
    assert_eq!(asked, ["a?", "b?"]);
}

#[tokio::test]
async fn what_a_flow_does_beside_a_wait_is_done_before_its_run_ends() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (counter, asked) = (Counter::default(), Arc::new(Notify::new()));
    let shared = (counter.clone(), asked.clone());
    let flow = Flow::new("f", move |ctx: FlowContext, (): ()| {
        let (counter, asked) = shared.clone();
        async move {
            let question = WaitSpec::question("a?");
            let work = async {
                let first = async |_| {
                    asked.notified().await;
                    Ok(())
                };
                ctx.step("s1", &1, first).await?;
                ctx.checkpoint("between").await?;
                let second = async |_| {
                    counter.add();
                    Ok(())
                };
                ctx.step("s2", &1, second).await
            };
            let (answer, worked) = tokio::join!(ctx.wait("a", &question), work);
            worked?;
            answer
        }
    })
    .with_options(RunOptions { durability: Durability::Sync, ..RunOptions::default() });
    let run = flow.run(&(), &rig.session).await.unwrap();
    recorded(&rig, |record| asks(record, "a?")).await;
    asked.notify_one();
    assert_eq!(soon(run.report()).await.unwrap().outcome, RunOutcome::Waiting);
    assert_eq!(counter.count(), 1);
}

#[tokio::test]
async fn a_flow_whose_own_error_looks_like_one_of_the_store_has_failed_and_keeps_its_steps() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let charged = counter.clone();
    let flow = Flow::new("f", move |ctx: FlowContext, (): ()| {
        let charged = charged.clone();
        async move {
            let charge = async |_| {
                charged.add();
                Ok(())
            };
            ctx.step("charge", &1, charge).await?;
            Err::<(), _>(Error::new(ErrorKind::StoreUnavailable, "another database is away"))
        }
    });
    let error = flow.run_once(&(), &rig.session).await.unwrap_err();
    assert!(error.message().contains("another database"), "{error}");
    assert_eq!(soon(rig.ended()).await.outcome, RunOutcome::Failed);
    ended(flow.resume(&rig.again().await).await).await.unwrap_err();
    assert_eq!(counter.count(), 1);
}
