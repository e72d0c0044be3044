//! Flows: durable steps in plain Rust.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::Record;
use rekindle::core::record::{EffectKind, InDoubtPolicy, OutcomeStatus, RunOutcome};
use rekindle::wait::WaitSpec;
use rekindle::{Error, ErrorKind, Flow, Json, OnWait, RunOptions, RunReport, Status};
use rekindle_store::{Fault, FaultPlan};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Barrier;

use crate::kit::{Held, Rig, quick};
use crate::support::{Kind, Ledger};

fn sync() -> RunOptions {
    RunOptions { durability: Durability::Sync, ..RunOptions::default() }
}

async fn resume(flow: &Flow, rig: &Rig) -> rekindle::Result<RunReport> {
    flow.resume(&rig.again().await).await?.report().await
}

fn value(report: &RunReport) -> serde_json::Value {
    report.value.as_ref().unwrap().to_value().unwrap()
}

/// Three steps, each of which writes a line.
fn report_flow(ledger: &Ledger) -> Flow {
    let ledger = ledger.clone();
    let flow = Flow::new("report", move |ctx: rekindle::FlowContext, month: String| {
        let ledger = ledger.clone();
        async move {
            let note = |name: &str, key: &str| ledger.write(&format!("{name} {key}"));
            let rows: u64 = ctx
                .step("fetch", &month, async |call| {
                    note("fetch", &call.idempotency_key);
                    Ok(31)
                })
                .await?;
            let links = tokio::join!(
                ctx.step("upload", &rows, async |call| {
                    note("upload", &call.idempotency_key);
                    Ok(format!("{rows} rows"))
                }),
                ctx.step("notify", &rows, async |call| {
                    note("notify", &call.idempotency_key);
                    Ok(())
                }),
            );
            links.1?;
            links.0
        }
    });
    flow.with_options(sync())
}

/// The steps that are on record as done.
fn done(records: &[Record]) -> Vec<String> {
    let done = records.iter().filter_map(|record| match record {
        Record::EffectOutcome(outcome) if outcome.status == OutcomeStatus::Ok => Some(outcome.effect.to_string()),
        _ => None,
    });
    done.collect()
}

fn count(ledger: &Ledger, step: &str) -> usize {
    ledger.lines().iter().filter(|line| line.starts_with(&format!("{step} "))).count()
}

#[tokio::test]
async fn a_flow_stopped_at_every_commit_comes_to_the_same_and_repeats_no_recorded_step() {
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let mut at = 0;
        loop {
            let rig = Rig::new(Kind::Sqlite).await;
            let ledger = rig.world.ledger();
            let flow = report_flow(&ledger);
            let (session, plan) = rig.faulty().await;
            plan.fail_from(at, fault);
            if let Ok(run) = flow.run(&"may", &session).await {
                let _ = run.report().await;
            }
            let crashed = plan.calls() > at;
            rig.world.pass_leases();
            let recorded = done(&rig.records().await);
            let before = ledger.counts();
            let report = match rig.state().await.status().seen(false) {
                Status::Succeeded => None,
                Status::Idle => Some(flow.run_once(&"may", &rig.again().await).await.unwrap()),
                _ => Some(resume(&flow, &rig).await.unwrap()),
            };
            if let Some(report) = report {
                assert_eq!(value(&report), json!("31 rows"), "{fault:?} at call {at}");
            }
            for step in ["fetch", "upload", "notify"] {
                let ran = |counts: &BTreeMap<String, usize>| -> usize {
                    counts.iter().filter(|(line, _)| line.starts_with(&format!("{step} "))).map(|(_, n)| n).sum()
                };
                let keys = ledger.counts().keys().filter(|line| line.starts_with(&format!("{step} "))).count();
                assert_eq!(keys, 1, "{fault:?} at call {at}: {step} has one key");
                if recorded.contains(&format!("f1.{step}")) {
                    assert_eq!(ran(&ledger.counts()), ran(&before), "{fault:?} at call {at}: {step} ran again");
                }
            }
            if !crashed {
                break;
            }
            at += 1;
        }
        assert!(at > 6, "{at} commit points");
    }
}

#[tokio::test]
async fn an_unbroken_flow_runs_each_step_once_and_can_run_again() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let flow = report_flow(&ledger);
    assert_eq!(value(&flow.run_once(&"may", &rig.session).await.unwrap()), json!("31 rows"));
    assert_eq!(resume(&flow, &rig).await.unwrap_err().code(), "RK0010");
    flow.run_once(&"june", &rig.session).await.unwrap();
    assert_eq!(["fetch", "upload", "notify"].map(|step| count(&ledger, step)), [2, 2, 2]);
    assert_eq!(ledger.counts().len(), 6, "each run has keys of its own");
}

