//! Steps of which nobody knows whether they happened: each policy, and a person's hand.

use rekindle::core::record::{InDoubtPolicy, RunOutcome, WaitKind};
use rekindle::operations::{self, Settlement};
use rekindle::plan::StepStatus;
use rekindle::tool::{Checked, FnTool, Tool as _};
use rekindle::{EffectId, Json, Plan};
use serde_json::json;

use crate::common::{deadly, dies, keys, noting, output, plan, resume, runs, seen, soon, status, step, succeeded};
use crate::kit::Rig;
use crate::support::{Kind, Of};

/// A plan whose second step died under way. Its tool is as `declare` says.
async fn died(kind: Kind, declare: impl FnOnce(FnTool<Of>) -> FnTool<Of>) -> (Rig, Plan) {
    let rig = Rig::new(kind).await;
    let (session, faults) = rig.faulty().await;
    let ledger = rig.world.ledger();
    let pay = declare(deadly(&faults, &ledger, "pay"));
    let may_be_repeated = pay.options().policy() == InDoubtPolicy::ReplaySafe;
    let plan = plan(|plan| {
        plan.tool(noting(&ledger, "note"))
            .tool(pay)
            .step(step("one", "note", "x"))
            .step(step("two", "pay", "five").after(["one"]))
            .step(step("three", "note", "${steps.two.output}").after(["two"]))
    });
    dies(&plan, &session, &rig).await;
    assert_eq!(runs(&ledger, "two"), 1, "it had its effect");
    // The intent of what may be repeated is recorded with the next commit, and there was none.
    let begun = if may_be_repeated { StepStatus::Pending } else { StepStatus::Running };
    assert_eq!(status(&seen(&plan, &rig).await, "two"), begun);
    (rig, plan)
}

/// Whether the plan goes on by itself, and how often the step is carried out in all.
async fn check(declare: impl FnOnce(FnTool<Of>) -> FnTool<Of>, times: usize) {
    let (rig, plan) = died(Kind::Sqlite, declare).await;
    let result = resume(&plan, &rig).await.unwrap();
    succeeded(&result);
    let keys = keys(&rig.world.ledger(), "two");
    assert_eq!(keys.len(), times);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(output(&result.state, "three"), json!("five"));
    assert_eq!(runs(&rig.world.ledger(), "one"), 1);
}

#[tokio::test]
async fn a_step_that_may_be_repeated_is_with_the_same_key() {
    check(|tool| tool.replay_safe(), 2).await;
    check(|tool| tool.writes().idempotent(), 2).await;
}

#[tokio::test]
async fn a_step_that_can_be_checked_is() {
    let happened = |tool: FnTool<Of>| tool.check(async |_, of: Of| Ok(Checked::Happened(Json::from(of.what.as_str()))));
    check(happened, 1).await;
    check(|tool| tool.check(async |_, _: Of| Ok(Checked::DidNotHappen)), 2).await;
}

#[tokio::test]
async fn a_check_that_cannot_tell_asks_a_person() {
    let (rig, plan) = died(Kind::Memory, |tool| tool.check(async |_, _: Of| Ok(Checked::Unknown))).await;
    assert_eq!(resume(&plan, &rig).await.unwrap().report.outcome, RunOutcome::Waiting);
    rig.answer_with(json!({"action": "done", "result": "five"})).await;
    succeeded(&resume(&plan, &rig).await.unwrap());
}

#[tokio::test]
async fn a_person_is_asked_and_says_what_became_of_it() {
    let cases = [
        (json!({"action": "retry"}), 2, Some("five")),
        (json!({"action": "done", "result": "paid"}), 1, Some("paid")),
        (json!({"action": "failed"}), 1, None),
    ];
    for (answer, times, expected) in cases {
        let (rig, plan) = died(Kind::Sqlite, |tool| tool.writes()).await;
        let waiting = resume(&plan, &rig).await.unwrap();
        assert_eq!((waiting.report.outcome, waiting.steps_recovered), (RunOutcome::Waiting, 1));
        let wait = rig.wait().await;
        assert_eq!((wait.kind, wait.effect.as_ref().unwrap().as_str()), (WaitKind::Question, "p1.two"));
        assert!(wait.prompt.contains("`pay`"), "{}", wait.prompt);
        rig.answer_with(answer.clone()).await;
        let result = resume(&plan, &rig).await.unwrap();
        assert_eq!((result.success, runs(&rig.world.ledger(), "two")), (expected.is_some(), times), "{answer}");
        match expected {
            Some(expected) => assert_eq!(output(&result.state, "three"), json!(expected)),
            None => assert_eq!(status(&result.state, "two"), StepStatus::Failed),
        }
    }
}

#[tokio::test]
async fn a_step_that_must_never_be_repeated_stops_the_run_until_somebody_settles_it() {
    let cases = [(Settlement::Ok(Json::from("paid")), true), (Settlement::Failed("the bank said no".into()), false)];
    for (settlement, works) in cases {
        let (rig, plan) = died(Kind::Sqlite, |tool| tool.writes().never_again()).await;
        let error = resume(&plan, &rig).await.unwrap_err();
        assert_eq!(error.code(), "RK0022");
        assert!(error.message().contains("`pay`") && error.next_step().contains("`p1.two`"), "{error}");
        let effect = EffectId::new("p1.two").unwrap();
        operations::settle(&rig.engine, rig.key(), &effect, &settlement, "maria", "asked").await.unwrap();
        let result = resume(&plan, &rig).await.unwrap();
        assert_eq!(result.success, works, "{result:?}");
        assert_eq!(runs(&rig.world.ledger(), "two"), 1);
        if works {
            assert_eq!(output(&result.state, "three"), json!("paid"));
            assert_eq!((result.steps_executed, result.steps_recovered), (2, 1));
        } else {
            assert!(result.error.unwrap().contains("the bank said no"));
            succeeded(&resume(&plan, &rig).await.unwrap());
            assert_eq!(runs(&rig.world.ledger(), "two"), 2, "what failed is tried anew");
        }
    }
}

#[tokio::test]
async fn a_tool_that_panics_after_it_wrote_is_in_doubt_while_others_write() {
    // Over a store that takes its time: what is decided about one call must not stop the others.
    let rig = Rig::new(Kind::Sqlite).await;
    let ledger = rig.world.ledger();
    let panics = rekindle::tool::tool("panics", "Panics.", async |_, of: Of| {
        assert!(of.what.is_empty(), "out of cheese");
        Ok::<_, rekindle::tool::ToolError>(of.what)
    });
    let plan = plan(|plan| {
        let steps = (0..20).map(|number| step(&format!("s{number}"), ["panics", "note"][number % 2], "x"));
        plan.tool(panics.writes()).tool(noting(&ledger, "note")).steps(steps)
    });
    let result = soon(plan.run_once("go", &rig.session)).await.unwrap();
    assert_eq!((result.report.outcome, rig.waits().await.len()), (RunOutcome::Waiting, 10));
    assert_eq!(result.steps_executed, 10);
}
