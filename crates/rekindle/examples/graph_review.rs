//! A text is written, checked by two at the same time, written again, and agreed to by a person.
//! The graph is drawn with the way it took.
//!
//! ```text
//! cargo run -p rekindle --example graph_review
//! ```
#![allow(clippy::print_stdout)]

use rekindle::graph::{Condition, EdgeSpec, Graph, GraphInput, GraphResult, Merge, NodeSpec};
use rekindle::operations::{Answer, answer, show};
use rekindle::schemars::{self, JsonSchema};
use rekindle::{Agent, Engine, Error, Result, RunOutcome};
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::{Value, json};

// ---- The graph: what a user of Rekindle writes. -----------------------------------------------

#[derive(serde::Deserialize, JsonSchema)]
struct Draft {
    text: String,
}

/// The model that writes. It follows a script; a real one goes in the same place.
fn writer() -> Result<Agent> {
    let script = Script::new("scripted")
        .turn(Turn::text("The lighthouse was lit in 1858, and they're many sailors that was saved."))
        .turn(Turn::text("The lighthouse was lit in 1858, and many sailors were saved."));
    Agent::builder("writer", ScriptedModel::new(script)).system("You write one sentence.").build()
}

fn review() -> Result<Graph> {
    // It remembers what it wrote before and what was said about it.
    let prompt = "Write about ${memory.topic}. Mind these notes: ${memory.notes}";
    let write = NodeSpec::agent("write", "writer", prompt).continues();
    let checker = |id: &str| {
        NodeSpec::function(id).with("text", "${memory.text}").reads(["text"]).save("notes", "/notes").save(id, "/ok")
    };
    // What must be agreed to, and what exactly: `shows` is part of the answer's digest.
    let shows = json!({ "text": "${memory.text}" });
    let agree = NodeSpec::approval("agree", "May this be published?", shows).reads(["text"]);
    Graph::builder("review")
        .inputs(["topic"])
        .memory("notes", json!([]))
        .agent(writer()?)
        .function("grammar", async |_, draft: Draft| {
            Ok(check(&draft.text, "they're", "`they're` should be `there are`"))
        })
        .function("facts", async |_, draft: Draft| Ok(check(&draft.text, "1850", "1850 is not when it was lit")))
        .function("publish", async |_, draft: Draft| Ok(format!("published: {}", draft.text)))
        .node(write.reads(["topic", "notes"]).save("text", "").fan_out("judge"))
        .node(checker("grammar"))
        .node(checker("facts"))
        .node(NodeSpec::router("judge").merge("notes", Merge::Append).max_visits(3))
        .node(agree)
        .node(
            NodeSpec::function("publish").with("text", "${memory.text}").reads(["text"]).save("done", "").safe_point(),
        )
        .node(NodeSpec::question("why", "What is wrong with it?").writes(["reason"]))
        .path(["write", "grammar", "judge"])
        .path(["write", "facts", "judge"])
        .edge(
            EdgeSpec::new("judge", "agree")
                .when(Condition::memory("grammar").is(true).and(Condition::memory("facts").is(true))),
        )
        .edge(EdgeSpec::new("judge", "write").or_else())
        .edge(EdgeSpec::new("agree", "publish"))
        .edge(EdgeSpec::new("agree", "why").when(Condition::failed()))
        .build()
}

/// What a checker says: whether the text is in order, and notes for the writer.
fn check(text: &str, wrong: &str, note: &str) -> Value {
    let ok = !text.contains(wrong);
    json!({ "ok": ok, "notes": if ok { json!([]) } else { json!([note]) } })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir().map_err(problem)?;
    let engine = Engine::open(&format!("sqlite:{}/graphs.db", directory.path().display()))?;
    let graph = review()?;
    let session = graph.create_session(&engine, "lighthouse").await?;

    println!("A sentence about a lighthouse, please.\n");
    let waiting = graph.run_once(GraphInput::new().with("topic", "a lighthouse"), &session).await?;
    path(&waiting, 0);
    assert_eq!(waiting.report.outcome, RunOutcome::Waiting);

    // The run has ended and its process could too. Later, wherever people look at such things:
    let shown = show(&engine, session.key()).await?;
    let wait = &shown.waits[0];
    println!("\nThe graph waits: {}", wait.opened.prompt);
    println!("  {}", wait.opened.arguments.as_ref().map(rekindle::Json::as_str).unwrap_or_default());
    let yes = Answer::approve(wait.opened.wait.clone(), wait.approve_digest, "maria");
    answer(&engine, session.key(), &yes).await?;
    println!("Maria agrees.\n");

    let done = graph.resume_once(&session).await?;
    path(&done, waiting.state.path.len());
    println!("\nWhat the writer was told, and what it wrote:");
    for message in &done.state.conversations["write"] {
        println!("  {:<9} {}", format!("{:?}", message.role).to_lowercase(), message.text());
    }

    let (mermaid, svg) = (directory.path().join("review.mmd"), directory.path().join("review.svg"));
    std::fs::write(&mermaid, done.state.to_mermaid(graph.spec())).map_err(problem)?;
    std::fs::write(&svg, done.state.to_svg(graph.spec())).map_err(problem)?;
    println!(
        "\nThe way it took, as Mermaid (and as SVG, {} bytes):\n",
        std::fs::metadata(&svg).map_err(problem)?.len()
    );
    print!("{}", std::fs::read_to_string(&mermaid).map_err(problem)?);

    let names = done.state.execution_path();
    assert_eq!(names.iter().filter(|name| **name == "write").count(), 2);
    assert_eq!(names[names.len() - 2..], ["agree", "publish"]);
    assert_eq!(done.get::<Vec<String>>("notes")?, Some(vec!["`they're` should be `there are`".to_owned()]));
    Ok(())
}

// ---- The rest only shows. ---------------------------------------------------------------------

/// The nodes that were completed since the first `known` of them.
fn path(result: &GraphResult, known: usize) {
    for visited in &result.state.path[known..] {
        let indent = if visited.strand.is_some() { "  │ " } else { "  " };
        let next = match visited.next.as_slice() {
            [] => "the end".to_owned(),
            next => next.join(" and "),
        };
        let wrote = if visited.wrote.is_empty() { "nothing".to_owned() } else { visited.wrote.join(", ") };
        let node = format!("{indent}{} (visit {})", visited.node, visited.visit);
        println!("{node:<24} wrote {wrote:<16} then {next}");
    }
}

fn problem(error: std::io::Error) -> Error {
    Error::invalid("the temporary directory cannot be used").because(error)
}
