//! Sessions in every state a command can meet, made by real runs of scripted agents.

use rekindle::core::record::{EffectIntent, EffectKind, InDoubtPolicy, LogAppend, RegisterSet, RunStarted, Usage};
use rekindle::core::{LogName, Record, RegisterKey, Target};
use rekindle::message::{Message, Part, Role, ToolCall};
use rekindle::operations::{self, At, Change, ForkOptions};
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Approval, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{Agent, BranchId, EffectId, Engine, Json, RunId, SessionHeader, SessionKey};
use rekindle_models::{Script, ScriptedModel, Turn};
use serde_json::json;

use crate::support::Place;

#[derive(serde::Deserialize, JsonSchema)]
struct Pay {
    cents: u64,
}

#[derive(serde::Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, JsonSchema)]
struct Nothing {}

/// Adds two numbers with a tool, remembers the sum and answers.
pub fn add(place: &Place, id: &str) {
    let add = tool("add", "Adds.", async |_, sum: Sum| {
        let sum = Json::of(&(sum.a + sum.b))?;
        Ok(ToolOutput::json(sum.clone()).and_remember("sum", sum))
    });
    let usage = Usage { input_tokens: 1_200, output_tokens: 34, cost_micros: 4_200 };
    let script = Script::new("adder")
        .turn(Turn::call("add", json!({"a": 19, "b": 23})).with_usage(usage))
        .turn(Turn::text("It is 42.").with_usage(usage))
        .text("You are welcome.");
    let agent = Agent::builder("adder", ScriptedModel::new(script)).tool(add).build().unwrap();
    place.with_engine(async |engine| {
        let key = engine.key(id).unwrap();
        let header = SessionHeader {
            title: Some("sums\u{1b}[31m".into()),
            tags: vec!["nightly".into()],
            agent: Some("adder".into()),
            ..SessionHeader::new(key)
        };
        let session = engine.create_with(header).await.unwrap();
        agent.run_once("What is 19 + 23?", &session).await.unwrap();
        agent.run_once("Thanks.", &session).await.unwrap();
    });
}

/// Wants to pay, and waits for somebody to agree.
pub fn pay(place: &Place, id: &str) {
    let pay = tool("pay", "Pays.", async |_, pay: Pay| Ok(format!("paid {}", pay.cents)));
    let pay = pay.writes().never_again().needs_approval(Approval::default());
    let script = Script::new("payer").turn(Turn::call("pay", json!({"cents": 5}))).text("It is paid.");
    let agent = Agent::builder("payer", ScriptedModel::new(script)).tool(pay).build().unwrap();
    place.with_engine(async |engine| {
        let session = agent.create_session(&engine, id).await.unwrap();
        agent.run_once("pay", &session).await.unwrap();
    });
}

/// Waits for what `spec` says.
pub fn ask(place: &Place, id: &str, spec: WaitSpec) {
    let ask = tool("ask", "Asks.", move |_, _: Nothing| {
        let spec = spec.clone();
        async move { Ok(ToolOutput::wait(spec)) }
    });
    let script = Script::new("asker").turn(Turn::call("ask", json!({}))).text("Thanks.");
    let agent = Agent::builder("asker", ScriptedModel::new(script)).tool(ask).build().unwrap();
    place.with_engine(async |engine| {
        let session = agent.create_session(&engine, id).await.unwrap();
        agent.run_once("go", &session).await.unwrap();
    });
}

/// A run that died while it made a call that must not be made twice.
pub fn dead(place: &Place, id: &str) {
    let call = ToolCall::new("c1", "pay", Json::parse(r#"{"cents":5}"#).unwrap());
    let hash = rekindle::wait::digest(&call.arguments).unwrap();
    let said = [Message::user("pay"), Message::new(Role::Assistant, vec![Part::ToolCall(call.clone())])];
    let said = said.iter().map(|message| message.to_json().unwrap()).collect();
    let at = Json::parse(r#"{"turn":1,"iteration":1,"step":1,"phase":"act"}"#).unwrap();
    let intent = EffectIntent::new(EffectId::new("t1.0.c1").unwrap(), EffectKind::Tool, "pay", hash);
    let records = [
        RunStarted::new(RunId::new("run_dead").unwrap(), "agent").into(),
        LogAppend::new(LogName::new("messages").unwrap(), said).into(),
        RegisterSet::new(RegisterKey::new("loop").unwrap(), at).into(),
        EffectIntent { policy: InDoubtPolicy::Never, arguments: Some(call.arguments), ..intent }.into(),
    ];
    place.with_engine(async |engine| {
        let session = engine.create(id).await.unwrap();
        leave_behind(&engine, session.key(), &records).await;
    });
}

/// Appends records to the current branch, as a process did that then died.
async fn leave_behind(engine: &Engine, session: &SessionKey, records: &[Record]) {
    let info = engine.journal().open(session).await.unwrap();
    let branch = info.current_branch().unwrap();
    let target = Target::new(session.clone(), branch.branch.clone(), branch.head);
    engine.journal().append(&target, records).await.unwrap();
}

/// A session with a fork, a fork of that, and a fork nothing happened on yet.
pub fn forks(place: &Place, id: &str) {
    place.talk(id, "What should I pack?", "A hat.");
    place.with_engine(async |engine| {
        let key = engine.key(id).unwrap();
        let checkpoint = operations::history(&engine, &key, &Default::default()).await.unwrap().checkpoints.remove(0);
        let at = At::Checkpoint(checkpoint.checkpoint.id);
        fork(&engine, &key, &at, "warm", &[("coat", "none")]).await;
        edit(&engine, &key, "main", "score", "3").await;
        fork(&engine, &key, &At::Head(branch("warm")), "hot", &[("coat", "linen")]).await;
        edit(&engine, &key, "warm", "score", "4").await;
        edit(&engine, &key, "main", "score", "5").await;
        fork(&engine, &key, &At::Head(branch("hot")), "idea", &[]).await;
    });
}

async fn fork(engine: &Engine, key: &SessionKey, at: &At, name: &str, memory: &[(&str, &str)]) {
    let set = |(key, value): &(&str, &str)| Change::SetMemory { key: (*key).into(), value: Json::from(*value) };
    let options = ForkOptions {
        branch: Some(branch(name)),
        edits: memory.iter().map(set).collect(),
        author: "maria".into(),
        reason: format!("what if it is {name}"),
    };
    operations::fork(engine, key, at, options).await.unwrap();
}

async fn edit(engine: &Engine, key: &SessionKey, name: &str, memory: &str, value: &str) {
    let set = Change::SetMemory { key: memory.into(), value: Json::parse(value).unwrap() };
    operations::edit(engine, key, &At::Head(branch(name)), &[set], "bob", "counted").await.unwrap();
}

fn branch(name: &str) -> BranchId {
    BranchId::new(name).unwrap()
}

/// `text` without what differs from run to run in lists: short ids, the widths of columns, and the
/// time that is part of the budget.
pub fn level(text: &str) -> String {
    let rules = [
        (r"\b01[0-9a-hjkmnp-tv-z]{6,24}\b", "<id>"),
        (r"(?m)\b(budget)([ /:=].*)?(active_micros|\d+ → \d+).*$", "$1 <…>"),
        (r"(?m)(\S) {2,}", "$1  "),
        (r"(?m) +$", ""),
    ];
    rules.iter().fold(text.to_owned(), |text, (pattern, with)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned()
    })
}
