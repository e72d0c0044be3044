//! The other work that plans and graphs have done.

use rekindle::{Graph, GraphBuilder};

use super::tool::{Placed, other_work};
use super::{Shop, Work, work};
use crate::definition::Definition;
use crate::document::child;
use crate::fault::Faults;

/// Where the members of a crew stand, with their names.
fn members(definition: &Definition) -> Vec<(String, String)> {
    let inner = definition.inner();
    let crew = &inner.crew;
    let place = |key: &str, name: &String| (child(&child(&inner.pointer, key), name), name.clone());
    let agents = crew.agents.keys().map(|name| place("agents", name));
    let plans = crew.plans.keys().map(|name| place("plans", name));
    agents.chain(plans).chain(crew.graphs.keys().map(|name| place("graphs", name))).collect()
}

/// The crew of a plan: tools, by their names.
pub(super) async fn as_tools(shop: &mut Shop, definition: &Definition) -> Result<Vec<Placed>, Faults> {
    let mut tools = Vec::new();
    for (pointer, name) in members(definition) {
        let tool = other_work(shop, definition, &pointer, &name, None).await?;
        tools.push((pointer, tool));
    }
    Ok(tools)
}

/// The crew of a graph: what its nodes name.
pub(super) async fn of_graph(
    shop: &mut Shop,
    definition: &Definition,
    mut builder: GraphBuilder,
) -> Result<GraphBuilder, Faults> {
    for (pointer, name) in members(definition) {
        let Some(other) = definition.inner().children.get(&pointer) else { continue };
        builder = match work::build(shop, other, Some(&name), false).await? {
            Work::Agent(agent) => builder.agent(agent),
            Work::Plan(plan) => builder.plan(plan),
            Work::Graph(graph) => builder.graph(graph),
        };
    }
    Ok(builder)
}

/// A builder of the graph that `definition` says, with its crew.
pub(super) async fn graph(
    shop: &mut Shop,
    definition: &Definition,
    spec: rekindle::graph::GraphSpec,
) -> Result<GraphBuilder, Faults> {
    of_graph(shop, definition, Graph::from_spec(spec)).await
}
