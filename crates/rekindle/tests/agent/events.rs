//! Readers of events: live, late, cut off, on forks, in other processes, and of runs that die.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rekindle::Durability;
use rekindle::core::{Record, Seq};
use rekindle::tool::{FnTool, ToolError, tool};
use rekindle::{BranchId, Engine, Event, Events, Frequency, LiveKind, Position, ResumeOptions, RunHandle, SessionKey};
use rekindle_models::{Call, Script, Turn};
use rekindle_store::{Fault, FaultPlan, MeteredStore, Observation, StoreObserver};

use crate::kit::{Held, Rig, agent, echo, of};
use crate::support::{Kind, Of, records};

type Seen = Vec<(Position, Record)>;

/// Everything a run does, and what it says.
async fn watch(mut run: RunHandle) -> (Seen, Vec<LiveKind>) {
    let (mut seen, mut said) = (Vec::new(), Vec::new());
    while let Some(event) = run.next_event().await.unwrap() {
        match event {
            Event::Recorded { position, record, .. } => seen.push((position, record)),
            Event::Live(live) => said.push(live.kind),
            _ => {}
        }
    }
    run.report().await.unwrap();
    (seen, said)
}

/// So many records behind a position, as a reader gets them.
async fn read(engine: &Engine, session: &SessionKey, behind: &Position, count: usize) -> Seen {
    let mut events = Events::follow(engine, session, behind).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < count {
        if let Event::Recorded { position, record, .. } = events.next().await.unwrap().unwrap() {
            seen.push((position, record));
        }
    }
    seen
}

fn start() -> Position {
    Position::new(BranchId::main(), Seq::ZERO)
}

async fn stored(rig: &Rig) -> Seen {
    let records = records(&rig.world.engine(), rig.key(), &BranchId::main()).await;
    records.into_iter().map(|(seq, record)| (Position::new(BranchId::main(), seq), record)).collect()
}

fn script() -> Script {
    Script::new("m").calls(["a", "b"].map(|what| Call::new("echo", of(what)))).text("done").text("and again")
}

#[tokio::test]
async fn a_run_tells_everything_it_stores_in_order_and_once() {
    for kind in Kind::ALL {
        let rig = Rig::new(kind).await;
        let (agent, _) = agent(script(), |builder| builder.tool(echo()));
        let (seen, _) = watch(agent.run("go", &rig.session).await.unwrap()).await;
        assert_eq!(seen, stored(&rig).await, "{kind:?}");
        let end = seen.iter().rposition(|(_, record)| matches!(record, Record::RunEnded(_)));
        assert_eq!(end, Some(seen.len() - 2), "behind the end of the run stands only its mark");
        let (second, _) = watch(agent.run("more", &rig.session).await.unwrap()).await;
        assert_eq!([seen, second].concat(), stored(&rig).await, "{kind:?}: the second run tells of itself alone");
    }
}

#[tokio::test]
async fn a_late_reader_and_one_that_reconnects_anywhere_miss_and_repeat_nothing() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (agent, _) = agent(script(), |builder| builder.tool(echo()));
    agent.run_once("go", &rig.session).await.unwrap();
    let all = stored(&rig).await;
    let engine = rig.world.engine();
    assert_eq!(read(&engine, rig.key(), &start(), all.len()).await, all);
    for (index, (position, _)) in all.iter().enumerate().take(all.len() - 1) {
        let rest = &all[index + 1..];
        assert_eq!(read(&engine, rig.key(), position, rest.len()).await, rest, "behind {position}");
    }
}

/// Kills the store at its first call.
fn deadly(plan: &Arc<FaultPlan>) -> FnTool<Of> {
    let (plan, first) = (plan.clone(), Arc::new(std::sync::atomic::AtomicBool::new(true)));
    tool("die", "Kills the store.", move |_, of: Of| {
        if first.swap(false, Ordering::SeqCst) {
            plan.fail_from(0, Fault::Unreachable);
        }
        async move { Ok::<_, ToolError>(of.what) }
    })
}

