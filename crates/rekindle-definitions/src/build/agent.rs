//! Building an agent.

use std::collections::HashMap;
use std::sync::Arc;

use rekindle::reduction::{Reduction, Summarise};
use rekindle::tool::{Tool, ToolGroup};
use rekindle::{Agent, AgentBuilder, RunOptions};

use super::adjusted::Adjusted;
use super::tool::Placed;
use super::{Shop, model, semantic};
use crate::definition::{Definition, Inner};
use crate::document::{child, did_you_mean, list};
use crate::fault::{Faults, Gathered, short};
use crate::form::{AgentSpec, ReductionSpec, retries};

/// The agent that `spec` says, with those tools, under that name.
pub(super) fn build(
    shop: &mut Shop,
    definition: &Definition,
    spec: &AgentSpec,
    name: &str,
    tools: &[Placed],
    options: RunOptions,
) -> Result<Agent, Faults> {
    let inner = definition.inner();
    let model = model::build(shop, inner, &child(&inner.pointer, "model"), &spec.model)?;
    let mut builder = Agent::builder_with(name, model).options(options);
    if let Some(system) = &inner.system {
        builder = builder.system(system.as_str());
    }
    if let Some(reduction) = &spec.reduction {
        builder = builder.reduction(reduced(shop, inner, reduction)?);
    }
    builder = limited(builder, spec);
    builder = with_tools(builder, inner, spec, tools)?;
    builder.build().map_err(|error| semantic::of_tools(inner, tools, &error))
}

fn limited(mut builder: AgentBuilder, spec: &AgentSpec) -> AgentBuilder {
    if let Some(calls) = spec.parallel {
        builder = builder.parallel(calls);
    }
    if let Some(calls) = spec.same_call_limit {
        builder = builder.same_call_limit(calls);
    }
    if let Some(steps) = spec.failure_limit {
        builder = builder.failure_limit(steps);
    }
    if let Some(timeout) = spec.model_timeout {
        builder = builder.model_timeout(timeout.0);
    }
    if let Some(retry) = &spec.model_retry {
        builder = builder.model_retries(retries(retry));
    }
    builder
}

fn reduced(shop: &mut Shop, inner: &Inner, spec: &ReductionSpec) -> Result<Reduction, Faults> {
    Ok(match spec {
        ReductionSpec::Whole => Reduction::Whole,
        ReductionSpec::KeepLast(messages) => Reduction::KeepLast(*messages),
        ReductionSpec::Tokens(tokens) => Reduction::TokenBudget(*tokens),
        ReductionSpec::Summarise(spec) => {
            let mut summarise = Summarise::new(spec.keep_last);
            if let Some(messages) = spec.when_longer_than {
                summarise = summarise.with_when_longer_than(messages);
            }
            if let Some(prompt) = &spec.prompt {
                summarise = summarise.with_prompt(prompt);
            }
            if let Some(spec) = &spec.model {
                let at = child(&child(&child(&inner.pointer, "reduction"), "summarise"), "model");
                summarise = summarise.with_model(model::build(shop, inner, &at, spec)?);
            }
            Reduction::Summarise(summarise)
        }
    })
}

/// The tools the model sees at once, and those it sees when it opens a group.
fn with_tools(
    mut builder: AgentBuilder,
    inner: &Inner,
    spec: &AgentSpec,
    tools: &[Placed],
) -> Result<AgentBuilder, Faults> {
    let mut faults = Gathered::default();
    let by_name: HashMap<&str, &Arc<dyn Tool>> =
        tools.iter().map(|(_, tool)| (tool.spec().name.as_str(), tool)).collect();
    let mut grouped: HashMap<&str, &str> = HashMap::new();
    let groups = child(&inner.pointer, "groups");
    for (number, spec) in spec.groups.iter().enumerate() {
        let mut group = ToolGroup::new(&spec.name, &spec.description);
        for (at, name) in spec.tools.iter().enumerate() {
            let pointer = format!("{groups}/{number}/tools/{at}");
            match by_name.get(name.as_str()) {
                None => {
                    let known = || by_name.keys().copied();
                    let hint = did_you_mean(name, known()).unwrap_or_else(|| format!("there are {}", list(known())));
                    faults.add(
                        inner.document.fault(&pointer, format!("there is no tool `{}`", short(name))).with_hint(hint),
                    );
                }
                Some(tool) => group = group.tool(Adjusted::same(tool)),
            }
            if let Some(first) = grouped.insert(name, &spec.name) {
                faults.add(
                    inner.document.fault(&pointer, format!("`{}` is in the group `{first}` already", short(name))),
                );
            }
        }
        builder = builder.group(group);
    }
    faults.settle()?;
    let seen = tools.iter().filter(|(_, tool)| !grouped.contains_key(tool.spec().name.as_str()));
    Ok(seen.fold(builder, |builder, (_, tool)| builder.shared_tool(Arc::clone(tool))))
}
