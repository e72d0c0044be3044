//! Which positions are marked.

use std::time::Duration;

use rekindle::core::record::{CheckpointSource, CheckpointTrigger};
use rekindle::tool::{ToolError, tool};
use rekindle::{Frequency, Smart};
use rekindle_models::{Script, Turn};

use crate::kit::{Rig, agent, of};
use crate::support::Of;

/// The descriptions of the checkpoints of a turn with a small call, a large one and a risky one.
async fn marked(frequency: Frequency) -> Vec<String> {
    let rig = Rig::memory().await;
    let echo = tool("echo", "Says it.", async |_, of: Of| Ok::<_, ToolError>(of.what));
    let large = tool("large", "Says much.", async |_, of: Of| Ok::<_, ToolError>(of.what.repeat(70_000)));
    let risky = tool("risky", "Dares it.", async |_, of: Of| Ok::<_, ToolError>(of.what)).risky();
    let script =
        Script::new("m").call("echo", of("a")).call("large", of("b")).call("risky", of("c")).turn(Turn::text("done"));
    let (agent, _) = agent(script, |builder| builder.tool(echo).tool(large).tool(risky).checkpoints(frequency));
    agent.run_once("go", &rig.session).await.unwrap();
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 50).await.unwrap();
    found.into_iter().rev().map(|found| found.checkpoint.description).collect()
}

const TURN: &str = "turn 1 ended: the model had an answer";

#[tokio::test]
async fn each_frequency_marks_what_it_says() {
    assert_eq!(marked(Frequency::PerTurn).await, [TURN]);
    assert_eq!(marked(Frequency::Manual).await, [] as [&str; 0]);
    let iterations = ["iteration 1 of turn 1", "iteration 2 of turn 1", "iteration 3 of turn 1"];
    let all = ["input of turn 1", iterations[0], iterations[1], iterations[2], TURN];
    assert_eq!(marked(Frequency::PerIteration).await, all);
    assert_eq!(marked(Frequency::Every(2)).await, ["input of turn 1", iterations[1], TURN]);
    let smart = Smart { slow: Duration::from_secs(60), ..Smart::default() };
    let expected = [iterations[1], "before the risky call of `risky`", TURN];
    assert_eq!(marked(Frequency::Smart(smart)).await, expected);
    let slow = Smart { slow: Duration::ZERO, large: usize::MAX, before_risky: false };
    assert_eq!(marked(Frequency::Smart(slow)).await, [iterations[0], iterations[1], iterations[2], TURN]);
}

#[tokio::test]
async fn a_checkpoint_says_what_led_to_it() {
    let rig = Rig::memory().await;
    let script = Script::new("m").turn(Turn::text("one")).turn(Turn::error(rekindle::model::ModelError::fatal("no")));
    let (agent, _) = agent(script, |builder| builder.checkpoints(Frequency::PerIteration));
    agent.run_once("go", &rig.session).await.unwrap();
    agent.run_once("on", &rig.session).await.unwrap_err();
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 50).await.unwrap();
    let newest = &found[0].checkpoint;
    assert_eq!((newest.trigger, newest.clean), (CheckpointTrigger::Error, false));
    assert!(newest.description.contains("gave no answer"), "{}", newest.description);
    assert_eq!(found[1].checkpoint.source, CheckpointSource::Input);
    assert!(found[2].checkpoint.usage.input_tokens > 0 && found[2].checkpoint.clean);
    for pair in found.windows(2) {
        assert_eq!(pair[0].checkpoint.parent.as_ref(), Some(&pair[1].checkpoint.id));
    }
}