#[tokio::test]
async fn a_reader_follows_over_a_crash_and_the_resume() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (session, plan) = rig.faulty().await;
    let script = Script::new("m").call("echo", of("a")).call("die", of("b")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(echo()).tool(deadly(&plan)).durability(Durability::Sync));
    // One that never lets go, in a third process.
    let mut events = Events::follow(&rig.world.engine(), rig.key(), &start()).await.unwrap();
    agent.run_once("go", &session).await.unwrap_err();
    let first = stored(&rig).await;
    let cut = first[first.len() / 2].0.clone();
    rig.world.pass_leases();
    agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    let all = stored(&rig).await;
    assert!(all.len() > first.len());
    let mut seen = Vec::new();
    while seen.len() < all.len() {
        if let Event::Recorded { position, record, .. } = events.next().await.unwrap().unwrap() {
            seen.push((position, record));
        }
    }
    assert_eq!(seen, all);
    let rest = &all[first.len() / 2 + 1..];
    assert_eq!(read(&rig.engine, rig.key(), &cut, rest.len()).await, rest, "one that was cut off before the crash");
}

#[tokio::test]
async fn a_run_that_cannot_record_its_end_still_ends_its_events() {
    let rig = Rig::memory().await;
    let (session, plan) = rig.faulty().await;
    let (agent, _) = agent(Script::new("m").call("die", of("a")).text("done"), |builder| {
        builder.tool(deadly(&plan)).durability(Durability::Sync)
    });
    let mut run = agent.run("go", &session).await.unwrap();
    let mut last = None;
    let drained = async {
        while let Some(event) = run.next_event().await.unwrap() {
            if let Event::Recorded { position, .. } = event {
                last = Some(position.seq);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), drained).await.expect("the events end with the run");
    assert_eq!(last, stored(&rig).await.last().map(|(position, _)| position.seq));
    assert_eq!(run.report().await.unwrap_err().code(), "RK0016");
}

#[tokio::test]
async fn a_reader_of_a_fork_reads_its_parent_up_to_the_fork_and_then_it() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (agent, _) = agent(script(), |builder| builder.tool(echo()).checkpoints(Frequency::PerIteration));
    agent.run_once("go", &rig.session).await.unwrap();
    let old = stored(&rig).await;
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    let from = found[1].position.clone();
    let options = ResumeOptions::new("maria").from_checkpoint(found[1].checkpoint.id.clone());
    let run = agent.resume_with(&rig.session, options).await.unwrap();
    let (own, _) = watch(run).await;
    let branch = own[0].0.branch.clone();
    assert_ne!(branch, BranchId::main());
    assert_eq!(own[0].0.seq, from.seq.next());
    let before: Seen = old.iter().filter(|(position, _)| position.seq <= from.seq).cloned().collect();
    let line = [before, own].concat();
    for (index, behind) in line.iter().map(|(position, _)| position.seq).enumerate().step_by(3) {
        let position = Position::new(branch.clone(), behind);
        let rest = &line[index + 1..];
        assert_eq!(read(&rig.engine, rig.key(), &position, rest.len()).await, rest, "behind {position}");
    }
    assert_eq!(read(&rig.engine, rig.key(), &start(), old.len()).await, old, "the old branch reads as before");
}

#[tokio::test]
async fn a_reader_is_told_when_what_it_has_not_read_was_pruned() {
    let rig = Rig::new(Kind::Sqlite).await;
    let policy = rekindle::core::retention::Policy::new([rekindle::core::retention::Rule::LatestOnly]);
    let (agent, _) =
        agent(script(), |builder| builder.tool(echo()).checkpoints(Frequency::PerIteration).retention(policy));
    let mut events = Events::follow(&rig.engine, rig.key(), &start()).await.unwrap();
    agent.run_once("go", &rig.session).await.unwrap();
    let error = events.next().await.unwrap_err();
    assert_eq!(error.code(), "RK0003", "{error:?}");
    let head = rig.session.info().await.unwrap().current_branch().unwrap().head.seq;
    assert!(error.message().contains(&format!("to {head}")), "it says how much is gone: {error}");
}

