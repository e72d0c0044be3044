//! After a fork before damage, calls that may have happened are in doubt: with agents, plans and graphs, and for each
//! policy of a tool. What really happened stands in a ledger outside.

use rekindle::core::record::{HistoryLost, RunOutcome};
use rekindle::core::{Entry, Record, Seq};
use rekindle::graph::{GraphInput, NodeSpec};
use rekindle::operations::{self, At, ForkOptions, Settlement};
use rekindle::tool::{Approval, Checked, FnTool, ToolError, tool};
use rekindle::{
    Agent, BranchId, EffectId, Engine, Error, Graph, Json, Plan, Position, ResumeOptions, RunReport, Session,
};
use rekindle_models::Script;
use serde_json::{Value, json};

use crate::common::step;
use crate::kit::{Rig, agent, of};
use crate::support::{Kind, Ledger, Of};
use crate::victim::damage;

/// What makes the calls.
#[derive(Clone, Debug)]
enum Work {
    Agent(Agent),
    Plan(Plan),
    Graph(Graph),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    Agent,
    Plan,
    Graph,
}

impl Executor {
    const ALL: [Self; 3] = [Self::Agent, Self::Plan, Self::Graph];

    fn work(self, pay: FnTool<Of>) -> Work {
        let note = tool("note", "Notes.", async |_, of: Of| Ok::<_, ToolError>(of.what)).replay_safe();
        match self {
            Self::Agent => {
                let script = Script::new("m").call("pay", of("five")).text("done");
                Work::Agent(agent(script, |builder| builder.tool(pay)).0)
            }
            Self::Plan => {
                let steps = [step("one", "note", "x"), step("two", "pay", "five").after(["one"])];
                Work::Plan(Plan::builder("plan").tool(note).tool(pay).steps(steps).build().unwrap())
            }
            Self::Graph => {
                let node = |id: &str, tool: &str| NodeSpec::function(id).calls(tool).with("what", "five");
                let builder = Graph::builder("graph").tool(note).tool(pay);
                let builder = builder.node(node("one", "note")).node(node("two", "pay")).path(["one", "two"]);
                Work::Graph(builder.build().unwrap())
            }
        }
    }
}

impl Work {
    async fn run(&self, session: &Session) -> Result<RunReport, Error> {
        match self {
            Self::Agent(agent) => agent.run("go", session).await?.report().await,
            Self::Plan(plan) => plan.run("go", session).await?.report().await,
            Self::Graph(graph) => graph.run(GraphInput::new(), session).await?.report().await,
        }
    }

    async fn resume(&self, session: &Session, options: ResumeOptions) -> Result<RunReport, Error> {
        match self {
            Self::Agent(agent) => agent.resume_with(session, options).await?.report().await,
            Self::Plan(plan) => plan.resume_with(session, options).await?.report().await,
            Self::Graph(graph) => graph.resume_with(session, options).await?.report().await,
        }
    }
}

/// Pays, and says so outside with the key it was given.
fn pay(ledger: &Ledger) -> FnTool<Of> {
    let ledger = ledger.clone();
    tool("pay", "Pays.", move |call, of: Of| {
        ledger.write(&format!("paid {}", call.idempotency_key()));
        async move { Ok::<_, ToolError>(of.what) }
    })
    .writes()
}

fn paid(ledger: &Ledger) -> usize {
    ledger.lines().iter().filter(|line| line.starts_with("paid ")).count()
}

fn branch() -> BranchId {
    BranchId::new("other").unwrap()
}

fn there() -> ResumeOptions {
    ResumeOptions::new("maria").on_branch(branch())
}

/// The batch of `main` with the first record that is looked for.
async fn batch_with(engine: &Engine, rig: &Rig, wanted: impl Fn(&Record) -> bool) -> (Seq, Seq) {
    let entries = engine.journal().read(rig.key(), &BranchId::main(), Seq(1), 1_000).await.unwrap();
    let batches = entries.into_iter().map(|entry| match entry {
        Entry::Batch(batch) => batch,
        Entry::Damaged(damage) => panic!("{damage:?}"),
    });
    let mut batches = batches.filter(|batch| batch.records.iter().any(&wanted));
    batches.next().map(|batch| (batch.first, batch.last)).expect("no such record")
}

