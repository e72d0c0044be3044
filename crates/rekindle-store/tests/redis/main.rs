//! The Redis store over real servers: what holds for every store, and what a server can do to one.

// A test that meets an error it does not expect ends there.
#![allow(clippy::unwrap_used)]

mod clock;
mod costs;
mod encrypted;
mod faults;
mod fixtures;
mod killed;
mod marks;
mod proxy;
mod refusals;
mod replicas;
mod retries;
mod wakes;

use fixtures::{Cluster, Shared};

rekindle_testkit::conformance!(conformance, Shared::default);
rekindle_testkit::model_test!(random_commands, Shared::default);
rekindle_testkit::queue_conformance!(queue, Shared::default);
rekindle_testkit::values_conformance!(values, Shared::default);
rekindle_testkit::differential_test!(rules, Shared::default);

// All keys of a session in one slot, and no script over two of them.
rekindle_testkit::conformance!(cluster, Cluster::default, [default Default]);
rekindle_testkit::queue_conformance!(cluster_queue, Cluster::default);
rekindle_testkit::values_conformance!(cluster_values, Cluster::default);
rekindle_testkit::differential_test!(cluster_rules, Cluster::default);
