//! What can be wrong with a plan, found before anything runs.

use std::collections::{HashMap, HashSet};

use rekindle_core::{Error, Json, Result};
use serde_json::Value;

use super::spec::{PlanSpec, StepSpec};
use crate::executor::call::Entry;
use crate::executor::faults::{Faults, check_id};
use crate::executor::reference::{Reference, Template};

/// A step with everything that was prepared for it.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) spec: StepSpec,
    pub(super) entry: std::sync::Arc<Entry>,
    pub(super) parameters: Template,
    /// The numbers of the steps it depends on, and of those that depend on it.
    pub(super) dependencies: Vec<usize>,
    pub(super) dependants: Vec<usize>,
}

/// The tools a plan may use, by name.
pub(super) type Tools = HashMap<String, std::sync::Arc<Entry>>;

/// The steps of a plan that can be carried out; the error names everything that is wrong with it.
pub(super) fn check(spec: &PlanSpec, tools: &Tools) -> Result<Vec<Step>> {
    let mut faults = Faults::default();
    if spec.steps.is_empty() {
        faults.add("steps", "there are none");
    }
    if spec.parallel == Some(0) {
        faults.add("parallel", "must be at least 1");
    }
    let index = index(spec, &mut faults);
    let mut steps = Vec::new();
    for (number, step) in spec.steps.iter().enumerate() {
        steps.extend(check_step(number, step, &index, tools, &mut faults));
    }
    faults.into_result("the plan", &spec.name)?;
    connect(&mut steps);
    check_cycles(&steps, &mut faults);
    faults.into_result("the plan", &spec.name)?;
    check_references(&steps, &index, &mut faults);
    faults.into_result("the plan", &spec.name)?;
    Ok(steps)
}

type Index<'a> = HashMap<&'a str, usize>;

fn index<'a>(spec: &'a PlanSpec, faults: &mut Faults) -> Index<'a> {
    let mut index = Index::new();
    for (number, step) in spec.steps.iter().enumerate() {
        let place = || format!("steps[{number}].id");
        if let Err(why) = check_id(&step.id) {
            faults.add(place(), why);
        }
        if let Some(first) = index.insert(&step.id, number) {
            faults.add(place(), format!("`{}` is also the id of steps[{first}]", step.id));
        }
    }
    index
}

fn check_step(number: usize, spec: &StepSpec, index: &Index<'_>, tools: &Tools, faults: &mut Faults) -> Option<Step> {
    let place = |field: &str| format!("steps[{number}].{field} (step `{}`)", spec.id);
    let entry = tools.get(&spec.action).cloned();
    if entry.is_none() {
        let mut names: Vec<_> = tools.keys().map(String::as_str).collect();
        names.sort_unstable();
        names.truncate(20);
        faults.add(place("action"), format!("there is no tool `{}`; there are: {}", spec.action, names.join(", ")));
    }
    let mut dependencies = Vec::new();
    for (at, id) in spec.dependencies.iter().enumerate() {
        match index.get(id.as_str()) {
            _ if *id == spec.id => faults.add(place(&format!("dependencies[{at}]")), "a step cannot depend on itself"),
            None => faults.add(place(&format!("dependencies[{at}]")), format!("there is no step `{id}`")),
            Some(step) if !dependencies.contains(step) => dependencies.push(*step),
            Some(_) => {}
        }
    }
    let parameters = Template::parse(&Value::Object(spec.parameters.clone()));
    let parameters = parameters.map_err(|why| faults.add(place("parameters"), why)).ok()?;
    let entry = entry?;
    if let Template::Plain(value) = &parameters
        && let Err(why) = entry.schema.faults(&Json::from(value.clone()))
    {
        faults.add(place("parameters"), format!("do not fit the tool `{}`: {why}", spec.action));
    }
    Some(Step { spec: spec.clone(), entry, parameters, dependencies, dependants: Vec::new() })
}

fn connect(steps: &mut [Step]) {
    for number in 0..steps.len() {
        for dependency in steps[number].dependencies.clone() {
            steps[dependency].dependants.push(number);
        }
    }
}

/// Steps that can be ordered are taken away one by one; what is left goes round in circles.
fn check_cycles(steps: &[Step], faults: &mut Faults) {
    let mut missing: Vec<usize> = steps.iter().map(|step| step.dependencies.len()).collect();
    let mut free: Vec<usize> = (0..steps.len()).filter(|step| missing[*step] == 0).collect();
    let mut ordered = 0;
    while let Some(step) = free.pop() {
        ordered += 1;
        for dependant in &steps[step].dependants {
            missing[*dependant] -= 1;
            if missing[*dependant] == 0 {
                free.push(*dependant);
            }
        }
    }
    if ordered < steps.len() {
        let start = missing.iter().position(|missing| *missing > 0).unwrap_or_default();
        faults.add("steps", format!("depend on each other in a circle: {}", circle(steps, &missing, start)));
    }
}

/// One circle among the steps that cannot be ordered, as text.
fn circle(steps: &[Step], missing: &[usize], start: usize) -> String {
    let (mut trail, mut seen, mut at) = (Vec::new(), HashMap::new(), start);
    while seen.insert(at, trail.len()).is_none() {
        trail.push(at);
        // Each of them waits for another one of them.
        let next = steps[at].dependencies.iter().find(|dependency| missing[**dependency] > 0);
        at = next.copied().unwrap_or(start);
    }
    let first = seen.get(&at).copied().unwrap_or_default();
    let names = trail[first..].iter().chain([&at]).map(|step| format!("`{}`", steps[*step].spec.id));
    names.take(20).collect::<Vec<_>>().join(" → ")
}

fn check_references(steps: &[Step], index: &Index<'_>, faults: &mut Faults) {
    for (number, step) in steps.iter().enumerate() {
        for reference in step.parameters.references() {
            if let Err(why) = check_reference(reference, number, steps, index) {
                faults.add(format!("steps[{number}].parameters (step `{}`)", step.spec.id), why);
            }
        }
    }
}

fn check_reference(reference: &Reference, number: usize, steps: &[Step], index: &Index<'_>) -> Result<(), String> {
    match (reference.root(), reference.name()) {
        ("query", None) => Ok(()),
        ("context", Some(_)) => Ok(()),
        ("steps", Some(id)) => {
            let Some(target) = index.get(id) else {
                return Err(format!("`{reference}` names step `{id}`, which does not exist"));
            };
            if reference.rest(2).first().map(String::as_str) != Some("output") {
                return Err(format!("`{reference}` must go on with `.output` after the step"));
            }
            match depends_on(steps, number, *target) {
                true => Ok(()),
                false => Err(format!("`{reference}` names step `{id}`, on which this step does not depend")),
            }
        }
        _ => Err(format!("`{reference}` must begin with `steps.<id>.output`, `context.<key>` or `query`")),
    }
}

/// Whether a step comes after another, directly or not.
fn depends_on(steps: &[Step], step: usize, on: usize) -> bool {
    if steps[step].dependencies.contains(&on) {
        return true;
    }
    let mut seen: HashSet<usize> = steps[step].dependencies.iter().copied().collect();
    let mut open: Vec<usize> = seen.iter().copied().collect();
    while let Some(step) = open.pop() {
        if step == on {
            return true;
        }
        open.extend(steps[step].dependencies.iter().copied().filter(|dependency| seen.insert(*dependency)));
    }
    false
}

/// An error for something that was asked of a step that is not in the plan.
pub(super) fn no_step(id: &str) -> Error {
    Error::not_found(format!("the plan has no step `{id}`"))
}
