//! The binary as people use it: real processes, real stores, output compared with what was agreed.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "../../../rekindle-models/tests/support/aimock.rs"]
mod aimock;
mod archive;
mod asked;
mod bad_input;
mod basics;
mod changes;
mod copy;
mod damage;
mod look;
mod mcp;
mod mixed_versions;
mod moving;
mod orphans;
mod outages;
mod past;
mod processes;
mod provider;
mod pty;
mod races;
mod remote;
mod resume_cases;
mod review;
mod scenes;
mod servers;
mod serving;
mod setup;
mod skewed;
mod support;
mod tasks;
mod tell;
mod terminal;
mod tidying;
mod workers;
