//! What the source document's tests and examples name, under recognisable names.

use rekindle::core::record::{CheckpointTrigger, RunOutcome};
use rekindle::core::retention::{Policy, Rule};
use rekindle::operations::{self, At};
use rekindle::plan::{StepSpec, StepStatus};
use rekindle::tool::{ToolError, tool};
use rekindle::{Plan, ResumeOptions};
use serde_json::json;

use crate::common::{
    Failing, checkpoints, marks, noting, output, plan, resume, resume_with, runs, seen, status, step, succeeded, three,
};
use crate::kit::Rig;
use crate::support::{Kind, Of};

#[tokio::test]
async fn should_save_and_load_checkpoints() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let test = tool("test", "Tests.", async |_, _: Of| Ok::<_, ToolError>("result"));
        let plan = plan(|plan| plan.tool(test).step(step("1", "test", "")));
        plan.run_once("test query", &rig.session).await.unwrap();
        let latest = operations::inspect(&rig.world.engine(), rig.key(), &At::Latest).await.unwrap();
        let loaded = plan.state(&latest.state).unwrap();
        assert_eq!((loaded.query.as_str(), loaded.results.len()), ("test query", 1), "{kind:?}");
        assert_eq!(output(&loaded, "1"), json!("result"));
        // And by its id, the one behind the step.
        let saved = checkpoints(&rig).await.into_iter().find(|saved| saved.step == 1).unwrap();
        let by_id = operations::inspect(&rig.world.engine(), rig.key(), &At::Checkpoint(saved.id)).await.unwrap();
        assert_eq!(status(&plan.state(&by_id.state).unwrap(), "1"), StepStatus::Completed);
    }
}

/// Fifteen steps, one after the other.
fn fifteen(rig: &Rig) -> Plan {
    let steps = (0..15).map(|number| {
        let step = step(&format!("s{number}"), "note", "x");
        if number == 0 { step } else { step.after([format!("s{}", number - 1)]) }
    });
    plan(|plan| plan.tool(noting(&rig.world.ledger(), "note")).steps(steps))
}

#[tokio::test]
async fn should_prune_old_checkpoints() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let plan = fifteen(&rig);
        plan.run_once("go", &rig.session).await.unwrap();
        assert_eq!(checkpoints(&rig).await.len(), 16, "one for each step, and the end");
        let policy = Policy::new([Rule::LastN(10)]);
        let pruned = operations::prune(&rig.engine, rig.key(), &policy, false).await.unwrap();
        assert_eq!(pruned.plan.remove.len(), 6);
        let left = checkpoints(&rig).await;
        assert_eq!(left.len(), 10, "{kind:?}");
        for checkpoint in left {
            let seen = operations::inspect(&rig.world.engine(), rig.key(), &At::Checkpoint(checkpoint.id)).await;
            assert_eq!(plan.state(&seen.unwrap().state).unwrap().results.len() as u64, checkpoint.step, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn should_prune_old_checkpoints_by_itself() {
    let rig = Rig::memory().await;
    let spec = fifteen(&rig).spec().clone();
    let note = noting(&rig.world.ledger(), "note");
    let plan = Plan::from_spec(spec).tool(note).retention(Policy::new([Rule::LastN(10)])).build().unwrap();
    succeeded(&plan.run_once("go", &rig.session).await.unwrap());
    assert_eq!(checkpoints(&rig).await.len(), 10);
}

#[tokio::test]
async fn should_resume_from_checkpoint() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let ledger = rig.world.ledger();
        let plan = plan(|plan| plan.tool(noting(&ledger, "note")).steps(three("note")));
        plan.run_once("go", &rig.session).await.unwrap();
        let checkpoint = checkpoints(&rig).await.into_iter().find(|found| found.step == 1).unwrap();
        let at = operations::inspect(&rig.engine, rig.key(), &At::Checkpoint(checkpoint.id.clone())).await.unwrap();
        let before = plan.state(&at.state).unwrap().results.len();
        let options = ResumeOptions::new("maria").from_checkpoint(checkpoint.id);
        let result = resume_with(&plan, &rig, options).await.unwrap();
        succeeded(&result);
        assert!(result.state.results.len() > before, "{kind:?}");
        assert_eq!((result.steps_executed, result.steps_recovered), (2, 1), "{kind:?}");
        assert_eq!((runs(&ledger, "one"), runs(&ledger, "two"), runs(&ledger, "three")), (1, 2, 2));
    }
}

/// Competitors, their revenue, a report; the second step fails so often.
fn research(rig: &Rig, times: u32) -> Plan {
    let ledger = rig.world.ledger();
    let find = tool("find", "Finds.", {
        let ledger = ledger.clone();
        move |_, _: Of| {
            ledger.write("1 x");
            async move { Ok::<_, ToolError>(["CompanyA", "CompanyB", "CompanyC"]) }
        }
    });
    plan(|plan| {
        plan.tool(find)
            .tool(Failing::times(times).tool(&ledger, "fetch", |why| ToolError::failed(why)))
            .tool(noting(&ledger, "compile"))
            .step(step("1", "find", "competitors").describe("Identify competitors from industry database"))
            .step(step("2", "fetch", "Q4 of ${steps.1.output.0}").after(["1"]).describe("Fetch Q4 revenue"))
            .step(step("3", "compile", "report: ${steps.2.output}").after(["2"]).describe("Compile the report"))
    })
}

#[tokio::test]
async fn example_1_a_network_failure_in_step_2() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (plan, ledger) = (research(&rig, 1), rig.world.ledger());
    let result = plan.run_once("Find all competitors and their quarterly revenue", &rig.session).await.unwrap();
    assert_eq!((result.success, result.report.outcome), (false, RunOutcome::Failed));
    let found = checkpoints(&rig).await;
    assert_eq!((found[0].trigger, found[0].step), (CheckpointTrigger::Error, 1));
    assert_eq!(found[1].trigger, CheckpointTrigger::Auto);
    let at = seen(&plan, &rig).await;
    let last_error = at.last_error.clone().unwrap();
    assert_eq!((last_error.step.as_str(), last_error.message.as_str()), ("2", "API timeout"));
    assert_eq!(output(&at, "1"), json!(["CompanyA", "CompanyB", "CompanyC"]));

    let result = resume(&plan, &rig).await.unwrap();
    succeeded(&result);
    assert_eq!((result.steps_executed, result.steps_recovered), (2, 1));
    assert_eq!((runs(&ledger, "1"), runs(&ledger, "2"), runs(&ledger, "3")), (1, 2, 1));
    assert_eq!(output(&result.state, "3"), json!("report: Q4 of CompanyA"));
}

#[tokio::test]
async fn example_2_a_checkpoint_by_hand() {
    let rig = Rig::memory().await;
    let description = "User requested pause before external API calls";
    let ask = tool("ask", "Marks.", move |call, of: Of| async move {
        call.checkpoint(description).await?;
        Ok::<_, ToolError>(of.what)
    });
    let plan = plan(|plan| plan.tool(ask).step(StepSpec::new("1", "ask").with("what", "x")));
    succeeded(&plan.run_once("go", &rig.session).await.unwrap());
    let found = checkpoints(&rig).await;
    let manual = found.iter().find(|found| found.trigger == CheckpointTrigger::Manual).unwrap();
    assert_eq!(manual.description, description);
    operations::checkpoint(&rig.engine, rig.key(), "afterwards", "maria").await.unwrap();
    assert_eq!(marks(&rig).await.last().unwrap(), "afterwards");
}
