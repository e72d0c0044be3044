//! Flows that are told to stop, and flows that are told something else.

use std::sync::Arc;

use rekindle::Durability;
use rekindle::core::record::{Command, InboxMode, RunOutcome};
use rekindle::core::{Record, Seq};
use rekindle::executor::Attempt;
use rekindle::tool::ToolError;
use rekindle::wait::WaitSpec;
use rekindle::{Flow, FlowContext, OnWait, RunHandle, RunOptions, Status};
use rekindle_store::{Fault, FaultPlan};
use tokio::sync::Notify;

use crate::kit::{Rig, ended, eventually, recorded, soon};

fn is_wait(record: &Record) -> bool {
    matches!(record, Record::WaitOpened(_))
}

#[tokio::test]
async fn a_flow_that_holds_for_a_wait_obeys_a_command() {
    let expected = [(Command::Cancel, RunOutcome::Cancelled, 0), (Command::Pause, RunOutcome::Paused, 1)];
    for (command, outcome, open) in expected {
        let rig = Rig::memory().await;
        let flow = Flow::new("f", async |ctx: FlowContext, (): ()| ctx.wait("go", &WaitSpec::signal("go")).await)
            .with_options(RunOptions { on_wait: OnWait::Hold, ..RunOptions::default() });
        let run = flow.run(&(), &rig.session).await.unwrap();
        recorded(&rig, is_wait).await;
        rig.send(&[rig.command(command, None)]).await;
        assert_eq!(soon(run.report()).await.unwrap().outcome, outcome, "{command:?}");
        assert_eq!(rig.waits().await.len(), open, "{command:?}");
        assert_eq!(rig.state().await.inbox_taken(), Seq(1), "{command:?} is not obeyed once more");
    }
}

/// A step that ends when it is released, or fails when its result is no longer wanted.
async fn held_step(call: Attempt, began: &Notify, release: &Notify) -> Result<(), ToolError> {
    began.notify_one();
    tokio::select! {
        () = release.notified() => Ok(()),
        () = call.cancel.cancelled() => Err(ToolError::failed("told to stop")),
    }
}

