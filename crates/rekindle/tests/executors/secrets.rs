//! What must not be stored, and what that means for resumes.

use std::sync::{Arc, Mutex};

use rekindle::Durability;
use rekindle::core::record::RunOutcome;
use rekindle::graph::{Graph, GraphInput, NodeSpec};
use rekindle::operations::{self, Answer};
use rekindle::plan::StepSpec;
use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Approval, FnTool, ToolContext, ToolError, tool};
use rekindle::{Json, Result, ResumeOptions, Secret, SecretRef, SecretSource};
use rekindle_models::Script;
use rekindle_store::{Fault, FaultPlan};
use serde_json::json;

use crate::common::plan as plan_of;
use crate::kit::{Rig, agent};
use crate::support::Of;

const KEY: &str = "sk-1234567890";

#[derive(serde::Deserialize, JsonSchema)]
struct Login {
    user: String,
    api_key: String,
}

type Seen = Arc<Mutex<Vec<String>>>;

/// Notes the key it was given; dies at its first call if it is given a store's plan.
fn login(seen: &Seen, dies: Option<Arc<FaultPlan>>) -> FnTool<Login> {
    let seen = seen.clone();
    tool("login", "Logs in.", move |_, login: Login| {
        let mut seen = seen.lock().unwrap();
        seen.push(login.api_key);
        if let (Some(plan), 1) = (&dies, seen.len()) {
            plan.fail_from(0, Fault::Unreachable);
        }
        async move { Ok::<_, ToolError>("in") }
    })
}

async fn stored(rig: &Rig) -> String {
    rig.records().await.iter().map(|record| Json::of(record).unwrap().to_string()).collect()
}

/// X4: values under excluded keys are redacted before anything is stored, in the memory, too.
#[tokio::test]
async fn an_excluded_key_of_the_memory_is_not_stored() {
    let rig = Rig::memory().await;
    let graph = Graph::builder("g")
        .function("use", async |_, _: Of| Ok::<_, ToolError>("ok"))
        .node(NodeSpec::function("use").with("what", "x"))
        .build()
        .unwrap();
    graph.run_once(GraphInput::new().with("api_key", KEY), &rig.session).await.unwrap();
    assert!(!stored(&rig).await.contains(KEY), "graph memory");
}

#[tokio::test]
async fn an_excluded_key_of_a_plan_s_context_is_not_stored() {
    let rig = Rig::memory().await;
    let plan = plan_of(|builder| {
        builder
            .tool(tool("use", "", async |_, _: Of| Ok::<_, ToolError>("ok")))
            .step(StepSpec::new("one", "use").with("what", "x"))
    });
    let options = ResumeOptions::new("maria").set("access_token", KEY);
    plan.run_with("go", &rig.session, options).await.unwrap().report().await.unwrap();
    assert!(!stored(&rig).await.contains(KEY), "plan context");
}

/// An approved call is made with the arguments that were approved, what is never stored filled in again.
#[tokio::test]
async fn a_step_with_an_api_key_can_be_approved() {
    let rig = Rig::memory().await;
    let seen = Seen::default();
    let plan = plan_of(|builder| {
        builder
            .tool(login(&seen, None).writes().needs_approval(Approval::default()))
            .step(StepSpec::new("login", "login").with("user", "ada").with("api_key", KEY))
    });
    plan.run_once("go", &rig.session).await.unwrap();
    let wait = rig.wait().await;
    operations::answer(&rig.engine, rig.key(), &Answer::approve(wait.wait, wait.digest, "maria")).await.unwrap();
    let result = plan.resume_once(&rig.again().await).await.unwrap();
    assert_eq!((result.error.as_deref(), seen.lock().unwrap().as_slice()), (None, [KEY.to_owned()].as_slice()));
}

/// What the model gave is not stored, so nobody has it after a restart: the tool is not called, and the model is told.
#[tokio::test]
async fn a_model_s_call_with_an_api_key_is_not_made_after_a_restart() {
    let rig = Rig::memory().await;
    let seen = Seen::default();
    let script = Script::new("m").call("login", json!({"user": "ada", "api_key": KEY})).text("done");
    let (agent, _) = agent(script, |builder| {
        builder.durability(Durability::Sync).tool(login(&seen, None).writes().needs_approval(Approval::default()))
    });
    agent.run_once("go", &rig.session).await.unwrap();
    let wait = rig.wait().await;
    operations::answer(&rig.engine, rig.key(), &Answer::approve(wait.wait, wait.digest, "maria")).await.unwrap();
    let session = rig.again().await;
    let report = agent.resume(&session).await.unwrap().report().await.unwrap();
    let results = rig.results().await;
    assert!(results[0].error && results[0].content.as_str().contains("never stored"), "{:?}", results[0].content);
    assert_eq!((report.outcome, seen.lock().unwrap().len()), (RunOutcome::Succeeded, 0));
}