#[tokio::test]
async fn two_steps_of_one_name_are_an_error() {
    let rig = Rig::memory().await;
    let flow = Flow::new("twice", async |ctx: rekindle::FlowContext, (): ()| {
        let _: u64 = ctx.step("same", &1, async |_| Ok(1)).await?;
        ctx.step("same", &2, async |_| Ok(2_u64)).await
    });
    let error = flow.run_once(&(), &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0001");
    assert!(format!("{error:?}").contains("two steps named `same`"), "{error:?}");
    assert_eq!(rig.state().await.status(), Status::Failed);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    lines: Vec<(String, Option<f64>)>,
}

/// Steps of many types, then a wait, then whether what they gave is what they gave the first time.
fn typed() -> Flow {
    let flow = Flow::new("typed", async |ctx: rekindle::FlowContext, (): ()| {
        let order = Order { id: u64::MAX, lines: vec![("ü\"\n".into(), Some(0.1)), (String::new(), None)] };
        ctx.step("nothing", &(), async |_| Ok(())).await?;
        let none: Option<u8> = ctx.step("none", &(), async |_| Ok(None)).await?;
        let given: Order = ctx.step("order", &order, async |_| Ok(order.clone())).await?;
        let json: Json = ctx.step("json", &(), async |_| Ok(Json::null())).await?;
        ctx.sleep("rest", Duration::from_secs(60)).await?;
        ctx.wait("go", &WaitSpec::signal("go")).await?;
        Ok((none.is_none(), given == order, json))
    });
    flow.with_options(sync())
}

#[tokio::test]
async fn results_of_any_type_come_back_as_they_were() {
    let rig = Rig::new(Kind::Sqlite).await;
    let flow = typed();
    let report = flow.run_once(&(), &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    rig.world.clock.advance(Duration::from_secs(60));
    assert_eq!(resume(&flow, &rig).await.unwrap().outcome, RunOutcome::Waiting, "now for the signal");
    rig.answer_with(json!(null)).await;
    let report = resume(&flow, &rig).await.unwrap();
    assert_eq!(value(&report), json!([true, true, null]));
}

#[tokio::test]
async fn waits_of_a_flow_survive_and_bring_their_answer() {
    let rig = Rig::new(Kind::Sqlite).await;
    let ledger = rig.world.ledger();
    let steps = ledger.clone();
    let flow = Flow::new("ask", move |ctx: rekindle::FlowContext, name: String| {
        let ledger = steps.clone();
        async move {
            ctx.step("before", &name, async |_| {
                ledger.write("before");
                Ok(())
            })
            .await?;
            let answer = ctx.wait("colour", &WaitSpec::question(format!("Which colour, {name}?"))).await?;
            let colour: String = answer.decode()?;
            ctx.step("after", &colour, async |_| {
                ledger.write(&format!("after {colour}"));
                Ok(colour.clone())
            })
            .await
        }
    });
    let report = flow.run_once(&"jon", &rig.session).await.unwrap();
    assert_eq!((report.outcome, rig.wait().await.prompt.as_str()), (RunOutcome::Waiting, "Which colour, jon?"));
    assert_eq!(resume(&flow, &rig).await.unwrap().outcome, RunOutcome::Waiting);
    rig.answer_with(json!("blue")).await;
    assert_eq!(value(&resume(&flow, &rig).await.unwrap()), json!("blue"));
    assert_eq!(ledger.lines(), ["before", "after blue"]);
}

#[tokio::test]
async fn a_flow_that_holds_goes_on_in_the_same_run() {
    let rig = Rig::memory().await;
    let flow =
        Flow::new("hold", async |ctx: rekindle::FlowContext, (): ()| ctx.wait("signal", &WaitSpec::signal("go")).await);
    let flow = flow.with_options(RunOptions { on_wait: OnWait::Hold, ..RunOptions::default() });
    let mut run = flow.run(&(), &rig.session).await.unwrap();
    while rig.waits().await.is_empty() {
        run.next_event().await.unwrap();
    }
    rig.answer_with(json!(7)).await;
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, value(&report)), (RunOutcome::Succeeded, json!(7)));
}

/// A flow whose step kills the store the first time it runs.
fn dying(plan: &Arc<FaultPlan>, policy: InDoubtPolicy, ledger: &Ledger) -> Flow {
    let (plan, ledger) = (plan.clone(), ledger.clone());
    let flow = Flow::new("dying", move |ctx: rekindle::FlowContext, (): ()| {
        let (plan, ledger) = (plan.clone(), ledger.clone());
        async move {
            ctx.step_with("charge", &5, policy, quick(1), async |call| {
                ledger.write(&call.idempotency_key);
                if ledger.lines().len() == 1 {
                    plan.fail_from(0, Fault::Unreachable);
                }
                Ok("charged".to_owned())
            })
            .await
        }
    });
    flow.with_options(sync())
}

