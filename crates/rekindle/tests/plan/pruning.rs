//! Which moments of a plan are marked, and which marks stay.

use std::time::Duration;

use rekindle::core::retention::{Policy, Rule};
use rekindle::operations::{self, At};
use rekindle::tool::{ToolError, tool};
use rekindle::{Frequency, Plan, Smart};

use crate::common::{Failing, checkpoints, marks, noting, plan, resume, step, succeeded, three};
use crate::kit::Rig;
use crate::support::{Kind, Of};

fn noted(rig: &Rig, frequency: Frequency) -> Plan {
    plan(|plan| plan.tool(noting(&rig.world.ledger(), "note")).steps(three("note")).checkpoints(frequency))
}

async fn check(frequency: Frequency, expected: &[&str]) {
    let rig = Rig::memory().await;
    succeeded(&noted(&rig, frequency.clone()).run_once("go", &rig.session).await.unwrap());
    assert_eq!(marks(&rig).await, expected, "{frequency:?}");
}

#[tokio::test]
async fn each_frequency_marks_what_it_says() {
    let (one, two, three) = ("step `one` completed", "step `two` completed", "step `three` completed");
    let end = "Execution complete";
    check(Frequency::PerIteration, &[one, two, three, end]).await;
    check(Frequency::Every(2), &[two, end]).await;
    check(Frequency::PerTurn, &[end]).await;
    check(Frequency::Manual, &[]).await;
    check(Frequency::Smart(Smart::default()), &[end]).await;
    check(Frequency::Smart(Smart { slow: Duration::ZERO, ..Smart::default() }), &[one, two, three, end]).await;
}

#[tokio::test]
async fn unless_told_otherwise_each_step_is_marked() {
    let rig = Rig::memory().await;
    let plan = plan(|plan| plan.tool(noting(&rig.world.ledger(), "note")).steps(three("note")));
    plan.run_once("go", &rig.session).await.unwrap();
    let numbers: Vec<_> = checkpoints(&rig).await.iter().rev().map(|found| found.step).collect();
    assert_eq!(numbers, [1, 2, 3, 3]);
}

#[tokio::test]
async fn smart_marks_large_results_and_the_moment_before_something_risky() {
    let rig = Rig::memory().await;
    let large = tool("large", "Says a lot.", async |_, of: Of| Ok::<_, ToolError>(of.what.repeat(5_000)));
    let smart = Smart { large: 5_000, ..Smart::default() };
    let plan = plan(|plan| {
        plan.checkpoints(Frequency::Smart(smart))
            .tool(large)
            .tool(noting(&rig.world.ledger(), "note"))
            .tool(noting(&rig.world.ledger(), "rm").risky())
            .step(step("a", "note", "x"))
            .step(step("b", "large", "x").after(["a"]))
            .step(step("c", "note", "x").after(["b"]).risky())
            .step(step("d", "rm", "x").after(["c"]))
    });
    succeeded(&plan.run_once("go", &rig.session).await.unwrap());
    let expected =
        ["step `b` completed", "before the risky step `c`", "before the risky step `d`", "Execution complete"];
    assert_eq!(marks(&rig).await, expected);
}

#[tokio::test]
async fn a_step_that_fails_is_marked_whatever_the_frequency() {
    let rig = Rig::memory().await;
    let bad = Failing::times(1).tool(&rig.world.ledger(), "bad", |why| ToolError::failed(why));
    let plan = plan(|plan| plan.tool(bad).step(step("a", "bad", "x")).checkpoints(Frequency::Manual));
    plan.run_once("go", &rig.session).await.unwrap();
    assert_eq!(marks(&rig).await, ["failed at step `a`: API timeout"]);
    succeeded(&resume(&plan, &rig).await.unwrap());
}

#[tokio::test]
async fn the_newest_checkpoint_of_every_run_stays_and_loads() {
    for kind in Kind::ALL {
        for rule in [Rule::LatestOnly, Rule::LastN(2)] {
            let rig = Rig::new(kind).await;
            let note = noting(&rig.world.ledger(), "note");
            let policy = Policy::new([rule.clone()]);
            let plan = plan(|plan| plan.tool(note).steps(three("note")).retention(policy.clone()));
            let mut runs = Vec::new();
            for query in ["first", "second", "third"] {
                runs.push(plan.run_once(query, &rig.session).await.unwrap().report.run);
            }
            operations::prune(&rig.engine, rig.key(), &policy, false).await.unwrap();
            let left = checkpoints(&rig).await;
            for (run, query) in runs.iter().zip(["first", "second", "third"]) {
                let newest = left.iter().find(|found| found.run.as_ref() == Some(run)).unwrap();
                assert_eq!(newest.description, "Execution complete", "{kind:?} {rule:?}");
                let at = At::Checkpoint(newest.id.clone());
                let seen = operations::inspect(&rig.world.engine(), rig.key(), &at).await.unwrap();
                let seen = plan.state(&seen.state).unwrap();
                assert_eq!((seen.query.as_str(), seen.results.len()), (query, 3), "{kind:?} {rule:?}");
            }
            let most = if rule == Rule::LatestOnly { 3 } else { 4 };
            assert_eq!(left.len(), most, "{kind:?} {rule:?}: {left:?}");
        }
    }
}

#[tokio::test]
async fn a_plan_that_was_pruned_while_it_failed_goes_on() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let bad = Failing::times(1).tool(&rig.world.ledger(), "bad", |why| ToolError::failed(why));
        let note = noting(&rig.world.ledger(), "note");
        let steps = [step("one", "note", "1"), step("two", "bad", "${steps.one.output}").after(["one"])];
        let plan = plan(|plan| plan.tool(note).tool(bad).steps(steps).retention(Policy::new([Rule::LatestOnly])));
        plan.run_once("go", &rig.session).await.unwrap();
        operations::prune(&rig.engine, rig.key(), &Policy::default(), false).await.unwrap();
        let result = resume(&plan, &rig).await.unwrap();
        succeeded(&result);
        assert_eq!((result.steps_executed, result.steps_recovered), (1, 1), "{kind:?}");
    }
}