#[tokio::test]
async fn pieces_of_an_answer_arrive_while_it_is_made() {
    let rig = Rig::memory().await;
    let answer = Turn::text("told in small pieces").with_reasoning("hm").streamed(3);
    let (agent, _) = agent(Script::new("m").turn(answer.with_chunk_delay(Duration::from_millis(1))), |builder| builder);
    let (seen, said) = watch(agent.run("go", &rig.session).await.unwrap()).await;
    let texts: Vec<&str> = said
        .iter()
        .filter_map(|kind| if let LiveKind::Text(text) = kind { Some(text.as_str()) } else { None })
        .collect();
    assert!(texts.len() > 3, "{texts:?}");
    assert_eq!(texts.concat(), "told in small pieces");
    assert!(said.contains(&LiveKind::Reasoning("hm".into())), "{said:?}");
    assert_eq!(seen, stored(&rig).await);
}

#[tokio::test]
async fn progress_of_a_tool_is_told_and_not_stored() {
    let rig = Rig::memory().await;
    let work = tool("work", "Works.", async |call: rekindle::tool::ToolContext, of: Of| {
        call.progress(rekindle::Json::from("half"));
        Ok::<_, ToolError>(of.what)
    });
    let (agent, _) = agent(Script::new("m").call("work", of("a")).text("done"), |builder| builder.tool(work));
    let (seen, said) = watch(agent.run("go", &rig.session).await.unwrap()).await;
    assert!(said.iter().any(|kind| matches!(kind, LiveKind::Progress { value, .. } if value.as_str() == "\"half\"")));
    assert!(!format!("{seen:?}").contains("half"));
}

#[tokio::test]
async fn a_reader_in_another_process_follows_a_run_that_is_under_way() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let script = Script::new("m").call("slow", of("a")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(held.tool("slow")));
    let mut events = Events::follow(&rig.world.engine(), rig.key(), &start()).await.unwrap();
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    let mut seen = Vec::new();
    let mut released = false;
    loop {
        let Event::Recorded { position, record, .. } = events.next().await.unwrap().unwrap() else { continue };
        let ended = matches!(record, Record::Checkpoint(_));
        if matches!(&record, Record::EffectIntent(intent) if intent.name == "slow") && !released {
            // It saw the intent while the call was under way.
            released = true;
            held.release();
        }
        seen.push((position, record));
        if ended {
            break;
        }
    }
    run.report().await.unwrap();
    assert!(released);
    assert_eq!(seen, stored(&rig).await);
}

#[derive(Clone, Debug, Default)]
struct Reads(Arc<AtomicUsize>);

impl StoreObserver for Reads {
    fn observed(&self, observation: Observation) {
        self.0.fetch_add(usize::from(observation.operation == "read"), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_reader_of_a_branch_rests_while_another_branch_runs() {
    let rig = Rig::memory().await;
    let reads = Reads::default();
    let store = MeteredStore::new(rig.world.store(), Arc::new(reads.clone()));
    let engine = rig.world.engine_over(Arc::new(store)).with_poll(Duration::from_secs(60));
    let session = engine.open_session("s").await.unwrap();
    let held = Held::default();
    let script = Script::new("m").text("one").call("slow", of("a")).text("two");
    let (agent, _) = agent(script, |builder| builder.tool(held.tool("slow")));
    agent.run_once("first", &session).await.unwrap();
    let first = engine.journal().checkpoints(rig.key(), None, None, 1).await.unwrap().remove(0);
    // A run on a fork, further than the branch the reader reads.
    let options = ResumeOptions::new("maria").from_checkpoint(first.checkpoint.id);
    let run = agent.run_with(vec!["second".into()], &session, options).await.unwrap();
    held.began().await;
    let length = stored(&rig).await.len();
    let mut events = Events::follow(&engine, rig.key(), &start()).await.unwrap();
    for _ in 0..length {
        events.next().await.unwrap();
    }
    reads.0.store(0, Ordering::SeqCst);
    let more = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
    assert!(more.is_err(), "nothing happens on that branch: {more:?}");
    assert!(reads.0.load(Ordering::SeqCst) < 10, "{reads:?}");
    held.release();
    run.report().await.unwrap();
}
