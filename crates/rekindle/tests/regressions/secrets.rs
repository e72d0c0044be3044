//! Secrets: no way into a record.

use rekindle::core::Record;
use rekindle::core::record::RunOutcome;
use rekindle::message::Role;
use rekindle::tool::{ToolContext, ToolError, tool};
use rekindle::{Json, Result, ResumeOptions, Secret, SecretRef, SecretSource};
use rekindle_models::Script;

use crate::kit::{Rig, agent, ended, of};
use crate::support::Of;

#[derive(Debug)]
struct Vault(&'static str);

impl SecretSource for Vault {
    fn resolve(&self, _: &SecretRef) -> Result<Secret> {
        Ok(Secret::new(self.0))
    }
}

#[tokio::test]
async fn a_secret_stands_neither_in_the_error_of_a_tool_nor_in_what_it_kept() {
    let rig = Rig::memory().await;
    let session = rig.world.engine().with_secrets(Vault("hunter2hunter2")).open_session("s").await.unwrap();
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

/// A tool uses a secret and says it; then there is another turn.
async fn is_hidden_and_breaks_nothing(word: &'static str) {
    let rig = Rig::memory().await;
    let engine = rig.world.engine().with_secrets(Vault(word));
    let login = tool("login", "Logs in.", async |call: ToolContext, _: Of| {
        let key = call.secret("key").await?;
        Ok::<_, ToolError>(format!("<{}>", key.expose()))
    });
    let script = Script::new("m").call("login", of("x")).text("one").text("two");
    let (agent, _) = agent(script, |builder| builder.tool(login));
    let options = ResumeOptions::new("maria").secret("key", "@env:KEY").unwrap();
    for (message, options, answer) in [("1", options, "one"), ("2", ResumeOptions::default(), "two")] {
        let session = engine.open_session("s").await.unwrap();
        let report = ended(agent.run_with(vec![message.into()], &session, options).await).await;
        let report = report.unwrap_or_else(|error| panic!("{word}: {error}"));
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, answer), "{word}");
    }
    let said: Vec<_> = rig.messages().await.iter().map(|said| (said.role, said.text())).collect();
    let turns = [(Role::User, "1"), (Role::Assistant, ""), (Role::Tool, ""), (Role::Assistant, "one")];
    let turns = turns.into_iter().chain([(Role::User, "2"), (Role::Assistant, "two")]);
    assert_eq!(said, turns.map(|(role, text)| (role, text.to_owned())).collect::<Vec<_>>(), "{word}");
    let results = rig.results().await;
    assert_eq!(results[0].content.as_str(), "\"<[secret key]>\"", "{word}");
}

#[tokio::test]
async fn a_secret_that_is_a_word_of_the_format_is_hidden_and_breaks_no_session() {
    for word in [
        "tool",
        "text",
        "call",
        "content",
        "parts",
        "result",
        "name",
        "role",
        "assistant",
        "user",
        "loop",
        "budget",
        "outcome",
        "register_set",
        "1234",
    ] {
        is_hidden_and_breaks_nothing(word).await;
    }
}

/// Gives a secret only once something else has run meanwhile, as a keychain that asks a person.
#[derive(Debug)]
struct Slow(std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

impl SecretSource for Slow {
    fn resolve(&self, _: &SecretRef) -> Result<Secret> {
        let others = self.0.lock().unwrap().recv_timeout(std::time::Duration::from_secs(10));
        others.map_err(|_| rekindle::Error::invalid("nothing else could run"))?;
        Ok(Secret::new("hunter2hunter2"))
    }
}

#[tokio::test(flavor = "current_thread")]
async fn others_run_while_a_secret_is_looked_up() {
    let rig = Rig::memory().await;
    let (others, slow) = std::sync::mpsc::channel();
    let engine = rig.world.engine().with_secrets(Slow(slow.into()));
    let session = engine.open_session("s").await.unwrap();
    let login = tool("login", "Logs in.", move |call: ToolContext, _: Of| {
        let others = others.clone();
        async move {
            // On the one thread there is: it runs if the look-up leaves that alone.
            tokio::spawn(async move { others.send(()) });
            call.secret("key").await.map_err(|error| ToolError::failed(error.to_string()))?;
            Ok::<_, ToolError>("in")
        }
    });
    let (agent, _) = agent(Script::new("m").call("login", of("x")).text("done"), |builder| builder.tool(login));
    let options = ResumeOptions::new("maria").secret("key", "@keychain:a/b").unwrap();
    ended(agent.run_with(vec!["go".into()], &session, options).await).await.unwrap();
    assert_eq!(rig.results().await[0].content.as_str(), "\"in\"");
}
