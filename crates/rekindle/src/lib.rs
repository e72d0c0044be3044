//! Durable AI agents: an agent that dies at any instant goes on exactly where it was, repeats no
//! finished call, never has two owners, and can be inspected, forked, corrected and resumed.
//!
//! ```
//! use rekindle::schemars::{self, JsonSchema};
//! use rekindle::tool::tool;
//! use rekindle::{Agent, Engine};
//! use rekindle_models::{Script, ScriptedModel, Turn};
//!
//! #[derive(serde::Deserialize, JsonSchema)]
//! struct City { name: String }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rekindle::Result<()> {
//! let weather = tool("weather", "The weather in a city.", async |_, city: City| Ok(format!("{}: sun", city.name)));
//! # let script = Script::new("m").call("weather", serde_json::json!({"name": "Lisbon"})).turn(Turn::text("Take a hat."));
//! # let model = ScriptedModel::new(script);
//! let agent = Agent::builder("guide", model).tool(weather).build()?;
//!
//! let engine = Engine::memory()?; // Engine::open("sqlite:./agents.db")? outlives the process
//! let session = engine.create("trip-42").await?;
//! let report = agent.run_once("What should I pack for Lisbon?", &session).await?;
//! assert_eq!(report.text(), "Take a hat.");
//! # Ok(()) }
//! ```
//!
//! * [`guide`]: chapters with examples, from a first agent to middleware of your own.
//! * [`Engine`], [`Session`]: where work lives. [`Agent`], [`Plan`], [`Graph`], [`Flow`]: what does it.
//! * [`tool`], [`model`], [`middleware`], [`executor`]: what you implement. An [`Executor`] has a [`Descriptor`](executor::Descriptor), by which
//!   operations and front ends know its sessions.
//! * [`RunOptions`], [`ResumeOptions`], [`RunHandle`], [`Events`]: how a run behaves, is resumed, held and watched.
//! * [`operations`]: everything people can do to sessions; front ends call it.
//! * [`worker`]: processes that share a store and run what is in its queues.
//! * [`core`]: everything below the engine: records, states, journals, and the contract of stores.
//! * [`prelude`]: the names that most programs use.

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

mod clock;
mod contention;
mod driver;
mod engine;
mod event;
pub mod executor;
pub mod guide;
mod inbox;
mod memory;
pub mod message;
pub mod middleware;
pub mod model;
pub mod operations;
mod pace;
pub mod reduction;
mod secret;
mod session;
pub mod tool;
pub mod wait;
pub mod worker;

pub use async_trait::async_trait;
pub use driver::{
    Budget, Budgets, DamagedInbox, Evicted, Frequency, OnWait, PersistFailure, ResumeOptions, RunHandle, RunOptions,
    RunReport, Smart, Spent, Stopper,
};
pub use engine::Engine;
pub use event::{Event, Events, LiveEvent, LiveKind};
pub use executor::agent::{Agent, AgentBuilder, SubAgent};
pub use executor::flow::{Flow, FlowContext};
#[doc(inline)]
pub use executor::{Executor, Input};
#[doc(inline)]
pub use graph::{Graph, GraphBuilder};
pub use message::{Message, Role};
#[doc(inline)]
pub use plan::{Plan, PlanBuilder};
/// Everything below the engine: records, states, journals and the contract of stores.
#[doc(no_inline)]
pub use rekindle_core as core;
pub use rekindle_core::record::{Durability, RunOutcome};
pub use rekindle_core::{
    BranchId, CheckpointId, Clock, EffectId, Error, ErrorKind, Identity, Journal, Json, MessageId, Namespace, Position,
    Result, RunId, SessionHeader, SessionId, SessionInfo, SessionKey, SessionQuery, State, Status, Store, Timestamp,
    WaitId,
};
pub use schemars;
pub use secret::{Masks, Secret, SecretRef, SecretSource};
pub use session::Session;

/// Graphs: nodes that do something, and edges that say what comes next.
pub mod graph {
    pub use crate::executor::graph::*;
}

/// Plans: steps that call tools, in the order their dependencies demand.
pub mod plan {
    pub use crate::executor::plan::*;
}

/// The names that most programs use.
///
/// ```
/// use rekindle::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let engine = Engine::memory()?;
/// let session: Session = engine.create("trip-42").await?;
/// assert_eq!(session.key().id.as_str(), "trip-42");
/// # Ok(()) }
/// ```
pub mod prelude {
    pub use crate::tool::tool;
    pub use crate::{
        Agent, Engine, Error, Flow, Graph, Json, Message, Plan, Result, ResumeOptions, RunOptions, RunReport, Session,
    };
}

/// The example of the README is compiled with the documentation tests.
#[cfg_attr(doctest, doc = include_str!("../../../README.md"))]
#[cfg(doctest)]
struct Readme;

/// And so is that of the crate's own.
#[cfg_attr(doctest, doc = include_str!("../README.md"))]
#[cfg(doctest)]
struct CrateReadme;
