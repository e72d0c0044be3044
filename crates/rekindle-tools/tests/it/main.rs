//! Tools as an agent uses them: called through the engine, on real processes, sockets and files.
#![allow(clippy::unwrap_used)]

mod agents;
mod commands;
mod crashes;
mod files;
mod hosts;
mod http;
mod kit;
mod leftovers;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "mcp")]
mod mcp_http;
#[cfg(feature = "mcp")]
mod mcp_server;
mod processes;
mod protected;
mod server;