/// A flow waits beside a step that is under way and is told to stop, then the step may end.
async fn told_beside_a_step(tell: impl FnOnce(&RunHandle), outcome: RunOutcome, open: usize) {
    let rig = Rig::memory().await;
    let (began, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let held = (began.clone(), release.clone());
    let flow = Flow::new("f", move |ctx: FlowContext, (): ()| {
        let (began, release) = held.clone();
        async move {
            let question = WaitSpec::question("a?");
            let step = ctx.step("s", &1, async |call| held_step(call, &began, &release).await);
            let (answer, done) = tokio::join!(ctx.wait("a", &question), step);
            done?;
            answer
        }
    });
    let run = flow.run(&(), &rig.session).await.unwrap();
    recorded(&rig, is_wait).await;
    soon(began.notified()).await;
    tell(&run);
    release.notify_one();
    let report = soon(run.report()).await.unwrap();
    assert_eq!((report.outcome, report.waits.len()), (outcome, open), "{}", report.reason);
    assert_eq!(rig.waits().await.len(), open);
}

#[tokio::test]
async fn a_flow_cancelled_while_it_waits_beside_a_step_is_cancelled_and_leaves_no_wait() {
    told_beside_a_step(|run| run.cancel("no more"), RunOutcome::Cancelled, 0).await;
}

#[tokio::test]
async fn a_flow_paused_while_it_waits_beside_a_step_is_paused_and_keeps_its_wait() {
    told_beside_a_step(|run| run.stop("a while"), RunOutcome::Paused, 1).await;
}

/// A long step that ends when it is released or told to stop, and says which; beside it small
/// ones, each of which looks into the inbox before it begins.
#[derive(Clone, Debug, Default)]
struct Busy {
    began: Arc<Notify>,
    release: Arc<Notify>,
    tick: Arc<Notify>,
}

impl Busy {
    fn flow(&self) -> Flow {
        let busy = self.clone();
        let flow = Flow::new("busy", move |ctx: FlowContext, (): ()| {
            let busy = busy.clone();
            async move { busy.body(ctx).await }
        });
        flow.with_options(RunOptions { durability: Durability::Sync, ..RunOptions::default() })
    }

    async fn body(&self, ctx: FlowContext) -> rekindle::Result<bool> {
        let done = Notify::new();
        let long = async {
            let work = async |call: Attempt| {
                self.began.notify_one();
                tokio::select! {
                    () = self.release.notified() => {}
                    () = call.cancel.cancelled() => self.tick.notify_one(),
                }
                Ok(call.cancel.is_cancelled())
            };
            let told = ctx.step("long", &1, work).await;
            done.notify_one();
            told
        };
        let small = async {
            let mut number = 0;
            while tokio::select! { biased; () = self.tick.notified() => true, () = done.notified() => false } {
                number += 1;
                ctx.step(&format!("small {number}"), &1, async |_| Ok(())).await?;
            }
            Ok::<_, rekindle::Error>(())
        };
        let (told, small) = tokio::join!(long, small);
        small?;
        told
    }

    /// Once what stands in the inbox was taken over, and that is on record, while the long step
    /// is still under way.
    async fn takes_over(&self, rig: &Rig, run: &RunHandle) {
        eventually(async || {
            self.tick.notify_one();
            run.checkpoint("look").await.unwrap();
            let records = rig.records().await;
            records.iter().any(|record| matches!(record, Record::InboxTaken(_))).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn an_interrupting_message_does_not_stop_a_flow() {
    let (rig, busy) = (Rig::memory().await, Busy::default());
    let run = busy.flow().run(&(), &rig.session).await.unwrap();
    soon(busy.began.notified()).await;
    rig.send(&[rig.message(InboxMode::Interrupt, "hey")]).await;
    busy.takes_over(&rig, &run).await;
    busy.release.notify_one();
    let report = soon(run.report()).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Succeeded, "{}", report.reason);
    assert_eq!(report.value.unwrap().as_str(), "false", "its step was told to stop");
}

/// A flow whose store fails by a plan, in its long step.
struct Dying {
    rig: Rig,
    busy: Busy,
    plan: Arc<FaultPlan>,
    run: RunHandle,
}

impl Dying {
    async fn new() -> Self {
        let (rig, busy) = (Rig::memory().await, Busy::default());
        let (session, plan) = rig.faulty().await;
        let run = busy.flow().run(&(), &session).await.unwrap();
        soon(busy.began.notified()).await;
        Self { rig, busy, plan, run }
    }

    /// It ends so, or dies and ends so when it is resumed. Whether it died.
    async fn ends(self, write: u64, outcome: RunOutcome, status: Status) -> bool {
        let first = soon(self.run.report()).await;
        let died = self.plan.calls() > write;
        self.rig.world.pass_leases();
        if self.rig.state().await.status() != status {
            assert!(died, "it ended otherwise: {first:?}");
            let report = ended(self.busy.flow().resume(&self.rig.again().await).await).await.unwrap();
            assert_eq!(report.outcome, outcome, "died at write {write}: {}", report.reason);
        }
        assert_eq!(self.rig.state().await.status(), status, "died at write {write}");
        died
    }
}

#[tokio::test]
async fn a_pause_that_a_flow_took_over_beside_a_step_is_obeyed_wherever_it_dies() {
    let died_at = async |write| {
        let flow = Dying::new().await;
        flow.rig.send(&[flow.rig.command(Command::Pause, None)]).await;
        flow.busy.takes_over(&flow.rig, &flow.run).await;
        flow.plan.fail_from(write, Fault::Unreachable);
        flow.busy.release.notify_one();
        flow.ends(write, RunOutcome::Paused, Status::Paused).await
    };
    let mut write = 0;
    while died_at(write).await {
        write += 1;
    }
    assert!(write >= 2, "only {write} writes");
}

#[tokio::test]
async fn a_cancel_of_a_flow_in_a_step_is_obeyed_wherever_it_dies() {
    let died_at = async |write| {
        let flow = Dying::new().await;
        flow.plan.fail_from(write, Fault::Unreachable);
        flow.rig.send(&[flow.rig.command(Command::Cancel, None)]).await;
        flow.ends(write, RunOutcome::Cancelled, Status::Cancelled).await
    };
    let mut write = 0;
    while died_at(write).await {
        write += 1;
    }
    assert!(write >= 2, "only {write} writes");
}
