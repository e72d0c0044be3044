//! What can be started by name. Only the trait: the composition root knows files and models.

use async_trait::async_trait;
use rekindle::operations::JobInput;
use rekindle::{Result, SessionHeader, SessionKey};
use serde_json::Value;

/// What can be started by name, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo {
    /// The name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// `agent`, `plan`, `graph` or `flow`.
    pub kind: String,
}

/// What can be started by name. The composition root implements it.
#[async_trait]
pub trait Agents: Send + Sync + 'static {
    /// Everything that can be started.
    fn list(&self) -> Vec<AgentInfo>;

    /// The header of a new session that runs it: it names the agent and remembers where it stands.
    fn header(&self, name: &str, session: SessionKey) -> Result<SessionHeader>;

    /// What a run begins with, made of what the caller gave: a text or any JSON.
    fn input(&self, name: &str, input: Value) -> Result<JobInput>;
}
