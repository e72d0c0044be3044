//! What a graph in a file cannot have: functions of a program.

use rekindle::graph::{Merge, Work};

use super::{Body, Inner};
use crate::document::child;
use crate::fault::Gathered;

pub(super) fn check(inner: &Inner, faults: &mut Gathered) {
    let Body::Graph(graph) = &inner.body else { return };
    let nodes = child(&inner.pointer, "nodes");
    for (number, node) in graph.nodes.iter().enumerate() {
        let at = format!("{nodes}/{number}");
        let mut add = |pointer: String, message: &str, hint: &str| {
            faults.add(inner.document.fault(&pointer, message).with_hint(hint));
        };
        match &node.work {
            Work::Function { .. } => {
                let hint = "use a node of kind `tool`, with a command among the `tools`";
                add(child(&at, "kind"), "a graph in a file has no functions of a program", hint);
            }
            Work::Router { choose: Some(_) } => {
                let hint = "write conditions (`when`) on the edges of the router";
                add(child(&at, "choose"), "a graph in a file has no functions that choose", hint);
            }
            _ => {}
        }
        for key in node.merge.iter().filter(|(_, merge)| matches!(merge, Merge::Reducer(_))).map(|(key, _)| key) {
            let hint = "use `error`, `first`, `last` or `append`";
            add(child(&child(&at, "merge"), key), "a graph in a file has no reducers of a program", hint);
        }
    }
}
