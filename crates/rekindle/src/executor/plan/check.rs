//! What can be wrong with a plan, found before anything runs.

use std::collections::{BTreeMap, HashMap, HashSet};

use rekindle_core::{Error, Json, Result};
use serde_json::Value;

use super::spec::{PlanSpec, StepSpec};
use crate::executor::call::Entry;
use crate::executor::faults::{Faults, check_id};
use crate::executor::nesting;
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
    faults.settle("the plan", &spec.name)?;
    connect(&mut steps);
    let order = check_cycles(&steps, &mut faults);
    faults.settle("the plan", &spec.name)?;
    check_references(&steps, &index, &order, &mut faults);
    faults.settle("the plan", &spec.name)?;
    Ok(steps)
}

/// An error if something in the plan nests too deeply; before anything else looks at it.
pub(super) fn check_nesting(spec: &mut PlanSpec) -> Result<()> {
    let mut faults = Faults::default();
    for (key, value) in &mut spec.context {
        nesting::check(value, || format!("context (key `{key}`)"), &mut faults);
    }
    for (number, step) in spec.steps.iter_mut().enumerate() {
        for value in step.parameters.values_mut() {
            let place = || format!("steps[{number}].parameters (step `{}`)", step.id);
            nesting::check(value, place, &mut faults);
        }
    }
    faults.settle("the plan", &spec.name)
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
    let (mut dependencies, mut known) = (Vec::new(), HashSet::new());
    for (at, id) in spec.dependencies.iter().enumerate() {
        match index.get(id.as_str()) {
            _ if *id == spec.id => faults.add(place(&format!("dependencies[{at}]")), "a step cannot depend on itself"),
            None => faults.add(place(&format!("dependencies[{at}]")), format!("there is no step `{id}`")),
            Some(step) if known.insert(*step) => dependencies.push(*step),
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

/// The steps in an order in which each comes after those it depends on. Steps that can be ordered
/// are taken away one by one; what is left goes round in circles.
fn check_cycles(steps: &[Step], faults: &mut Faults) -> Vec<usize> {
    let mut missing: Vec<usize> = steps.iter().map(|step| step.dependencies.len()).collect();
    let mut free: Vec<usize> = (0..steps.len()).filter(|step| missing[*step] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(step) = free.pop() {
        order.push(step);
        for dependant in &steps[step].dependants {
            missing[*dependant] -= 1;
            if missing[*dependant] == 0 {
                free.push(*dependant);
            }
        }
    }
    if order.len() < steps.len() {
        let start = missing.iter().position(|missing| *missing > 0).unwrap_or_default();
        faults.add("steps", format!("depend on each other in a circle: {}", circle(steps, &missing, start)));
    }
    order
}

/// One circle among the steps that cannot be ordered, as text.
fn circle(steps: &[Step], missing: &[usize], start: usize) -> String {
    let (mut trail, mut seen, mut at) = (Vec::new(), HashMap::new(), start);
    while !seen.contains_key(&at) {
        seen.insert(at, trail.len());
        trail.push(at);
        // Each of them waits for another one of them.
        let next = steps[at].dependencies.iter().find(|dependency| missing[**dependency] > 0);
        at = next.copied().unwrap_or(start);
    }
    let first = seen.get(&at).copied().unwrap_or_default();
    let names = trail[first..].iter().chain([&at]).map(|step| format!("`{}`", steps[*step].spec.id));
    names.take(20).collect::<Vec<_>>().join(" → ")
}

fn check_references(steps: &[Step], index: &Index<'_>, order: &[usize], faults: &mut Faults) {
    let mut uses: Vec<Use<'_>> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        for reference in step.parameters.references() {
            match target(reference, index) {
                Ok(Some(target)) => uses.push(Use { step: number, target, reference }),
                Ok(None) => {}
                Err(why) => faults.add(place(steps, number), why),
            }
        }
    }
    for Use { step, reference, .. } in unordered(steps, order, uses) {
        let id = reference.name().unwrap_or_default();
        faults.add(place(steps, step), format!("`{reference}` names step `{id}`, on which this step does not depend"));
    }
}

fn place(steps: &[Step], number: usize) -> String {
    format!("steps[{number}].parameters (step `{}`)", steps[number].spec.id)
}

/// A step that uses what another gives back.
#[derive(Clone, Copy)]
struct Use<'a> {
    step: usize,
    target: usize,
    reference: &'a Reference,
}

/// The step a reference names, if it names one.
fn target(reference: &Reference, index: &Index<'_>) -> Result<Option<usize>, String> {
    match (reference.root(), reference.name()) {
        ("query", None) | ("context", Some(_)) => Ok(None),
        ("steps", Some(id)) => {
            let Some(target) = index.get(id) else {
                return Err(format!("`{reference}` names step `{id}`, which does not exist"));
            };
            match reference.rest(2).first().map(String::as_str) {
                Some("output") => Ok(Some(*target)),
                _ => Err(format!("`{reference}` must go on with `.output` after the step")),
            }
        }
        _ => Err(format!("`{reference}` must begin with `steps.<id>.output`, `context.<key>` or `query`")),
    }
}

/// The uses whose step does not come after the one it uses, directly or not.
fn unordered<'a>(steps: &[Step], order: &[usize], uses: Vec<Use<'a>>) -> Vec<Use<'a>> {
    let mut by_target: BTreeMap<usize, Vec<Use<'a>>> = BTreeMap::new();
    uses.into_iter().for_each(|one| by_target.entry(one.target).or_default().push(one));
    let by_target: Vec<_> = by_target.into_iter().collect();
    let mut found: Vec<Use<'a>> = Vec::new();
    // One walk over the plan for 64 targets at a time: a walk for each use would take for ever in
    // a large plan.
    for targets in by_target.chunks(64) {
        let mut own = vec![0_u64; steps.len()];
        targets.iter().enumerate().for_each(|(bit, (target, _))| own[*target] |= 1 << bit);
        let mut behind = vec![0_u64; steps.len()];
        for step in order {
            behind[*step] = steps[*step].dependencies.iter().fold(0, |all, on| all | behind[*on] | own[*on]);
        }
        for (bit, (_, uses)) in targets.iter().enumerate() {
            found.extend(uses.iter().filter(|one| behind[one.step] & (1 << bit) == 0));
        }
    }
    found.sort_by_key(|one| one.step);
    found
}

/// An error for something that was asked of a step that is not in the plan.
pub(super) fn no_step(id: &str) -> Error {
    Error::not_found(format!("the plan has no step `{id}`"))
}
