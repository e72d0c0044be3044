//! Plans that began elsewhere and go on here.

use rekindle::operations;
use rekindle::plan::{PlanResult, PlanSpec, StepStatus};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{CheckpointId, Engine, Plan, Result, ResumeOptions, RunOutcome, Session};
use rekindle_import::ImportOptions;
use serde_json::{Map, Value, json};

use crate::kit::{database, says};
use crate::support::{Kind, Ledger, World, state};

#[derive(serde::Deserialize, JsonSchema)]
struct Anything {
    #[serde(flatten)]
    all: Map<String, Value>,
}

/// A tool that notes what it is given and says that it was there.
fn noting(ledger: &Ledger, name: &'static str) -> FnTool<Anything> {
    let ledger = ledger.clone();
    tool(name, "Notes.", move |_, of: Anything| {
        ledger.write(&format!("{name} {}", Value::Object(of.all)));
        async move { Ok::<_, ToolError>(format!("{name} here")) }
    })
    .writes()
}

/// A plan as it was written down, with its tools.
fn plan(spec: PlanSpec, ledger: &Ledger) -> Plan {
    let tools = ["search_database", "fetch_revenue", "write_report"];
    tools.into_iter().fold(Plan::from_spec(spec), |plan, name| plan.tool(noting(ledger, name))).build().unwrap()
}

/// The plan of an imported session, as the import has kept it.
async fn kept(engine: &Engine, session: &Session) -> PlanSpec {
    state(engine, session.key()).await.register("imported/plan").unwrap().decode().unwrap()
}

/// An imported session, and the plan to go on with.
async fn imported(world: &World, more: &str, id: &str) -> (Session, PlanSpec) {
    let engine = world.engine();
    let (_directory, path) = database(more);
    rekindle_import::checkpoint_table(&engine, &path, ImportOptions::new()).await.unwrap();
    let session = engine.open_session(id).await.unwrap();
    let spec = kept(&engine, &session).await;
    (session, spec)
}

async fn resume_from(plan: &Plan, session: &Session, checkpoint: &str) -> Result<PlanResult> {
    let options = ResumeOptions::new("maria").from_checkpoint(CheckpointId::new(checkpoint).unwrap());
    let report = plan.resume_with(session, options).await?.report().await?;
    plan.result(session, report).await
}

/// A session whose steps have numbers, of which the first is completed.
const NUMBERED: &str = r#"INSERT INTO checkpoints VALUES ('n_1', 'numbered', 'boats', 1, '2026-03-03T09:00:05Z', '{"query": "q", "plan": [
    {"id": 1, "action": "search_database", "status": "completed"},
    {"id": 2, "action": "fetch_revenue", "status": "running", "dependencies": [1],
     "parameters": {"of": "${steps.1.output.0}", "in": "${context.region}", "for": "${query}"}}],
    "results": [{"stepId": 1, "output": ["Alder", "Birch"]}], "context": {"region": "EU"}}', NULL, 'auto', 0, 0);"#;

