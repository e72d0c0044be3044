//! The PostgreSQL store on real servers: the conformance suites, and what can go wrong with a server.
#![allow(clippy::unwrap_used)]

mod conformance;
mod costs;
mod faults;
mod fixture;
mod leases;
mod marks;
mod notices;
mod opening;
mod proxy;
mod races;
mod retries;
mod tls;
mod together;
mod wakes;
