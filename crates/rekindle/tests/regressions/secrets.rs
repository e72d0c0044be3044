//! Secrets: no way into a record.

use rekindle::tool::{ToolContext, ToolError, tool};
use rekindle::{Json, Record, Result, ResumeOptions, Secret, SecretRef, SecretSource};
use rekindle_models::Script;

use crate::kit::{Rig, agent, ended, of};
use crate::support::Of;

#[derive(Debug)]
struct Vault;

impl SecretSource for Vault {
    fn resolve(&self, _: &SecretRef) -> Result<Secret> {
        Ok(Secret::new("hunter2hunter2"))
    }
}

#[tokio::test]
async fn a_secret_stands_neither_in_the_error_of_a_tool_nor_in_what_it_kept() {
    let rig = Rig::memory().await;
    let session = rig.world.engine().with_secrets(Vault).open_session("s").await.unwrap();
    let leak = tool("leak", "Says too much.", async |call: ToolContext, _: Of| {
        let key = call.secret("key").await?;
        call.keep_partial(Json::from(format!("so far {}", key.expose()).as_str())).await?;
        Err::<String, _>(ToolError::failed(format!("GET https://example.org?key={} failed", key.expose())))
    });
    let (agent, _) = agent(Script::new("m").call("leak", of("x")).text("done"), |builder| builder.tool(leak));
    let options = ResumeOptions::new("maria").secret("key", "@env:KEY").unwrap();
    ended(agent.run_with(vec!["go".into()], &session, options).await).await.unwrap();
    let text = |record: &Record| Json::of(record).unwrap().to_string();
    let records = rig.records().await;
    for record in &records {
        assert!(!text(record).contains("hunter2"), "{record:?}");
    }
    let hides = |record: &&Record| text(record).contains("[secret key]");
    assert!(records.iter().filter(hides).any(|record| matches!(record, Record::EffectPartial(_))));
    assert!(records.iter().filter(hides).any(|record| matches!(record, Record::EffectOutcome(_))));
}