#[tokio::test]
async fn a_step_in_doubt_is_repeated_with_its_key_or_refused_as_its_policy_says() {
    for policy in [InDoubtPolicy::Idempotent, InDoubtPolicy::ReplaySafe, InDoubtPolicy::Never, InDoubtPolicy::Ask] {
        let rig = Rig::new(Kind::Sqlite).await;
        let ledger = rig.world.ledger();
        let (session, plan) = rig.faulty().await;
        let flow = dying(&plan, policy, &ledger);
        flow.run_once(&(), &session).await.unwrap_err();
        rig.world.pass_leases();
        let resumed = resume(&flow, &rig).await;
        if matches!(policy, InDoubtPolicy::Never | InDoubtPolicy::Ask) {
            assert_eq!(resumed.unwrap_err().code(), "RK0022", "{policy:?}");
            assert_eq!(ledger.lines().len(), 1, "{policy:?}");
            assert_eq!(resume(&flow, &rig).await.unwrap_err().code(), "RK0022", "{policy:?}: and again");
        } else {
            assert_eq!(value(&resumed.unwrap()), json!("charged"), "{policy:?}");
            assert_eq!(ledger.counts().into_values().collect::<Vec<_>>(), [2], "{policy:?}: twice, with one key");
        }
    }
}

#[tokio::test]
async fn steps_run_at_the_same_time() {
    let rig = Rig::memory().await;
    let barrier = Arc::new(Barrier::new(3));
    let flow = Flow::new("parallel", move |ctx: rekindle::FlowContext, (): ()| {
        let barrier = barrier.clone();
        async move {
            let meet = async |name: &'static str| {
                ctx.step(name, &(), async |_| {
                    barrier.wait().await;
                    Ok(name.to_owned())
                })
                .await
            };
            let (a, b, c) = tokio::join!(meet("a"), meet("b"), meet("c"));
            Ok([a?, b?, c?])
        }
    });
    assert_eq!(value(&flow.run_once(&(), &rig.session).await.unwrap()), json!(["a", "b", "c"]));
    let kinds = rig.records().await.into_iter().filter(
        |record| matches!(record, Record::EffectIntent(intent) if intent.kind == EffectKind::Step && intent.attempt == 1),
    );
    assert_eq!(kinds.count(), 3);
}

#[tokio::test]
async fn a_recorded_step_with_another_input_is_a_mismatch() {
    let rig = Rig::memory().await;
    let input = Arc::new(AtomicU64::new(1));
    let asked = input.clone();
    let flow = Flow::new("moody", move |ctx: rekindle::FlowContext, (): ()| {
        let input = asked.load(Ordering::SeqCst);
        async move {
            let doubled: u64 = ctx.step("double", &input, async |_| Ok(input * 2)).await?;
            ctx.wait("signal", &WaitSpec::signal("go")).await?;
            Ok(doubled)
        }
    });
    assert_eq!(flow.run_once(&(), &rig.session).await.unwrap().outcome, RunOutcome::Waiting);
    input.store(2, Ordering::SeqCst);
    let error = resume(&flow, &rig).await.unwrap_err();
    assert_eq!(error.code(), "RK0021", "{error:?}");
    input.store(1, Ordering::SeqCst);
    rig.answer_with(json!(null)).await;
    assert_eq!(value(&resume(&flow, &rig).await.unwrap()), json!(2), "with its old input it goes on");
}

#[tokio::test]
async fn a_step_is_tried_again_if_its_failure_may_pass_and_fails_the_flow_if_not() {
    for (kind, tries) in [(ErrorKind::StoreUnavailable, 3), (ErrorKind::Invalid, 1)] {
        let rig = Rig::memory().await;
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        let flow = Flow::new("failing", move |ctx: rekindle::FlowContext, (): ()| {
            let (calls, kind) = (counted.clone(), kind.clone());
            async move {
                ctx.step_with("fail", &(), InDoubtPolicy::Idempotent, quick(3), async |_| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    Err::<(), _>(Error::new(kind.clone(), "deliberate").into())
                })
                .await
            }
        });
        let error = flow.run_once(&(), &rig.session).await.unwrap_err();
        assert_eq!(error.code(), "RK0025");
        assert!(error.message().contains("deliberate"), "{error}");
        assert_eq!(calls.load(Ordering::SeqCst), tries);
        assert_eq!(rig.state().await.status(), Status::Failed);
    }
}

