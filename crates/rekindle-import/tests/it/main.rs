//! Importers: what other programs stored, listed, inspected, compared, forked and resumed here.
#![allow(clippy::unwrap_used)]

mod checkpoint_table;
mod hostile;
mod json_sessions;
mod kit;
mod resume_graph;
mod resume_plan;
mod session_directory;
mod stops;
#[path = "../../../rekindle/tests/it/support.rs"]
mod support;