/// A resume after a crash must not fail with `EffectMismatch`, nor call the tool with the marker that stands for the
/// key: it is filled in from the plan again.
#[tokio::test]
async fn a_step_with_an_api_key_goes_on_after_a_crash() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let seen = Seen::default();
    let plan = plan_of(|builder| {
        builder
            .tool(login(&seen, Some(faults)).writes().idempotent())
            .step(StepSpec::new("login", "login").with("user", "ada").with("api_key", KEY))
    });
    plan.run_once("go", &session).await.unwrap_err();
    rig.world.pass_leases();
    let result = plan.resume_once(&rig.again().await).await.unwrap();
    assert_eq!(result.error, None);
    assert_eq!(*seen.lock().unwrap(), [KEY, KEY]);
}

#[tokio::test]
async fn a_node_with_an_api_key_goes_on_after_a_crash() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let seen = Seen::default();
    let graph = Graph::builder("g")
        .durability(Durability::Sync)
        .tool(login(&seen, Some(faults)).writes().idempotent())
        .node(NodeSpec::tool("login", "login").with("user", "ada").with("api_key", KEY))
        .build()
        .unwrap();
    graph.run_once(GraphInput::new(), &session).await.unwrap_err();
    rig.world.pass_leases();
    let result = graph.resume_once(&rig.again().await).await.unwrap();
    assert_eq!(result.error, None);
    assert_eq!(*seen.lock().unwrap(), [KEY, KEY]);
}

#[tokio::test]
async fn a_model_s_call_with_an_api_key_goes_on_after_a_crash() {
    let rig = Rig::memory().await;
    let (session, faults) = rig.faulty().await;
    let seen = Seen::default();
    let script = Script::new("m").call("login", json!({"user": "ada", "api_key": KEY})).text("done");
    let (agent, _) = agent(script, |builder| {
        builder.durability(Durability::Sync).tool(login(&seen, Some(faults)).writes().idempotent())
    });
    agent.run_once("go", &session).await.unwrap_err();
    rig.world.pass_leases();
    let session = rig.again().await;
    let report = agent.resume(&session).await.unwrap().report().await;
    assert!(report.is_ok(), "{:?}", report.unwrap_err());
}

#[derive(Debug)]
struct Vault(&'static str);

impl SecretSource for Vault {
    fn resolve(&self, _: &SecretRef) -> Result<Secret> {
        Ok(Secret::new(self.0))
    }
}

fn uses_secret() -> FnTool<Of> {
    tool("use", "", async |call: ToolContext, of: Of| {
        call.secret("key").await?;
        Ok::<_, ToolError>(of.what)
    })
}

/// Whatever word a secret is, what executors keep for themselves stays readable.
#[tokio::test]
async fn a_secret_that_is_a_word_of_the_format_breaks_no_plan() {
    for word in ["completed", "step_id", "output", "turn", "fetch"] {
        let rig = Rig::memory().await;
        let session = rig.world.engine().with_secrets(Vault(word)).open_session("s").await.unwrap();
        let plan = plan_of(|builder| {
            builder
                .tool(uses_secret())
                .step(StepSpec::new("fetch", "use").with("what", "x"))
                .step(StepSpec::new("next", "use").with("what", "${steps.fetch.output}").after(["fetch"]))
        });
        let options = ResumeOptions::new("maria").secret("key", "@env:KEY").unwrap();
        let report = plan.run_with("go", &session, options).await.unwrap().report().await;
        let report = report.unwrap_or_else(|error| panic!("{word}: {error}"));
        assert_eq!(report.outcome, RunOutcome::Succeeded, "{word}: {}", report.reason);
        plan.result(&session, report).await.unwrap_or_else(|error| panic!("{word}: {error}"));
    }
}

#[tokio::test]
async fn a_secret_that_is_a_word_of_the_format_breaks_no_graph() {
    for word in ["node", "phase", "ready", "ended", "second"] {
        let rig = Rig::memory().await;
        let session = rig.world.engine().with_secrets(Vault(word)).open_session("s").await.unwrap();
        let graph = Graph::builder("g")
            .durability(Durability::Sync)
            .tool(uses_secret())
            .node(NodeSpec::tool("first", "use").with("what", "x"))
            .node(NodeSpec::tool("second", "use").with("what", "y"))
            .path(["first", "second"])
            .build()
            .unwrap();
        let options = ResumeOptions::new("maria").secret("key", "@env:KEY").unwrap();
        let report = graph.run_with(GraphInput::new(), &session, options).await.unwrap().report().await;
        let report = report.unwrap_or_else(|error| panic!("{word}: {error}"));
        assert_eq!(report.outcome, RunOutcome::Succeeded, "{word}: {}", report.reason);
        graph.result(&session, report).await.unwrap_or_else(|error| panic!("{word}: {error}"));
    }
}