#[tokio::test]
async fn a_stopped_flow_lets_its_step_end_and_begins_no_other() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let ledger = rig.world.ledger();
    let (gate, steps) = (Arc::new(tokio::sync::Semaphore::new(0)), ledger.clone());
    let (began, inside) = (Arc::new(tokio::sync::Notify::new()), gate.clone());
    let started = began.clone();
    let flow = Flow::new("two", move |ctx: rekindle::FlowContext, (): ()| {
        let (gate, ledger, started) = (inside.clone(), steps.clone(), started.clone());
        async move {
            ctx.step("one", &(), async |_| {
                ledger.write("one");
                started.notify_one();
                gate.acquire().await.unwrap().forget();
                Ok(())
            })
            .await?;
            ctx.step("two", &(), async |_| {
                ledger.write("two");
                Ok("both".to_owned())
            })
            .await
        }
    });
    let run = flow.run(&(), &rig.session).await.unwrap();
    began.notified().await;
    run.stop("a while");
    gate.add_permits(1);
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Paused, "the run was paused"));
    assert_eq!(ledger.lines(), ["one"]);
    assert_eq!(value(&resume(&flow, &rig).await.unwrap()), json!("both"));
    assert_eq!((ledger.lines().len(), held.calls()), (2, 0));
}

#[tokio::test]
async fn a_flow_that_panics_has_failed_and_can_be_resumed_or_given_up() {
    let rig = Rig::memory().await;
    let flow = |deep: bool| {
        Flow::new("panics", move |ctx: rekindle::FlowContext, _: bool| async move {
            let step = async |_| {
                assert!(!deep, "deliberate");
                Ok(1_u64)
            };
            ctx.step("maybe", &1, step).await
        })
    };
    let error = flow(true).run_once(&true, &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0025");
    assert!(error.message().contains("deliberate"), "{error}");
    assert_eq!(rig.state().await.status(), Status::Failed);
    // Begun anew, what it did before would be done again: that must be said.
    assert_eq!(flow(false).run_once(&true, &rig.session).await.unwrap_err().code(), "RK0019");
    let report = flow(false).resume(&rig.session).await.unwrap().report().await.unwrap();
    assert_eq!(value(&report), json!(1));
    flow(true).run_once(&true, &rig.session).await.unwrap_err();
    let engine = &rig.engine;
    rekindle::operations::cancel(engine, rig.session.key(), &Default::default()).await.unwrap();
    assert_eq!(value(&flow(false).run_once(&true, &rig.session).await.unwrap()), json!(1));
}

#[tokio::test]
async fn the_step_that_failed_a_flow_is_made_anew_with_the_same_key() {
    let rig = Rig::memory().await;
    let ledger = rig.world.ledger();
    let flow = |works: bool, ledger: crate::support::Ledger| {
        Flow::new("ship", move |ctx: rekindle::FlowContext, _: bool| {
            let ledger = ledger.clone();
            async move {
                let charge = async |call: rekindle::executor::Attempt| {
                    ledger.write(&format!("charge {}", call.idempotency_key));
                    Ok(5_u64)
                };
                let paid: u64 = ctx.step("charge", &1, charge).await?;
                let ship = async |call: rekindle::executor::Attempt| {
                    ledger.write(&format!("ship {}", call.idempotency_key));
                    if works { Ok(paid) } else { Err(rekindle::tool::ToolError::failed("no boat")) }
                };
                ctx.step("ship", &1, ship).await
            }
        })
    };
    let error = flow(false, ledger.clone()).run_once(&true, &rig.session).await.unwrap_err();
    assert!(error.message().contains("no boat"), "{error}");
    flow(false, ledger.clone()).resume(&rig.session).await.unwrap().report().await.unwrap_err();
    let report = flow(true, ledger.clone()).resume(&rig.session).await.unwrap().report().await.unwrap();
    assert_eq!(value(&report), json!(5));
    let counts = ledger.counts();
    assert_eq!(counts.len(), 2, "one key for each step: {counts:?}");
    let times: Vec<usize> = counts.into_values().collect();
    assert_eq!(times, [1, 3], "what succeeded was not done again");
}

#[tokio::test]
async fn a_session_of_an_agent_is_not_for_a_flow() {
    let rig = Rig::memory().await;
    let (agent, _) = crate::kit::agent(rekindle_models::Script::new("m").text("hello"), |builder| builder);
    agent.run_once("hi", &rig.session).await.unwrap();
    let error = report_flow(&rig.world.ledger()).run_once(&"may", &rig.session).await.unwrap_err();
    assert_eq!(error.code(), "RK0001");
    assert!(error.message().contains("`agent`"), "{error}");
}