#[tokio::test]
async fn completed_steps_are_not_repeated_and_the_failed_one_is_tried_anew() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let (session, spec) = imported(&world, "", "broken").await;
        let result = plan(spec, &world.ledger()).resume_once(&session).await.unwrap();
        assert!(result.success, "{:?}", result.error);
        assert_eq!(world.ledger().lines(), [r#"fetch_revenue {"quarter":"Q4"}"#, "write_report {}"]);
        assert_eq!((result.steps_executed, result.steps_recovered), (2, 1));
        assert!(result.state.steps.iter().all(|step| step.status == StepStatus::Completed));
        let order: Vec<_> = result.state.results.iter().map(|result| result.step_id.as_str()).collect();
        assert_eq!(order, ["identify", "fetch", "report"]);
        assert_eq!(result.state.output("identify").unwrap().as_str(), r#"["Alder","Birch"]"#);
        assert_eq!(result.state.last_error.unwrap().message, "API timeout", "it stays on record");
    }
}

#[tokio::test]
async fn results_of_imported_steps_can_be_referred_to() {
    let world = World::new(Kind::Memory);
    let (session, spec) = imported(&world, NUMBERED, "numbered").await;
    let result = plan(spec, &world.ledger()).resume_once(&session).await.unwrap();
    assert!(result.success, "{:?}", result.error);
    assert_eq!(world.ledger().lines(), [r#"fetch_revenue {"for":"q","in":"EU","of":"Alder"}"#]);
    assert_eq!((result.steps_executed, result.steps_recovered), (1, 1));
}

#[tokio::test]
async fn a_step_that_was_under_way_is_named() {
    let engine = Engine::memory().unwrap();
    let (_directory, path) = database(NUMBERED);
    let report = rekindle_import::checkpoint_table(&engine, &path, ImportOptions::new()).await.unwrap();
    assert!(says(&report.warnings, "row 9", "step `2` was under way"), "{:?}", report.warnings);
}

#[tokio::test]
async fn a_resumed_plan_sees_only_the_results_of_its_own_run() {
    let world = World::new(Kind::Memory);
    let (session, mut spec) = imported(&world, "", "twice").await;
    spec.steps[1].parameters.insert("of".into(), json!("${steps.identify.output}"));
    let result = plan(spec, &world.ledger()).resume_once(&session).await.unwrap();
    assert_eq!(world.ledger().lines(), [r#"fetch_revenue {"of":["Cedar"],"quarter":"Q4"}"#, "write_report {}"]);
    assert_eq!((result.state.results.len(), result.steps_recovered), (3, 1));
}

#[tokio::test]
async fn a_finished_plan_refuses_a_resume_and_can_be_run_anew() {
    let world = World::new(Kind::Memory);
    let (session, spec) = imported(&world, "", "research").await;
    let plan = plan(spec, &world.ledger());
    let error = plan.resume_once(&session).await.unwrap_err();
    assert_eq!(error.code(), "RK0010", "{error}");
    assert!(world.ledger().lines().is_empty());
    let result = plan.run_once("And now?", &session).await.unwrap();
    assert_eq!((result.steps_executed, result.steps_recovered), (3, 0));
    assert_eq!(result.state.query, "And now?");
}

#[tokio::test]
async fn an_earlier_row_is_resumed_on_a_branch_of_its_own() {
    for (row, steps_recovered, made) in [("ckpt_1", 1, 2), ("ckpt_2", 1, 2), ("ckpt_3", 2, 1)] {
        let world = World::new(Kind::Memory);
        let (session, spec) = imported(&world, "", "research").await;
        let result = resume_from(&plan(spec, &world.ledger()), &session, row).await.unwrap();
        assert!(result.success, "{row}: {:?}", result.error);
        assert_eq!(result.steps_recovered, steps_recovered, "{row}");
        assert_eq!(world.ledger().lines().len(), made, "{row}");
        assert_eq!(operations::log(&world.engine(), session.key(), 10).await.unwrap().branches.len(), 2);
    }
}

#[tokio::test]
async fn a_plan_without_a_completed_step_is_refused() {
    let world = World::new(Kind::Memory);
    let (session, mut spec) = imported(&world, "", "broken").await;
    spec.steps.remove(0);
    spec.steps[0].dependencies.clear();
    let error = plan(spec, &world.ledger()).resume_once(&session).await.unwrap_err();
    assert!(error.message().contains("no step `identify`"), "{error}");
    assert!(world.ledger().lines().is_empty());
}

#[tokio::test]
async fn a_plan_that_changes_after_the_first_resume_is_refused() {
    let world = World::new(Kind::Memory);
    let (session, spec) = imported(&world, "", "broken").await;
    let fails = tool("write_report", "Fails.", async |_, _: Anything| Err::<(), _>(ToolError::failed("no paper")));
    let ledger = world.ledger();
    let (search, fetch) = (noting(&ledger, "search_database"), noting(&ledger, "fetch_revenue"));
    let first = Plan::from_spec(spec.clone()).tool(search).tool(fetch).tool(fails.writes()).build().unwrap();
    let result = first.resume_once(&session).await.unwrap();
    assert_eq!(result.report.outcome, RunOutcome::Failed);
    let mut changed = spec;
    changed.steps[2].parameters.insert("pages".into(), json!(2));
    let changed = plan(changed, &ledger);
    let error = changed.resume_once(&session).await.unwrap_err();
    assert_eq!(error.code(), "RK0009");
    assert!(error.message().contains("step report changed"), "{error}");
    let options = ResumeOptions::new("maria").accept_drift("two pages will do");
    let report = changed.resume_with(&session, options).await.unwrap().report().await.unwrap();
    let result = changed.result(&session, report).await.unwrap();
    assert_eq!((result.steps_executed, result.steps_recovered), (1, 2));
    assert_eq!(ledger.count(r#"fetch_revenue {"quarter":"Q4"}"#), 1);
}
