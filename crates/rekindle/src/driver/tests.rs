//! Tests of what an executor is promised by the driver and cannot see from outside.

use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::record::{LogSplice, RegisterSet, RunOutcome};
use rekindle_core::{Json, LogName, RegisterKey, Result, State};

use super::{Driver, End, Fingerprint, ResumeOptions, RunOptions, start};
use crate::engine::Engine;
use crate::executor::{Descriptor, Executor, Input};

/// Runs one step.
#[derive(Debug)]
struct Once;

/// Stages records of which the last cannot follow; what is left of them.
async fn stage_in_part(driver: &Driver) -> Result<(bool, bool)> {
    let first = RegisterSet::new(RegisterKey::new("first")?, Json::from("x"));
    let impossible = LogSplice::new(LogName::new("nothing")?, 3, 1, Vec::new());
    let refused = driver.stage(vec![first.into(), impossible.into()]).await.is_err();
    Ok((refused, driver.read(|state| state.register("first").is_some()).await))
}

#[derive(Debug)]
struct Described;

impl Descriptor for Described {
    fn kind(&self) -> &str {
        "once"
    }

    fn is_mid_turn(&self, _: &State) -> bool {
        false
    }
}

#[async_trait]
impl Executor for Once {
    fn descriptor(&self) -> Arc<dyn Descriptor> {
        Arc::new(Described)
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::default()
    }

    async fn run(&self, driver: &Driver, _: Input) -> Result<End> {
        let (refused, left) = stage_in_part(driver).await?;
        Ok(End { value: Some(Json::of(&[refused, left])?), ..End::new(RunOutcome::Succeeded, "done") })
    }
}

#[tokio::test]
async fn records_are_staged_all_or_none() {
    let engine = Engine::memory().unwrap();
    let session = engine.create("s").await.unwrap();
    let input = Input::Value(Json::from("go"));
    let run = start(&engine, session.key(), Arc::new(Once), input, RunOptions::default(), ResumeOptions::default());
    let report = run.await.unwrap().report().await.unwrap();
    assert_eq!(report.value.unwrap().as_str(), "[true,false]", "refused, and nothing of it is left");
    let state = engine.journal().load(session.key(), None).await.unwrap().state;
    assert!(state.register("first").is_none(), "nor is any of it written");
}