fn is_intent(record: &Record) -> bool {
    matches!(record, Record::EffectIntent(intent) if intent.name == "pay")
}

fn is_outcome(record: &Record) -> bool {
    matches!(record, Record::EffectOutcome(outcome) if !outcome.effect.as_str().starts_with('m')
        && outcome.value.as_ref().is_some_and(|value| value.as_str().contains("five")))
}

/// Runs to the end, and then loses what stands behind `from`: of an agent the outcome of its call, of a plan or a graph
/// the intent. Gives where to fork.
async fn lose(executor: Executor, rig: &Rig, work: &Work) -> Position {
    let report = work.run(&rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{executor:?}: {}", report.reason);
    assert_eq!(paid(&rig.world.ledger()), 1, "{executor:?}");
    let engine = rig.world.engine();
    let (first, last) = match executor {
        Executor::Agent => batch_with(&engine, rig, is_outcome).await,
        Executor::Plan | Executor::Graph => batch_with(&engine, rig, is_intent).await,
    };
    damage(&rig.world, Kind::Sqlite, "main", last.0);
    Position::new(BranchId::main(), first.previous())
}

async fn fork(rig: &Rig, from: &Position) {
    let options = ForkOptions { branch: Some(branch()), author: "maria".into(), ..ForkOptions::default() };
    operations::fork(&rig.world.engine(), rig.key(), &At::Position(from.clone()), options).await.unwrap();
}

/// A session that was forked before what it lost.
async fn forked(executor: Executor, declare: impl FnOnce(FnTool<Of>) -> FnTool<Of>) -> (Rig, Work) {
    let rig = Rig::new(Kind::Sqlite).await;
    let work = executor.work(declare(pay(&rig.world.ledger())));
    let from = lose(executor, &rig, &work).await;
    fork(&rig, &from).await;
    (rig, work)
}

async fn state(rig: &Rig) -> rekindle::State {
    let engine = rig.world.engine();
    operations::inspect(&engine, rig.key(), &At::Head(branch())).await.unwrap().state
}

async fn open_effect(rig: &Rig) -> EffectId {
    let open: Vec<_> = state(rig).await.open_effects().map(|effect| effect.intent.effect.clone()).collect();
    assert_eq!(open.len(), 1, "{open:?}");
    open[0].clone()
}

async fn answer(rig: &Rig, value: Value) {
    let waits = operations::waits_of(&rig.world.engine(), rig.key()).await.unwrap();
    assert_eq!(waits.len(), 1, "{waits:?}");
    let answer = operations::Answer::value(waits[0].wait.opened.wait.clone(), Json::from(value), "maria");
    operations::answer(&rig.world.engine(), rig.key(), &answer).await.unwrap();
}

#[tokio::test]
async fn a_call_that_must_never_be_repeated_is_not() {
    for executor in Executor::ALL {
        let (rig, work) = forked(executor, FnTool::never_again).await;
        for _ in 0..2 {
            let error = work.resume(&rig.again().await, there()).await.unwrap_err();
            assert_eq!(error.code(), "RK0022", "{executor:?}: {error}");
            assert_eq!(paid(&rig.world.ledger()), 1, "{executor:?}");
        }
        let (effect, settlement) = (open_effect(&rig).await, Settlement::Ok(Json::from("five")));
        let engine = rig.world.engine();
        operations::settle(&engine, rig.key(), &effect, &settlement, "maria", "asked the bank").await.unwrap();
        let report = work.resume(&rig.again().await, ResumeOptions::default()).await.unwrap();
        assert_eq!((report.outcome, paid(&rig.world.ledger())), (RunOutcome::Succeeded, 1), "{executor:?}");
    }
}

#[tokio::test]
async fn a_person_is_asked_about_calls_that_only_a_key_or_a_person_makes_safe() {
    for executor in Executor::ALL {
        for (declare, name) in
            [(FnTool::idempotent as fn(FnTool<Of>) -> FnTool<Of>, "idempotent"), (|tool| tool, "ask")]
        {
            for (said, times) in [(json!({"action": "done", "result": "five"}), 1), (json!({"action": "retry"}), 2)] {
                let (rig, work) = forked(executor, declare).await;
                let report = work.resume(&rig.again().await, there()).await.unwrap();
                assert_eq!(report.outcome, RunOutcome::Waiting, "{executor:?} {name}: {}", report.reason);
                assert_eq!(paid(&rig.world.ledger()), 1, "{executor:?} {name}");
                answer(&rig, said.clone()).await;
                let report = work.resume(&rig.again().await, ResumeOptions::default()).await.unwrap();
                assert_eq!(report.outcome, RunOutcome::Succeeded, "{executor:?} {name}: {}", report.reason);
                assert_eq!(paid(&rig.world.ledger()), times, "{executor:?} {name} {said}");
            }
        }
    }
}

#[tokio::test]
async fn a_check_is_asked_by_the_key_the_call_was_made_with() {
    for executor in Executor::ALL {
        let checked = |ledger: Ledger| {
            move |tool: FnTool<Of>| {
                tool.check(move |call, _: Of| {
                    let done = ledger.lines().contains(&format!("paid {}", call.idempotency_key()));
                    async move { Ok(if done { Checked::Happened(Json::from("five")) } else { Checked::DidNotHappen }) }
                })
            }
        };
        let rig = Rig::new(Kind::Sqlite).await;
        let work = executor.work(checked(rig.world.ledger())(pay(&rig.world.ledger())));
        let from = lose(executor, &rig, &work).await;
        fork(&rig, &from).await;
        let report = work.resume(&rig.again().await, there()).await.unwrap();
        assert_eq!((report.outcome, paid(&rig.world.ledger())), (RunOutcome::Succeeded, 1), "{executor:?}");

        let (rig, work) = forked(executor, |tool| tool.check(async |_, _: Of| Ok(Checked::Unknown))).await;
        let report = work.resume(&rig.again().await, there()).await.unwrap();
        assert_eq!((report.outcome, paid(&rig.world.ledger())), (RunOutcome::Waiting, 1), "{executor:?}");
    }
}

#[tokio::test]
async fn a_call_that_may_be_repeated_is_made() {
    for executor in Executor::ALL {
        let (rig, work) = forked(executor, FnTool::replay_safe).await;
        let report = work.resume(&rig.again().await, there()).await.unwrap();
        assert_eq!((report.outcome, paid(&rig.world.ledger())), (RunOutcome::Succeeded, 2), "{executor:?}");
    }
}

#[tokio::test]
async fn whoever_forks_is_told_and_the_new_branch_says_so() {
    let rig = Rig::new(Kind::Sqlite).await;
    let work = Executor::Plan.work(pay(&rig.world.ledger()).never_again());
    let from = lose(Executor::Plan, &rig, &work).await;
    let engine = rig.world.engine();
    let options = ForkOptions { branch: Some(branch()), author: "maria".into(), ..ForkOptions::default() };
    let forked = operations::fork(&engine, rig.key(), &At::Position(from.clone()), options).await.unwrap();
    let lost: Vec<_> = forked.damage.iter().map(|damage| (damage.branch.clone(), damage.first)).collect();
    assert_eq!(lost, [(BranchId::main(), from.seq.next())]);
    let state = state(&rig).await;
    let [HistoryLost { branch, from: first, turn, author, .. }] = state.lost() else { panic!("{:?}", state.lost()) };
    assert_eq!((branch, *first, *turn), (&BranchId::main(), from.seq.next(), Some(1)));
    assert_eq!(author.as_deref(), Some("maria"));
    let before = operations::inspect(&engine, rig.key(), &At::Position(from)).await.unwrap();
    assert_eq!(before.damage.len(), 1, "whoever looks before it is told, too");
}

#[tokio::test]
async fn every_way_to_go_back_before_damage_finds_it() {
    for way in ["journal", "checkpoint", "fallback"] {
        let rig = Rig::new(Kind::Sqlite).await;
        let work = Executor::Plan.work(pay(&rig.world.ledger()).never_again());
        let from = lose(Executor::Plan, &rig, &work).await;
        let engine = rig.world.engine();
        let checkpoints = engine.journal().checkpoints(rig.key(), Some(&from), None, 1).await.unwrap();
        let options = ResumeOptions::new("maria");
        let options = match way {
            "journal" => {
                engine.journal().fork(rig.key(), &from, branch()).await.unwrap();
                options.on_branch(branch())
            }
            "checkpoint" => options.from_checkpoint(checkpoints[0].checkpoint.id.clone()),
            _ => options.fallback(),
        };
        let error = work.resume(&rig.again().await, options).await.unwrap_err();
        assert_eq!((error.code(), paid(&rig.world.ledger())), ("RK0022", 1), "{way}: {error}");
    }
}

#[tokio::test]
async fn a_fork_before_whole_history_puts_nothing_in_doubt() {
    for executor in Executor::ALL {
        let rig = Rig::new(Kind::Sqlite).await;
        let work = executor.work(pay(&rig.world.ledger()));
        work.run(&rig.session).await.unwrap();
        let (first, _) = batch_with(&rig.world.engine(), &rig, is_intent).await;
        fork(&rig, &Position::new(BranchId::main(), first.previous())).await;
        let report = work.resume(&rig.again().await, there()).await.unwrap();
        assert_eq!((report.outcome, paid(&rig.world.ledger())), (RunOutcome::Succeeded, 2), "{executor:?}");
        assert!(state(&rig).await.lost().is_empty());
    }
}

#[tokio::test]
async fn a_call_that_a_model_decides_after_the_fork_is_new() {
    let rig = Rig::new(Kind::Sqlite).await;
    let work = Executor::Agent.work(pay(&rig.world.ledger()).never_again());
    work.run(&rig.session).await.unwrap();
    let (first, last) = batch_with(&rig.world.engine(), &rig, is_intent).await;
    damage(&rig.world, Kind::Sqlite, "main", last.0);
    fork(&rig, &Position::new(BranchId::main(), first.previous())).await;
    let report = work.resume(&rig.again().await, there()).await.unwrap();
    assert_eq!((report.outcome, paid(&rig.world.ledger())), (RunOutcome::Succeeded, 2));
    assert_eq!(state(&rig).await.lost().len(), 1, "that history is lost is on record");
}

#[tokio::test]
async fn an_approval_given_again_does_not_make_a_call_again_that_may_have_happened() {
    for executor in Executor::ALL {
        let rig = Rig::new(Kind::Sqlite).await;
        let work = executor.work(pay(&rig.world.ledger()).never_again().needs_approval(Approval::default()));
        let approve = async || {
            let engine = rig.world.engine();
            let waits = operations::waits_of(&engine, rig.key()).await.unwrap();
            let wait = &waits[0].wait;
            let answer = operations::Answer::approve(wait.opened.wait.clone(), wait.approve_digest, "maria");
            operations::answer(&engine, rig.key(), &answer).await.unwrap();
        };
        assert_eq!(work.run(&rig.session).await.unwrap().outcome, RunOutcome::Waiting, "{executor:?}");
        let waiting = rig.world.engine().journal().open(rig.key()).await.unwrap().current_branch().unwrap().head.seq;
        approve().await;
        let report = work.resume(&rig.again().await, ResumeOptions::default()).await.unwrap();
        assert_eq!((report.outcome, paid(&rig.world.ledger())), (RunOutcome::Succeeded, 1), "{executor:?}");
        let (_, last) = batch_with(&rig.world.engine(), &rig, is_intent).await;
        damage(&rig.world, Kind::Sqlite, "main", last.0);
        fork(&rig, &Position::new(BranchId::main(), waiting)).await;
        assert_eq!(work.resume(&rig.again().await, there()).await.unwrap().outcome, RunOutcome::Waiting);
        approve().await;
        let error = work.resume(&rig.again().await, ResumeOptions::default()).await.unwrap_err();
        assert_eq!((error.code(), paid(&rig.world.ledger())), ("RK0022", 1), "{executor:?}: {error}");
    }
}
