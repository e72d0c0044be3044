//! Events: a stream ends with its run, rests while nothing happens, and hears what is said.

use std::sync::Arc;
use std::time::Duration;

use rekindle::core::Record;
use rekindle::{BranchId, Event, Events, Position, ResumeOptions};
use rekindle_models::{Script, Turn};
use rekindle_store::{Fault, MeteredStore, Observation, StoreObserver};

use crate::kit::{Counter, HeldModel, Rig, agent, follow, soon};

#[tokio::test]
async fn the_events_of_a_run_whose_store_is_full_come_to_an_end() {
    let rig = Rig::memory().await;
    let (session, plan) = rig.faulty().await;
    let model = HeldModel::new(Script::new("m").text("done"), 0);
    let mut run = model.agent(|builder| builder).run("go", &session).await.unwrap();
    soon(model.began()).await;
    plan.fail_from(0, Fault::Full);
    model.release();
    soon(async { while let Ok(Some(_)) = run.next_event().await {} }).await;
    soon(run.report()).await.unwrap_err();
}

#[derive(Clone, Debug, Default)]
struct Reads(Counter);

impl StoreObserver for Reads {
    fn observed(&self, observation: Observation) {
        // A reader that never rests might never let go of its thread either, so it is stopped here.
        if observation.operation == "read" {
            assert!(self.0.add() < 1_000, "it reads without end");
        }
    }
}

/// How often a reader reads while nothing happens on its branch.
async fn reads_at_rest(events: &mut Events, reads: &Reads) -> usize {
    let before = reads.0.count();
    let more = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
    assert!(more.is_err(), "nothing happens on that branch: {more:?}");
    reads.0.count() - before
}

#[tokio::test]
async fn a_reader_of_a_branch_rests_while_another_branch_runs_and_after_it() {
    let rig = Rig::memory().await;
    let reads = Reads::default();
    let store = MeteredStore::new(rig.world.store(), Arc::new(reads.clone()));
    let engine = rig.world.engine_over(Arc::new(store)).with_poll(Duration::from_secs(60));
    let session = engine.open_session("s").await.unwrap();
    let model = HeldModel::new(Script::new("m").text("one").text("two"), 1);
    let agent = model.agent(|builder| builder);
    let end = agent.run_once("first", &session).await.unwrap().position();
    let branch = BranchId::new("other").unwrap();
    engine.journal().fork(session.key(), &end, branch.clone()).await.unwrap();
    let options = ResumeOptions::new("maria").on_branch(branch);
    let run = agent.run_with(vec!["second".into()], &session, options).await.unwrap();
    soon(model.began()).await;
    let main = Position::new(BranchId::main(), end.seq);
    let mut events = Events::follow(&engine, session.key(), &main).await.unwrap();
    let during = reads_at_rest(&mut events, &reads).await;
    assert!(during < 10, "{during} reads during the run");
    model.release();
    soon(run.report()).await.unwrap();
    let after = reads_at_rest(&mut events, &reads).await;
    assert!(after < 10, "{after} reads after the run");
}

#[tokio::test]
async fn a_reader_that_came_before_the_run_hears_it_live() {
    let rig = Rig::memory().await;
    let turn = Turn::text("many small pieces of an answer").streamed(3);
    let (agent, _) = agent(Script::new("m").turn(turn), |builder| builder);
    let mut events = follow(&rig).await;
    let reader = async {
        let mut live = 0;
        loop {
            match events.next().await.unwrap().unwrap() {
                Event::Live(_) => live += 1,
                Event::Recorded { record: Record::RunEnded(_), .. } => return live,
                _ => {}
            }
        }
    };
    let (live, report) = soon(async { tokio::join!(reader, agent.run_once("go", &rig.session)) }).await;
    assert_eq!(report.unwrap().text(), "many small pieces of an answer");
    assert!(live > 0);
}
