//! What only shows when it is built: plans and graphs that cannot work, programs that are not there.

use crate::kit::{check, unbuildable};

const TOOLS: &str = "tools:\n  - {name: fetch, description: d, shell: 'true', parameters: {url: string}}\n  - {name: write, description: d, shell: 'true'}\n";

async fn plan(steps: &str, line: usize, column: usize, message: &str, hint: &str) {
    let text = format!("name: p\n{TOOLS}steps:\n{steps}");
    check(&unbuildable(&text).await, (line, column), message, hint);
}

#[tokio::test]
async fn faults_of_plans_are_located() {
    plan(
        "  - {id: a, action: fech}\n",
        6,
        21,
        "there is no tool `fech`; there are: fetch, write",
        "did you mean `fetch`?",
    )
    .await;
    plan("  - {id: a, action: write, dependencies: [b]}\n", 6, 43, "there is no step `b`", "").await;
    plan("  - {id: a, action: write}\n  - {id: a, action: write}\n", 7, 10, "`a` is also the id of steps[0]", "").await;
    let circle = "  - {id: x, action: write}\n  - {id: a, action: write, dependencies: [b]}\n  - {id: b, action: write, dependencies: [a]}\n";
    plan(circle, 7, 42, "depend on each other in a circle: `a` → `b` → `a`", "").await;
    plan("  - {id: a, action: fetch, parameters: {url: 5}}\n", 6, 40, "do not fit the tool `fetch`", "").await;
    plan(
        "  - {id: a, action: fetch, parameters: {url: '${steps.b.output}'}}\n",
        6,
        46,
        "names step `b`, which does not exist",
        "",
    )
    .await;
    plan("  []\n", 6, 3, "there are no steps", "").await;
}

async fn graph(rest: &str, line: usize, column: usize, message: &str, hint: &str) {
    let text = format!("name: g\nentry: a\n{TOOLS}{rest}");
    check(&unbuildable(&text).await, (line, column), message, hint);
}

#[tokio::test]
async fn faults_of_graphs_are_located() {
    graph("nodes:\n  - {id: a, kind: tool, tool: wirte}\n", 7, 31, "there is no tool `wirte`", "did you mean `write`?")
        .await;
    graph("nodes:\n  - {id: a, kind: tool, tool: write, reads: [k, m]}\n", 7, 46, "nobody writes `k`", "").await;
    graph("nodes:\n  - {id: b, kind: tool, tool: write}\n", 2, 8, "there is no node `a`", "").await;
    let unreachable = "nodes:\n  - {id: a, kind: tool, tool: write}\n  - {id: b, kind: tool, tool: write}\n";
    graph(unreachable, 8, 10, "node `b` cannot be reached from `a`", "").await;
    graph(
        "nodes:\n  - {id: a, kind: tool, tool: write}\nedges:\n  - {from: a, to: c}\n",
        9,
        19,
        "there is no node `c`",
        "",
    )
    .await;
    let reference = "nodes:\n  - {id: a, kind: tool, tool: fetch, arguments: {url: '${memory.u}'}}\n";
    graph(reference, 7, 55, "reads `u`, which the node does not declare", "").await;
}

#[tokio::test]
async fn programs_that_are_not_there_are_named() {
    let text =
        "name: a\nmodel: ollama/x\ntools:\n  - name: t\n    description: d\n    command: [no-such-program-here, x]\n";
    check(&unbuildable(text).await, (6, 15), "no-such-program-here", "install it");
    let text = "name: a\nmodel: ollama/x\nmcp:\n  s: {command: [no-such-program-here]}\n";
    check(&unbuildable(text).await, (4, 3), "the MCP server `s`", "");
    let text = "name: a\nmodel: ollama/x\nfiles: {root: ./no-such-directory}\n";
    check(&unbuildable(text).await, (3, 15), "there is no directory", "create: true");
}

#[tokio::test]
async fn tools_of_one_name_are_refused_wherever_they_come_from() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "name: a\nmodel: ollama/x\nfiles: {{root: {}}}\ntools:\n  - {{name: read_file, description: d, shell: x}}\n",
        directory.path().display()
    );
    check(&unbuildable(&text).await, (3, 1), "there are two tools named `read_file`", "rename");
}

#[tokio::test]
async fn groups_name_tools_that_are_there() {
    let text = "name: a\nmodel: ollama/x\ntools: [{name: look, description: d, shell: x}]\ngroups:\n  - {name: g, description: d, tools: [lok]}\n";
    check(&unbuildable(text).await, (5, 39), "there is no tool `lok`", "did you mean `look`?");
    let text = "name: a\nmodel: ollama/x\ntools: [{name: bad name, description: d, shell: x}]\n";
    check(&unbuildable(text).await, (3, 16), "bad name", "");
}
