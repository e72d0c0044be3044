//! Durable AI agents.

mod driver;
mod engine;
mod event;
pub mod executor;
pub mod message;
pub mod middleware;
pub mod model;
pub mod operations;
pub mod reduction;
mod secret;
mod session;
pub mod tool;
pub mod wait;

pub use driver::{
    Attempt, Budget, Budgets, Driver, Effect, End, Ended, Fingerprint, Frequency, Inbox, NewCheckpoint, OnWait,
    Performed, PersistFailure, ResumeOptions, RunHandle, RunOptions, RunReport, Smart, Spent, Tried, WaitPurpose,
};
pub use engine::Engine;
pub use event::{Event, Events, LiveEvent, LiveKind};
pub use executor::agent::{Agent, AgentBuilder, SubAgent};
pub use executor::flow::{Flow, FlowContext};
pub use executor::{Executor, Input};
pub use message::{Message, Role};
pub use rekindle_core::*;
pub use schemars;
pub use secret::{Secret, SecretRef, SecretSource};
pub use session::Session;
pub use wait::digest;
