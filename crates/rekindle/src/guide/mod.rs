//! The guide: chapters with examples that run as tests.
//!
//! 1. [`first_agent`]: a model, a tool, a session.
//! 2. [`crash_and_resume`]: what survives, and what to declare so that it does.
//! 3. [`approval`]: a person in the loop.
//! 4. [`durable_steps`]: plain Rust that survives.
//! 5. [`plans`]: steps that are known beforehand, in the order they need each other.
//! 6. [`graphs`]: nodes and edges, with loops, branches that run at the same time, and people.
//! 7. [`time_travel`]: look at, go back to, edit and fork any moment.
//! 8. [`custom_store`]: keep journals where you like.
//! 9. [`custom_middleware`]: look at every turn from the side.

#[doc = include_str!("first_agent.md")]
pub mod first_agent {}

#[doc = include_str!("crash_and_resume.md")]
pub mod crash_and_resume {}

#[doc = include_str!("approval.md")]
pub mod approval {}

#[doc = include_str!("durable_steps.md")]
pub mod durable_steps {}

#[doc = include_str!("plans.md")]
pub mod plans {}

#[doc = include_str!("graphs.md")]
pub mod graphs {}

#[doc = include_str!("time_travel.md")]
pub mod time_travel {}

#[doc = include_str!("custom_store.md")]
pub mod custom_store {}

#[doc = include_str!("custom_middleware.md")]
pub mod custom_middleware {}
