//! An agent whose model takes no time of its own, or exactly as much as it is told to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rekindle::Durability;
use rekindle::core::record::InDoubtPolicy;
use rekindle::message::{Part, ToolCall};
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};
use rekindle::tool::{Tool, ToolContext, ToolError, ToolOptions, ToolOutput, ToolSpec};
use rekindle::{Agent, Budget, Budgets, Json};

use crate::Result;

/// Calls the tool so many times, then ends. Notes when it was asked.
#[derive(Clone, Debug)]
pub struct LoopModel {
    calls: u64,
    latency: Duration,
    asked: Arc<Mutex<Vec<Instant>>>,
    count: Arc<AtomicU64>,
}

impl LoopModel {
    /// A model that calls the tool `calls` times and takes `latency` for each answer.
    pub fn new(calls: u64, latency: Duration) -> Self {
        Self { calls, latency, asked: Arc::default(), count: Arc::default() }
    }

    /// How long each iteration took, from one question to the next.
    pub fn iterations(&self) -> Vec<Duration> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
    }
}

#[async_trait]
impl Model for LoopModel {
    fn name(&self) -> &str {
        "loop"
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::default()
    }

    async fn answer(&self, _request: &ModelRequest, _deltas: &Deltas) -> Result<Answer, ModelError> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if number >= self.calls {
            return Ok(Answer::text("done"));
        }
        let arguments =
            Json::of(&serde_json::json!({ "number": number })).map_err(|e| ModelError::fatal(e.to_string()))?;
        let call = ToolCall::new(format!("call_{number}"), "fetch", arguments);
        Ok(Answer { parts: vec![Part::ToolCall(call)], ..Answer::default() })
    }
}

/// Gives back a text of 2 KB, each time another.
#[derive(Debug)]
pub struct Fetch {
    spec: ToolSpec,
    options: ToolOptions,
    text: String,
}

impl Fetch {
    /// A tool with that policy.
    pub fn new(policy: InDoubtPolicy) -> Result<Self> {
        let parameters = r#"{"type":"object","properties":{"number":{"type":"integer"}},"required":["number"]}"#;
        let spec = ToolSpec {
            name: "fetch".into(),
            description: "Fetches a text.".into(),
            parameters: Json::parse(parameters)?,
            version: None,
        };
        let options = ToolOptions {
            writes: policy != InDoubtPolicy::ReplaySafe,
            in_doubt: Some(policy),
            ..ToolOptions::default()
        };
        Ok(Self { spec, options, text: crate::workload::Messages::new(7).next().content })
    }
}

#[async_trait]
impl Tool for Fetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn options(&self) -> &ToolOptions {
        &self.options
    }

    async fn call(&self, _context: &ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let text = format!("{} {}", marker(arguments.as_str()), self.text);
        Ok(ToolOutput::json(Json::from(text.as_str())))
    }
}

/// What tells one result from all others.
pub fn marker(arguments: &str) -> String {
    let number: String = arguments.chars().filter(char::is_ascii_digit).collect();
    format!("result<{number}>")
}

/// The agent.
pub fn agent(model: &LoopModel, durability: Durability, policy: InDoubtPolicy) -> Result<Agent> {
    let agent = Agent::builder("bench", model.clone())
        .tool(Fetch::new(policy)?)
        .durability(durability)
        .same_call_limit(0)
        .budgets(Budgets::new().with(Budget::Iterations, u64::MAX))
        .build()?;
    Ok(agent)
}
