//! Rekindle over the Model Context Protocol: other agents list, inspect, fork, answer, resume and
//! run durable work. [`McpServer`] is a handler of the official SDK, re-exported as [`rmcp`]; which
//! transport it is served on, and what may be started by name ([`Agents`]), is for whoever builds it
//! to say. Nothing here reads files or the environment, and nothing here runs: starting and resuming
//! is putting a session into a queue of the store, which workers read.

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

mod agents;
mod error;
mod resources;
mod server;
mod subscriptions;
mod tasks;
mod tools;
mod uri;
mod watch;

pub use agents::{AgentInfo, Agents};
pub use rmcp;
pub use server::{McpServer, McpServerBuilder};
