//! The protocols of ownership and of waits, explored exhaustively: every order of steps of a few
//! processes that crash, freeze and lose replies. The rules are the functions all stores share
//! (`LeaseRequest::decide`, `Append::decide`); only the processes around them are models.
//!
//! A process that takes no step while time passes and others go on is a frozen one: every step of
//! every process may be the next, so no step needs to say so.
#![allow(clippy::unwrap_used)]

mod ownership;
mod session;
mod waits;

use std::hash::Hash;

use stateright::{Checker, Model, Path};

/// Explores `model` to its end and panics unless every property holds.
fn holds<M>(model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + std::fmt::Debug,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let checked = model.checker().threads(2).spawn_bfs().join();
    assert!(checked.is_done());
    checked.assert_properties();
}

/// A way to a state in which `property` does not hold, which must exist.
fn fails<M>(model: M, property: &'static str) -> Path<M::State, M::Action>
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Send + Sync + Clone + PartialEq + std::fmt::Debug,
    M::Action: Clone + PartialEq + std::fmt::Debug,
{
    let found = stateright::HasDiscoveries::AnyOf([property].into());
    model.checker().finish_when(found).spawn_bfs().join().assert_any_discovery(property)
}
