//! Agents, plans and graphs written in YAML, TOML or JSON files, with errors that name file, line,
//! column and what to do, and with JSON Schemas for editors.
//!
//! ```
//! use rekindle::{Engine, ResumeOptions};
//! use rekindle_definitions::{Definition, Format, RunInput};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rekindle::Result<()> {
//! let text = "
//! name: greeter
//! model:
//!   provider: scripted
//!   name: demo
//!   script: {turns: [{text: Hello!}]}
//! ";
//! // For a file: Definition::load("greeter.yaml")?
//! let built = Definition::parse("greeter.yaml", text, Format::Yaml)?.builder().build().await?;
//!
//! let session = Engine::memory()?.create("greeting").await?;
//! let run = built.start(&session, RunInput::text("hi"), ResumeOptions::new("maria")).await?;
//! assert_eq!(run.report().await?.text(), "Hello!");
//! # Ok(()) }
//! ```
//!
//! * [`Definition`]: a file that was read and checked, with the files it refers to.
//! * [`DefinitionBuilder`], [`Built`]: what runs.
//! * [`Fault`], [`Faults`]: what is wrong, with its place; [`Fault::render`] draws it.
//! * [`Document`]: the same places and faults for files of your own.
//! * [`schema`]: JSON Schemas.
//!
//! Reading a file executes nothing. Building it starts MCP servers, and running it runs what it
//! says: use files you trust. Secrets stand in files by reference only.

mod build;
mod built;
mod definition;
mod document;
mod fault;
mod form;
mod schema;

pub use build::{DefinitionBuilder, Preview};
pub use built::{Built, RunInput};
pub use definition::{Definition, InputField, Kind, SourceFile};
pub use document::{Document, Format};
pub use fault::{Fault, Faults};
pub use form::{
    BudgetsSpec, CheckpointName, CheckpointsSpec, DamagedInboxName, DurabilityName, ModelSettings, ModelSpec, Money,
    OnWaitName, Period, PersistFailureName, PriceSpec, Provider, RetentionSpec, RunOptionsSpec, SecretText, SmartSpec,
    Tags,
};
pub use schema::{SchemaName, schema, schema_names};

/// The example of the README is compiled with the documentation tests.
#[cfg_attr(doctest, doc = include_str!("../README.md"))]
#[cfg(doctest)]
struct Readme;
