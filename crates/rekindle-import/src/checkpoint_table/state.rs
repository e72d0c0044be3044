//! The state of a plan as a checkpoint table has it, as logs and registers of ours.

use std::collections::{BTreeMap, BTreeSet};

use rekindle::core::record::RunOutcome;
use rekindle::executor::stored::MEMORY;
use rekindle::executor::stored::plan::{PLAN, PlanRegister, STEP, StepRegister, results as results_log};
use rekindle::plan::LastError;
use rekindle::plan::{PlanSpec, StepResult, StepSpec, StepStatus};
use rekindle::{Json, Timestamp};
use serde_json::Value;

use crate::read::{Object, Read, array, count, field, sub, text};
use crate::time;
use crate::write::{chain, kept};

/// The most steps a plan may have.
const STEPS: usize = 5_000;

/// What one row says.
#[derive(Clone)]
pub(super) struct PlanState {
    query: String,
    pub(super) steps: Vec<(StepSpec, StepStatus)>,
    results: Vec<StepResult>,
    context: BTreeMap<String, Json>,
    last_error: Option<LastError>,
}

impl PlanState {
    pub(super) fn read(state: &Object) -> Read<Self> {
        let steps: Vec<(StepSpec, StepStatus)> =
            array(state, "plan")?.unwrap_or_default().iter().map(step).collect::<Read<_>>()?;
        let ids: BTreeSet<&str> = steps.iter().map(|(step, _)| step.id.as_str()).collect();
        if ids.len() < steps.len() || ids.len() > STEPS {
            return Err(format!("its plan has several steps of one id, or more than {STEPS} steps"));
        }
        let results = array(state, "results")?.unwrap_or_default().iter().map(result).collect::<Read<_>>()?;
        let context = sub(state, "context")?.into_iter().flatten();
        let context = context.map(|(key, value)| (key.clone(), Json::from(value.clone()))).collect();
        let last_error = sub(state, "last_error")?.map(|error| last_error(error, &steps));
        let query = text(state, "query").unwrap_or_default().to_owned();
        Ok(Self { query, steps, results, context, last_error })
    }

    fn status(&self, id: &str) -> Option<StepStatus> {
        self.steps.iter().find(|(step, _)| step.id == id).map(|(_, status)| *status)
    }

    fn is_done(&self) -> bool {
        let over = |status: &StepStatus| matches!(status, StepStatus::Completed | StepStatus::Skipped);
        !self.steps.is_empty() && self.steps.iter().all(|(_, status)| over(status))
    }

    /// A failure that nothing has made up for.
    fn failure(&self) -> Option<&LastError> {
        let error = self.last_error.as_ref()?;
        (self.status(&error.step) != Some(StepStatus::Completed)).then_some(error)
    }

    /// The plan as it would be written down.
    fn spec(&self) -> PlanSpec {
        let steps = self.steps.iter().map(|(step, _)| step.clone()).collect();
        PlanSpec { name: "imported".into(), query: self.query.clone(), steps, ..PlanSpec::default() }
    }
}

fn step(value: &Value) -> Read<(StepSpec, StepStatus)> {
    let Value::Object(object) = value else { return Err("a step of its plan is not an object".into()) };
    let id = name(object, "id").ok_or("a step of its plan has no id")?;
    let status = match field(object, "status") {
        None => StepStatus::Pending,
        Some(status) => {
            serde_json::from_value(status.clone()).map_err(|_| format!("step `{id}` has a status nobody knows"))?
        }
    };
    let mut spec = StepSpec::new(&id, text(object, "action").unwrap_or_default())
        .describe(text(object, "description").unwrap_or_default());
    spec.parameters = sub(object, "parameters")?.cloned().unwrap_or_default();
    for dependency in array(object, "dependencies")?.unwrap_or_default() {
        spec.dependencies.push(plain(dependency).ok_or_else(|| format!("step `{id}` depends on something unnamed"))?);
    }
    Ok((spec, status))
}

fn result(value: &Value) -> Read<StepResult> {
    let Value::Object(object) = value else { return Err("a result is not an object".into()) };
    let step = name(object, "step_id").ok_or("a result names no step")?;
    let output = Json::from(field(object, "output").cloned().unwrap_or_default());
    let mut result = StepResult::new(&step, output, moment(object, "completed_at"));
    result.duration_ms = count(object, "duration_ms").unwrap_or(0);
    result.tokens = count(object, "token_usage").unwrap_or(0);
    Ok(result)
}

fn last_error(object: &Object, steps: &[(StepSpec, StepStatus)]) -> LastError {
    let index = count(object, "step_index").and_then(|index| usize::try_from(index).ok());
    let step = index.and_then(|index| steps.get(index)).map(|(step, _)| step.id.clone());
    let message = text(object, "message").unwrap_or_default();
    LastError::new(&step.unwrap_or_default(), message, moment(object, "timestamp"))
}

