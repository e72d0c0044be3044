//! Building a definition, whatever it holds, and what it refers to.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rekindle::{Agent, Frequency, Graph, Plan, RunOptions};

use super::tool::Placed;
use super::{Shop, agent, crew, mcp, preview, semantic, tool};
use crate::definition::{Body, Definition, Inner, Kind};
use crate::document::child;
use crate::fault::{Faults, Gathered, short};

/// What was built.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Agent(Agent),
    Plan(Plan),
    Graph(Graph),
}

type Building<'a> = Pin<Box<dyn Future<Output = Result<Work, Faults>> + Send + 'a>>;

/// Builds `definition`, under another name if one is given. `top` is what the runs are of.
pub(super) fn build<'a>(
    shop: &'a mut Shop,
    definition: &'a Definition,
    name: Option<&'a str>,
    top: bool,
) -> Building<'a> {
    Box::pin(async move {
        let name = name.unwrap_or(definition.name()).to_owned();
        let known = (definition.address(), name.clone());
        if let Some(work) = shop.done.get(&known) {
            return Ok(work.clone());
        }
        let work = build_new(shop, definition, &name, top).await?;
        shop.done.insert(known, work.clone());
        Ok(work)
    })
}

async fn build_new(shop: &mut Shop, definition: &Definition, name: &str, top: bool) -> Result<Work, Faults> {
    let inner = definition.inner();
    gather_secrets(shop, inner)?;
    let tools = tools(shop, definition).await?;
    let options = options(shop, definition, top);
    match &inner.body {
        Body::Agent(spec) => agent::build(shop, definition, spec, name, &tools, options).map(Work::Agent),
        Body::Plan(spec) => {
            let mut spec = (**spec).clone();
            spec.name = name.to_owned();
            let builder = Plan::from_spec(spec).options(options);
            let builder = tools.iter().fold(builder, |builder, (_, tool)| builder.shared_tool(Arc::clone(tool)));
            builder.build().map(Work::Plan).map_err(|error| semantic::of_spec(inner, &tools, &error))
        }
        Body::Graph(spec) => {
            let mut spec = (**spec).clone();
            spec.name = name.to_owned();
            let builder = crew::graph(shop, definition, spec).await?.options(options);
            let builder = tools.iter().fold(builder, |builder, (_, tool)| builder.shared_tool(Arc::clone(tool)));
            builder.build().map(Work::Graph).map_err(|error| semantic::of_spec(inner, &tools, &error))
        }
    }
}

/// Remembers where its secrets are. Sessions of other work know those of the work that starts them,
/// so a name means one secret.
fn gather_secrets(shop: &mut Shop, inner: &Inner) -> Result<(), Faults> {
    let mut faults = Gathered::default();
    for (name, reference) in &inner.secrets {
        let known = shop.found.entry(name.clone()).or_insert_with(|| reference.clone());
        if known != reference && !shop.overriding.contains_key(name) {
            let at = child(&child(&inner.pointer, "secrets"), name);
            let message = format!("`{}` is another secret in a file that this one is used with", short(name));
            faults.add(inner.document.key_fault(&at, message).with_hint("rename one of them"));
        }
    }
    faults.settle()
}

/// How its runs behave.
fn options(shop: &mut Shop, definition: &Definition, top: bool) -> RunOptions {
    let usual = match definition.kind() {
        // A step of a plan is what an iteration is elsewhere.
        Kind::Plan => RunOptions { checkpoints: Frequency::PerIteration, ..RunOptions::default() },
        _ => RunOptions::default(),
    };
    let mut options = usual;
    definition.inner().options.clone().or(shop.defaults.clone()).apply(&mut options);
    if top {
        options.depends_on = preview::started(definition);
        std::mem::take(&mut shop.adjust).into_iter().for_each(|adjust| adjust(&mut options));
    }
    options
}

/// Every tool it may use; each name once.
async fn tools(shop: &mut Shop, definition: &Definition) -> Result<Vec<Placed>, Faults> {
    let inner = definition.inner();
    let mut faults = Gathered::default();
    let mut tools = Vec::new();
    for declared in &inner.tools {
        tools.extend(faults.take(tool::build(shop, definition, declared).await));
    }
    tools.extend(faults.take(tool::files(shop, inner)).into_iter().flatten());
    if faults.is_empty() {
        tools.extend(faults.take(mcp::build(shop, inner).await).into_iter().flatten());
    }
    if definition.kind() == Kind::Plan {
        tools.extend(faults.take(crew::as_tools(shop, definition).await).into_iter().flatten());
    }
    check_names(inner, &tools, &mut faults);
    faults.settle()?;
    Ok(tools)
}

fn check_names(inner: &Inner, tools: &[Placed], faults: &mut Gathered) {
    let mut known: HashMap<&str, &str> = HashMap::new();
    for (pointer, tool) in tools {
        let name = tool.spec().name.as_str();
        if known.insert(name, pointer).is_some() {
            let fault = inner.document.key_fault(pointer, format!("there are two tools named `{}`", short(name)));
            faults.add(fault.with_hint("rename one of them; the tools of an MCP server can have a `prefix`"));
        }
    }
}
