//! Turns, tools and resumes as a user writes them.

use std::sync::Arc;

use rekindle::core::record::RunOutcome;
use rekindle::message::Role;
use rekindle::tool::{ToolError, tool};
use rekindle::{Agent, Status};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{Kind, Of, World, messages, state};

fn echo() -> impl rekindle::tool::Tool {
    tool("echo", "Says it again.", async |_, of: Of| Ok::<_, ToolError>(of.what))
}

fn agent(script: Script) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(script);
    let agent = Agent::builder_with("tester", Arc::new(model.clone())).tool(echo()).build().unwrap();
    (agent, model)
}

#[tokio::test]
async fn a_turn_with_parallel_calls_ends_with_an_answer() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = engine.create("s").await.unwrap();
        let (agent, model) = agent(
            Script::new("m")
                .calls([Call::new("echo", json!({"what": "a"})), Call::new("echo", json!({"what": "b"}))])
                .turn(Turn::text("done")),
        );
        let report = agent.run_once("go", &session).await.unwrap();
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
        let messages = messages(&engine, session.key()).await;
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]);
        let results: Vec<_> = messages.iter().flat_map(|message| message.results()).collect();
        assert_eq!(results[0].content.as_str(), "\"a\"");
        assert_eq!(results[1].content.as_str(), "\"b\"");
        assert_eq!(model.requests().len(), 2);
        let state = state(&engine, session.key()).await;
        assert_eq!(state.status(), Status::Succeeded);
        assert_eq!(state.effects().count(), 0, "nothing is pending after a turn");
    }
}

#[tokio::test]
async fn a_second_message_to_a_finished_session_works() {
    let world = World::new(Kind::Sqlite);
    let engine = world.engine();
    let session = engine.create("s").await.unwrap();
    let (agent, _) = agent(Script::new("m").turn(Turn::text("one")).turn(Turn::text("two")));
    assert_eq!(agent.run_once("first", &session).await.unwrap().text(), "one");
    assert_eq!(agent.run_once("second", &session).await.unwrap().text(), "two");
    assert_eq!(messages(&engine, session.key()).await.len(), 4);
}
