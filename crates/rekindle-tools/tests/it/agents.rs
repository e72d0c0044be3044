//! An agent that uses tools of every kind in one conversation.

use rekindle::{Agent, Json};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use rekindle_tools::{CommandOutput, CommandTool, FileAccess, HttpTool, file_tools};
use serde_json::json;
use tempfile::TempDir;

use crate::kit::{engine, options, outcome, reads, results, schema};
use crate::server::{Server, json as json_answer};

#[tokio::test]
async fn an_agent_works_with_files_programs_and_requests() {
    let root = TempDir::new().unwrap();
    let server = Server::start(|seen, _| json_answer(json!({"asked": seen.target}))).await;
    let count = CommandTool::builder("count", "Counts the words of a file.")
        .parameters(schema(&["path"]))
        .command(["wc", "-w", "--", "${arguments.path}"])
        .directory(root.path())
        .output(CommandOutput::Text)
        .options(reads())
        .build()
        .unwrap();
    let look_up = HttpTool::builder("look_up", "Looks a word up.")
        .parameters(schema(&["word"]))
        .url(format!("{}/words/${{arguments.word}}", server.url))
        .build()
        .unwrap();
    let script = Script::new("m")
        .call("write_file", json!({"path": "notes/a.txt", "content": "one two\nthree\n"}))
        .turn(Turn::calls([
            Call::new("count", json!({"path": "notes/a.txt"})),
            Call::new("look_up", json!({"word": "naïve"})),
            Call::new("read_file", json!({"path": "../etc/passwd"})),
        ]))
        .call("edit_file", json!({"path": "notes/a.txt", "old": "three", "new": "3"}))
        .call("read_file", json!({"path": "notes/a.txt"}))
        .text("three words");
    let mut builder = Agent::builder("scribe", ScriptedModel::new(script)).tool(count).tool(look_up);
    for tool in file_tools(root.path(), FileAccess::ReadWrite).unwrap() {
        builder = builder.shared_tool(tool);
    }
    let (agent, engine) = (builder.build().unwrap(), engine());
    let session = engine.create("s").await.unwrap();
    let run = agent.run_with(vec!["go".into()], &session, options()).await.unwrap();
    assert_eq!(run.report().await.unwrap().text(), "three words");

    let outcomes: Vec<_> = results(&engine, &session).await.iter().map(outcome).collect();
    let expected = [
        Ok(json!({"path": "notes/a.txt", "bytes": 14, "lines": 2})),
        Ok(json!("3 notes/a.txt\n")),
        Ok(json!({"status": 200, "body": {"asked": "/words/na%C3%AFve"}})),
        Err("`../etc/passwd` has `..` in it; paths stay under the root".to_owned()),
        Ok(json!({"path": "notes/a.txt", "bytes": 10, "lines": 2})),
        Ok(json!({
            "path": "notes/a.txt", "text": "one two\n3\n", "first_line": 1, "lines": 2, "total_lines": 2, "bytes": 10
        })),
    ];
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_a_tool() {
    let root = TempDir::new().unwrap();
    let marker = root.path().join("ran");
    let parameters = Json::parse(r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#);
    let touch = CommandTool::builder("touch", "Touches.")
        .parameters(parameters.unwrap())
        .command(["touch", marker.to_str().unwrap(), "${arguments.n}"])
        .build()
        .unwrap();
    let outcome = crate::kit::call(touch, json!({"n": "one"})).await;
    assert!(outcome.is_err() && !marker.exists(), "{outcome:?}");
}
