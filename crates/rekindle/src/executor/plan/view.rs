//! A plan as people see it: how far each step is, what came of it, and what came of a run.

use std::collections::BTreeMap;

use rekindle_core::record::RunOutcome;
use rekindle_core::{Json, Result, State};
use serde::{Deserialize, Serialize};

use super::Inner;
use super::state::{LastError, PlanRegister, StepRegister, StepResult, StepStatus};
use crate::driver::{MEMORY, RunReport};

/// How far a plan is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PlanState {
    /// The request.
    pub query: String,
    /// The steps, in the order of the plan.
    pub steps: Vec<StepView>,
    /// What completed steps gave back, in the order they ended.
    pub results: Vec<StepResult>,
    /// The working memory.
    pub context: BTreeMap<String, Json>,
    /// What went wrong last.
    pub last_error: Option<LastError>,
}

/// How far a step is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StepView {
    /// The step.
    pub id: String,
    /// What it is for.
    pub description: String,
    /// The tool it calls.
    pub action: String,
    /// How far it is.
    pub status: StepStatus,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl PlanState {
    /// A step.
    pub fn step(&self, id: &str) -> Option<&StepView> {
        self.steps.iter().find(|step| step.id == id)
    }

    /// What a step gave back.
    pub fn output(&self, id: &str) -> Option<&Json> {
        self.results.iter().rev().find(|result| result.step_id == id).map(|result| &result.output)
    }
}

/// What one run of a plan did, in short: the `value` of its [`RunReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanSummary {
    /// Whether all required steps are completed.
    pub success: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time spent working, over all runs since the plan was started.
    pub total_duration_ms: u64,
    /// Tokens used, over all runs since the plan was started.
    pub tokens: u64,
    /// How many steps this run carried out.
    pub steps_executed: u64,
    /// How many steps this run did not repeat because an earlier one had completed them.
    pub steps_recovered: u64,
}

/// What came of a run of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanResult {
    /// Whether all required steps are completed.
    pub success: bool,
    /// How far the plan is.
    pub state: PlanState,
    /// Why it did not succeed.
    pub error: Option<String>,
    /// Time spent working, over all runs since the plan was started.
    pub total_duration_ms: u64,
    /// Tokens used, over all runs since the plan was started.
    pub tokens: u64,
    /// How many steps this run carried out.
    pub steps_executed: u64,
    /// How many steps this run did not repeat because an earlier one had completed them.
    pub steps_recovered: u64,
    /// The run.
    pub report: RunReport,
}

impl PlanResult {
    pub(super) fn new(state: PlanState, report: RunReport) -> Result<Self> {
        let summary: Option<PlanSummary> = report.value.as_ref().map(Json::decode).transpose()?;
        let summary = summary.unwrap_or_else(|| PlanSummary {
            success: false,
            error: (report.outcome != RunOutcome::Succeeded).then(|| report.reason.clone()),
            total_duration_ms: report.spent.active_micros / 1_000,
            tokens: report.spent.of(crate::Budget::Tokens),
            steps_executed: 0,
            steps_recovered: 0,
        });
        Ok(Self {
            success: summary.success,
            state,
            error: summary.error,
            total_duration_ms: summary.total_duration_ms,
            tokens: summary.tokens,
            steps_executed: summary.steps_executed,
            steps_recovered: summary.steps_recovered,
            report,
        })
    }
}

impl Inner {
    /// How far the plan is, as `state` says.
    pub(super) fn view(&self, state: &State) -> Result<PlanState> {
        let at = PlanRegister::load(state)?;
        let mut known = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            known.push(StepRegister::load(state, &step.spec.id, at.turn)?);
        }
        let statuses = self.statuses(&known);
        let steps = self.steps.iter().zip(known).zip(statuses).map(|((step, register), mut status)| {
            let effect = super::effect(at.turn, &step.spec.id, register.failures);
            let open = effect.ok().and_then(|effect| state.effect(&effect)).is_some_and(|known| !known.is_settled());
            if open && status != StepStatus::Completed {
                status = StepStatus::Running;
            }
            StepView {
                id: step.spec.id.clone(),
                description: step.spec.description.clone(),
                action: step.spec.action.clone(),
                status,
                error: register.error.filter(|_| status == StepStatus::Failed),
            }
        });
        let steps = steps.collect();
        let memory = state.registers().filter_map(|(key, value)| Some((key.as_str().strip_prefix(MEMORY)?, value)));
        Ok(PlanState {
            query: at.query.clone(),
            steps,
            results: at.results(state).iter().map(Json::decode).collect::<Result<_>>()?,
            context: memory.map(|(key, value)| (key.to_owned(), value.clone())).collect(),
            last_error: at.last_error,
        })
    }

    /// What is on record, and which steps are blocked by what failed.
    pub(super) fn statuses(&self, known: &[StepRegister]) -> Vec<StepStatus> {
        let mut statuses: Vec<StepStatus> = known.iter().map(|register| register.status).collect();
        let failed = (0..statuses.len()).filter(|step| statuses[*step] == StepStatus::Failed);
        let mut open: Vec<usize> = failed.collect();
        while let Some(step) = open.pop() {
            for dependant in &self.steps[step].dependants {
                if statuses[*dependant] == StepStatus::Pending {
                    statuses[*dependant] = StepStatus::Blocked;
                    open.push(*dependant);
                }
            }
        }
        statuses
    }
}
