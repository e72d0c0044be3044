//! What these tests share: tools that note what they did, steps, and short ways to look at a plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::record::{Checkpoint, RunOutcome};
use rekindle::plan::{PlanResult, PlanState, StepSpec, StepStatus};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{Error, Json, Plan, PlanBuilder, ResumeOptions, RunReport, Session, State};
use rekindle_store::{Fault, FaultPlan};
use serde_json::Value;

use crate::kit::Rig;
use crate::support::{Ledger, Of};

/// A tool that writes its step and its key to the ledger and gives back what it was given.
pub fn noting(ledger: &Ledger, name: &str) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool(name, "Notes.", move |call, of: Of| {
        ledger.write(&format!("{} {}", call.call_id(), call.idempotency_key()));
        async move { Ok::<_, ToolError>(of.what) }
    })
}

/// How often a step was carried out.
pub fn runs(ledger: &Ledger, step: &str) -> usize {
    keys(ledger, step).len()
}

/// The keys a step was carried out with, in order.
pub fn keys(ledger: &Ledger, step: &str) -> Vec<String> {
    let lines = ledger.lines();
    lines.iter().filter_map(|line| line.strip_prefix(&format!("{step} ")).map(str::to_owned)).collect()
}

/// Tells so often that it failed, then gives back what it was given.
#[derive(Clone, Debug, Default)]
pub struct Failing {
    left: Arc<AtomicU32>,
}

impl Failing {
    pub fn times(times: u32) -> Self {
        Self { left: Arc::new(times.into()) }
    }

    /// It notes each call.
    pub fn tool(&self, ledger: &Ledger, name: &str, error: fn(&str) -> ToolError) -> FnTool<Of> {
        let (left, ledger) = (self.left.clone(), ledger.clone());
        tool(name, "Fails.", move |call, of: Of| {
            ledger.write(&format!("{} {}", call.call_id(), call.idempotency_key()));
            let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            async move { if fails { Err(error("API timeout")) } else { Ok(of.what) } }
        })
    }
}

/// A tool in which the process dies at its first call: it has its effect, and nothing reaches the
/// store from then on.
pub fn deadly(plan: &Arc<FaultPlan>, ledger: &Ledger, name: &str) -> FnTool<Of> {
    let (plan, ledger, first) = (plan.clone(), ledger.clone(), AtomicU32::new(0));
    tool(name, "Dies.", move |call, of: Of| {
        ledger.write(&format!("{} {}", call.call_id(), call.idempotency_key()));
        if first.fetch_add(1, Ordering::SeqCst) == 0 {
            plan.fail_from(0, Fault::Unreachable);
        }
        async move { Ok::<_, ToolError>(of.what) }
    })
}

/// What would stand still for ever if it were wrong; nothing that is right takes that long.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it stands still")
}

/// A step that gives `what` to `tool`.
pub fn step(id: &str, tool: &str, what: &str) -> StepSpec {
    StepSpec::new(id, tool).with("what", what)
}

/// A plan whose commits are on disk at once.
pub fn plan(add: impl FnOnce(PlanBuilder) -> PlanBuilder) -> Plan {
    add(Plan::builder("plan").durability(Durability::Sync)).build().unwrap()
}

/// Three steps, one after the other, of the tool `name`.
pub fn three(name: &str) -> [StepSpec; 3] {
    [step("one", name, "1"), step("two", name, "2").after(["one"]), step("three", name, "3").after(["two"])]
}

/// Goes on as another process would.
pub async fn resume(plan: &Plan, rig: &Rig) -> Result<PlanResult, Error> {
    resume_with(plan, rig, ResumeOptions::default()).await
}

pub async fn resume_with(plan: &Plan, rig: &Rig, options: ResumeOptions) -> Result<PlanResult, Error> {
    let session = rig.again().await;
    let report = plan.resume_with(&session, options).await?.report().await?;
    plan.result(&session, report).await
}

/// A run that must have died with its process; leases expire.
pub async fn dies(plan: &Plan, session: &Session, rig: &Rig) {
    let error = plan.run_once("go", session).await.map(|result| result.report.outcome).unwrap_err();
    assert!(["RK0016", "RK0017", "RK0018"].contains(&error.code()), "{error:?}");
    rig.world.pass_leases();
}

#[track_caller]
pub fn succeeded(result: &PlanResult) {
    assert!(result.success, "{:?} {:?}", result.error, result.state);
    assert_eq!(result.report.outcome, RunOutcome::Succeeded);
}

#[track_caller]
pub fn status(state: &PlanState, step: &str) -> StepStatus {
    state.step(step).unwrap_or_else(|| panic!("no step {step}")).status
}

/// The names of all statuses, in the order of the plan.
pub fn statuses(state: &PlanState) -> Vec<&'static str> {
    state.steps.iter().map(|step| step.status.as_str()).collect()
}

#[track_caller]
pub fn output(state: &PlanState, step: &str) -> Value {
    state.output(step).unwrap_or_else(|| panic!("no result of {step}")).to_value().unwrap()
}

/// How far the plan is on record.
pub async fn seen(plan: &Plan, rig: &Rig) -> PlanState {
    plan.state(&rig.state().await).unwrap()
}

/// The checkpoints of the current branch, newest first.
pub async fn checkpoints(rig: &Rig) -> Vec<Checkpoint> {
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, usize::MAX).await.unwrap();
    found.into_iter().map(|found| found.checkpoint).collect()
}

/// What they say, oldest first.
pub async fn marks(rig: &Rig) -> Vec<String> {
    checkpoints(rig).await.into_iter().rev().map(|checkpoint| checkpoint.description).collect()
}

pub fn memory(state: &State, key: &str) -> Option<Value> {
    state.register(&format!("memory/{key}")).map(|value: &Json| value.to_value().unwrap())
}

pub async fn result(plan: &Plan, session: &Session, report: RunReport) -> PlanResult {
    plan.result(session, report).await.unwrap()
}