fn moment(object: &Object, name: &str) -> Timestamp {
    field(object, name).and_then(time::timestamp).unwrap_or_default()
}

/// An id, which may be a number.
fn name(object: &Object, of: &str) -> Option<String> {
    field(object, of).and_then(plain)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// What the rows so far came to.
#[derive(Default)]
pub(super) struct Before {
    turn: u64,
    state: Option<PlanState>,
    /// The results of all runs so far.
    log: Vec<Json>,
    results_from: usize,
    failures: BTreeMap<String, u32>,
}

/// Which run of the plan a row belongs to.
struct Turn {
    number: u64,
    /// How many results of earlier runs stand in the log.
    from: usize,
    /// How often each step failed.
    failures: BTreeMap<String, u32>,
}

/// What a row comes to.
pub(super) struct After {
    pub(super) logs: BTreeMap<String, Vec<Json>>,
    pub(super) registers: BTreeMap<String, Json>,
    pub(super) fresh: bool,
    pub(super) went_back: bool,
    pub(super) end: Option<(RunOutcome, String)>,
}

impl Before {
    /// Takes over the next row. Two runs of a plan in one session are never mixed: what was
    /// completed stays completed within a run, and results only grow.
    pub(super) fn next(&mut self, state: &PlanState, by_error: bool) -> Read<After> {
        let went_back = self.state.as_ref().is_some_and(|before| !goes_on(before, state));
        let fresh = self.state.is_none() || went_back;
        let mut turn = Turn { number: self.turn, from: self.results_from, failures: self.failures.clone() };
        if fresh {
            turn = Turn { number: self.turn + 1, from: self.log.len(), failures: BTreeMap::new() };
        }
        let before = self.state.as_ref().filter(|_| !fresh);
        let same_error = before.is_some_and(|before| before.last_error == state.last_error);
        for (step, _) in state.steps.iter().filter(|(_, status)| *status == StepStatus::Failed) {
            let known = before.and_then(|before| before.status(&step.id)) == Some(StepStatus::Failed);
            if !(known && same_error) {
                *turn.failures.entry(step.id.clone()).or_default() += 1;
            }
        }
        let results = state.results.iter().map(Json::of).collect::<Result<Vec<_>, _>>();
        let mut log = self.log.get(..turn.from).unwrap_or_default().to_vec();
        log.extend(results.map_err(|error| chain(&error))?);
        let registers = registers(state, &turn)?;
        let end = match state.failure() {
            _ if state.is_done() => Some((RunOutcome::Succeeded, String::new())),
            Some(error) => Some((RunOutcome::Failed, error.message.clone())),
            None if by_error => Some((RunOutcome::Failed, String::new())),
            None => None,
        };
        *self = Self {
            turn: turn.number,
            state: Some(state.clone()),
            log: log.clone(),
            results_from: turn.from,
            failures: turn.failures,
        };
        let logs = BTreeMap::from([(results_log().to_string(), log)]);
        Ok(After { logs, registers, fresh, went_back, end })
    }
}

/// Whether `after` may follow `before` in one run of a plan.
fn goes_on(before: &PlanState, after: &PlanState) -> bool {
    let same = |(a, _): &(StepSpec, StepStatus), (b, _): &(StepSpec, StepStatus)| a.id == b.id && a.action == b.action;
    let same_plan = before.steps.len() == after.steps.len()
        && before.steps.iter().zip(&after.steps).all(|(before, after)| same(before, after));
    let completed = before.steps.iter().filter(|(_, status)| *status == StepStatus::Completed);
    before.query == after.query
        && same_plan
        && after.results.starts_with(&before.results)
        && completed.into_iter().all(|(step, _)| after.status(&step.id) == Some(StepStatus::Completed))
}

fn registers(state: &PlanState, turn: &Turn) -> Read<BTreeMap<String, Json>> {
    let mut plan = PlanRegister::default();
    plan.turn = turn.number;
    plan.query.clone_from(&state.query);
    plan.done = state.is_done();
    plan.results_from = turn.from;
    plan.last_error.clone_from(&state.last_error);
    let mut registers = BTreeMap::new();
    let mut set = |key: String, value: rekindle::Result<Json>| -> Read<()> {
        registers.insert(key, value.map_err(|error| chain(&error))?);
        Ok(())
    };
    set(PLAN.into(), Json::of(&plan))?;
    set(kept("plan"), Json::of(&state.spec()))?;
    for (step, status) in &state.steps {
        let error = state.last_error.as_ref().filter(|error| error.step == step.id && *status == StepStatus::Failed);
        let mut register = StepRegister::new(turn.number, *status);
        register.failures = turn.failures.get(&step.id).copied().unwrap_or(0);
        register.error = error.map(|error| error.message.clone());
        set(format!("{STEP}{}", step.id), Json::of(&register))?;
    }
    for (key, value) in &state.context {
        set(format!("{MEMORY}{key}"), Ok(value.clone()))?;
    }
    Ok(registers)
}
