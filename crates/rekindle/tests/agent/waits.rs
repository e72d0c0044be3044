//! Waits for people, signals and times.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rekindle::core::Record;
use rekindle::core::record::{CheckpointType, Decision, InboxAnswer, RunOutcome, WaitCloseReason, WaitKind};
use rekindle::tool::{Approval, FnTool, ToolError, ToolOutput, tool};
use rekindle::wait::WaitSpec;
use rekindle::{Agent, Json, OnWait, ResumeOptions, RunReport, Status};
use rekindle_models::Script;
use serde_json::{Value, json};

use crate::kit::{Rig, Spy, agent, is_closed, of};
use crate::support::{Kind, Of};

/// What a tool was called with.
#[derive(Clone, Debug, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    fn tool(&self, name: &str) -> FnTool<Of> {
        let calls = self.clone();
        tool(name, "Pays.", move |_, of: Of| {
            calls.0.lock().unwrap().push(of.what.clone());
            async move { Ok::<_, ToolError>(format!("paid {}", of.what)) }
        })
        .writes()
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn script() -> Script {
    Script::new("m").call("pay", of("five")).text("done").text("and again")
}

fn paying(calls: &Calls, approval: Approval) -> (Agent, Spy) {
    agent(script(), |builder| builder.tool(calls.tool("pay").needs_approval(approval)))
}

/// An agent whose tool `ask` opens that wait.
fn asking(spec: WaitSpec) -> (Agent, Spy) {
    let ask = tool("ask", "Asks.", move |_, _: Of| {
        let spec = spec.clone();
        async move { Ok::<_, ToolError>(ToolOutput::wait(spec)) }
    });
    agent(Script::new("m").call("ask", of("it")).text("done"), |builder| builder.tool(ask))
}

async fn resume(agent: &Agent, rig: &Rig) -> RunReport {
    agent.resume(&rig.again().await).await.unwrap().report().await.unwrap()
}

/// Runs up to the first wait.
async fn up_to_the_wait(agent: &Agent, rig: &Rig) {
    let report = agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting, "{}", report.reason);
    assert_eq!(report.waits.len(), rig.waits().await.len());
    assert_eq!(rig.state().await.status(), Status::Waiting);
}

async fn decide(rig: &Rig, author: &str, change: impl FnOnce(&mut InboxAnswer)) {
    let mut answer = rig.answer(&rig.wait().await, Decision::Approve, author);
    change(&mut answer);
    rig.send(&[answer.into()]).await;
}

fn decisions(records: &[Record]) -> Vec<(String, Decision)> {
    let decisions = records.iter().filter_map(|record| match record {
        Record::WaitDecision(decision) => Some((decision.author.clone(), decision.decision)),
        _ => None,
    });
    decisions.collect()
}

fn closed(records: &[Record]) -> Vec<WaitCloseReason> {
    let closed = records.iter().filter_map(|record| match record {
        Record::WaitClosed(closed) => Some(closed.reason),
        _ => None,
    });
    closed.collect()
}

fn reminders(records: &[Record]) -> usize {
    records.iter().filter(|record| matches!(record, Record::WaitReminded(_))).count()
}

#[tokio::test]
async fn an_approval_names_the_digest_of_what_is_shown_and_survives_the_process() {
    let rig = Rig::new(Kind::Sqlite).await;
    let calls = Calls::default();
    let (agent, spy) = paying(&calls, Approval { prompt: "Pay?".into(), ..Approval::default() });
    up_to_the_wait(&agent, &rig).await;
    let wait = rig.wait().await;
    assert_eq!((wait.kind, wait.prompt.as_str()), (WaitKind::Approval, "Pay?"));
    assert_eq!(wait.digest, Some(rekindle::wait::digest(&Json::from(of("five"))).unwrap()));
    assert_eq!(wait.arguments, Some(Json::from(of("five"))));
    assert_eq!(calls.all(), [] as [&str; 0]);
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting, "nobody has decided");
    assert_eq!(rig.wait().await.wait, wait.wait, "it is the same wait");
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), ["five"]);
    assert_eq!(spy.count(), 2);
    assert_eq!(decisions(&rig.records().await), [("maria".into(), Decision::Approve)]);
    assert_eq!(closed(&rig.records().await), [WaitCloseReason::Answered]);
}

#[tokio::test]
async fn an_approval_of_something_else_is_ignored() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval::default());
    up_to_the_wait(&agent, &rig).await;
    let other = rekindle::wait::digest(&Json::from(of("five hundred"))).unwrap();
    decide(&rig, "maria", |answer| answer.digest = Some(other)).await;
    decide(&rig, "maria", |answer| answer.digest = None).await;
    decide(&rig, "maria", |answer| answer.decision = Decision::Answer).await;
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting);
    assert_eq!(decisions(&rig.records().await), []);
    assert_eq!(calls.all(), [] as [&str; 0]);
}

#[tokio::test]
async fn edited_arguments_are_what_the_tool_gets_and_stand_in_the_intent() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval::default());
    up_to_the_wait(&agent, &rig).await;
    decide(&rig, "maria", |answer| answer.arguments = Some(Json::from(of("three")))).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), ["three"]);
    let records = rig.records().await;
    let intent = records.iter().find_map(|record| match record {
        Record::EffectIntent(intent) if intent.name == "pay" => Some(intent.clone()),
        _ => None,
    });
    assert_eq!(intent.unwrap().arguments, Some(Json::from(of("three"))));
    assert_eq!(rig.results().await[0].content.as_str(), "\"paid three\"");
}

#[tokio::test]
async fn edited_arguments_that_do_not_fit_the_schema_do_not_count() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval::default());
    up_to_the_wait(&agent, &rig).await;
    decide(&rig, "maria", |answer| answer.arguments = Some(Json::from(json!({"what": 5})))).await;
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting);
    assert_eq!(calls.all(), [] as [&str; 0]);
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
}

#[tokio::test]
async fn two_approvers_are_two_people() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval { approvals: 2, ..Approval::default() });
    up_to_the_wait(&agent, &rig).await;
    decide(&rig, "maria", |_| {}).await;
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting);
    assert_eq!(calls.all(), [] as [&str; 0]);
    decide(&rig, "jon", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), ["five"]);
}

#[tokio::test]
async fn an_approval_of_what_was_first_shown_is_none_of_what_somebody_edited_since() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval { approvals: 2, ..Approval::default() });
    up_to_the_wait(&agent, &rig).await;
    decide(&rig, "maria", |answer| answer.arguments = Some(Json::from(of("five hundred")))).await;
    decide(&rig, "jon", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting, "jon approved five");
    assert_eq!(calls.all(), [] as [&str; 0]);
    let edited = rekindle::wait::digest(&Json::from(of("five hundred"))).unwrap();
    decide(&rig, "jon", |answer| answer.digest = Some(edited)).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), ["five hundred"]);
}

#[tokio::test]
async fn why_it_was_rejected_reaches_the_model() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, spy) = paying(&calls, Approval { approvals: 2, ..Approval::default() });
    up_to_the_wait(&agent, &rig).await;
    decide(&rig, "maria", |_| {}).await;
    let no = |answer: &mut InboxAnswer| {
        answer.decision = Decision::Reject;
        answer.reason = "not this month".into();
    };
    decide(&rig, "jon", no).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), [] as [&str; 0]);
    assert!(spy.requests()[1].last.contains("not this month"), "{:?}", spy.requests()[1]);
}

#[tokio::test]
async fn an_approval_nobody_gives_expires_with_its_default() {
    for (approve_on_expiry, expected) in [(true, "paid five"), (false, "rejected: nobody decided in time")] {
        let rig = Rig::memory().await;
        let calls = Calls::default();
        let expires_after = Some(Duration::from_secs(60));
        let (agent, _) = paying(&calls, Approval { expires_after, approve_on_expiry, ..Approval::default() });
        up_to_the_wait(&agent, &rig).await;
        rig.world.clock.advance(Duration::from_secs(59));
        assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting);
        rig.world.clock.advance(Duration::from_secs(1));
        assert_eq!(resume(&agent, &rig).await.text(), "done");
        assert_eq!(rig.results().await[0].content.decode::<String>().unwrap(), expected);
        assert_eq!(calls.all().len(), usize::from(approve_on_expiry));
        assert_eq!(closed(&rig.records().await), [WaitCloseReason::Expired]);
    }
}

#[tokio::test]
async fn an_answer_after_the_expiry_is_ignored() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval { expires_after: Some(Duration::from_secs(60)), ..Approval::default() });
    up_to_the_wait(&agent, &rig).await;
    rig.world.clock.advance(Duration::from_secs(61));
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), [] as [&str; 0]);
    assert_eq!(decisions(&rig.records().await), []);
}

#[tokio::test]
async fn an_answer_given_in_time_counts_although_nobody_ran_until_later() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval { expires_after: Some(Duration::from_secs(60)), ..Approval::default() });
    up_to_the_wait(&agent, &rig).await;
    rig.world.clock.advance(Duration::from_secs(59));
    decide(&rig, "maria", |_| {}).await;
    rig.world.clock.advance(Duration::from_secs(59));
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), ["five"]);
}

#[tokio::test]
async fn a_reminder_that_is_due_is_recorded_once() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval { remind_after: Some(Duration::from_secs(60)), ..Approval::default() });
    up_to_the_wait(&agent, &rig).await;
    resume(&agent, &rig).await;
    assert_eq!(reminders(&rig.records().await), 0, "it is not due");
    rig.world.clock.advance(Duration::from_secs(60));
    resume(&agent, &rig).await;
    resume(&agent, &rig).await;
    assert_eq!(reminders(&rig.records().await), 1);
}

#[tokio::test]
async fn a_run_that_holds_records_a_reminder_once_and_goes_on_when_it_is_answered() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let remind_after = Some(Duration::from_millis(5));
    let approval = Approval { remind_after, ..Approval::default() };
    let (agent, _) =
        agent(script(), |builder| builder.tool(calls.tool("pay").needs_approval(approval)).on_wait(OnWait::Hold));
    let mut run = agent.run("go", &rig.session).await.unwrap();
    loop {
        match run.next_event().await.unwrap().unwrap() {
            rekindle::Event::Recorded { record: Record::WaitOpened(_), .. } => {
                rig.world.clock.advance(Duration::from_secs(1));
            }
            rekindle::Event::Recorded { record: Record::WaitReminded(_), .. } => break,
            _ => {}
        }
    }
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(run.report().await.unwrap().text(), "done");
    assert_eq!(calls.all(), ["five"]);
    let records = rig.records().await;
    assert_eq!(reminders(&records), 1);
    assert_eq!(records.iter().filter(|record| matches!(record, Record::RunStarted(_))).count(), 1);
}

#[tokio::test]
async fn the_answer_to_a_question_is_the_result_of_the_tool() {
    let rig = Rig::new(Kind::Sqlite).await;
    let schema = Json::from(json!({"type": "object", "required": ["colour"]}));
    let (agent, spy) = asking(WaitSpec::question("Which colour?").with_schema(schema));
    up_to_the_wait(&agent, &rig).await;
    assert_eq!(rig.wait().await.kind, WaitKind::Question);
    rig.answer_with(json!("blue")).await;
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting, "that does not fit the schema");
    rig.answer_with(json!({"colour": "blue"})).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    let result: Value = rig.results().await[0].content.decode().unwrap();
    assert_eq!(result, json!({"colour": "blue"}));
    assert_eq!(spy.count(), 2);
}

#[tokio::test]
async fn an_answer_counts_once_and_later_ones_change_nothing() {
    let rig = Rig::memory().await;
    let (agent, _) = asking(WaitSpec::question("Which colour?"));
    up_to_the_wait(&agent, &rig).await;
    rig.answer_with(json!("blue")).await;
    rig.answer_with(json!("red")).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(rig.results().await[0].content.as_str(), "\"blue\"");
}

#[tokio::test]
async fn a_question_nobody_answers_ends_with_its_default_or_an_error() {
    let cases = [(Some(Json::from("grey")), "grey", false), (None, "nobody answered in time", true)];
    for (default, expected, error) in cases {
        let rig = Rig::memory().await;
        let (agent, _) = asking(WaitSpec::question("Which?").expiring(Duration::from_secs(5), default));
        up_to_the_wait(&agent, &rig).await;
        rig.world.clock.advance(Duration::from_secs(5));
        assert_eq!(resume(&agent, &rig).await.text(), "done");
        let result = rig.results().await.remove(0);
        assert_eq!((result.content.decode::<String>().unwrap().as_str(), result.error), (expected, error));
    }
}

#[tokio::test]
async fn a_signal_brings_its_value() {
    let rig = Rig::memory().await;
    let (agent, _) = asking(WaitSpec::signal("shipped"));
    up_to_the_wait(&agent, &rig).await;
    assert_eq!((rig.wait().await.kind, rig.wait().await.prompt.as_str()), (WaitKind::Signal, "shipped"));
    rig.answer_with(json!({"parcel": 7})).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(rig.results().await[0].content.to_value().unwrap(), json!({"parcel": 7}));
}

#[tokio::test]
async fn a_timer_ends_by_itself_and_takes_no_answer() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (agent, _) = asking(WaitSpec::timer(Duration::from_secs(3_600)));
    up_to_the_wait(&agent, &rig).await;
    rig.answer_with(json!("now")).await;
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Waiting);
    rig.world.clock.advance(Duration::from_secs(3_600));
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(rig.results().await[0].content.as_str(), "null");
}

#[tokio::test]
async fn a_run_that_holds_goes_on_in_the_same_run_when_another_process_answers() {
    let rig = Rig::new(Kind::Sqlite).await;
    let ask = tool("ask", "Asks.", async |_, _: Of| Ok::<_, ToolError>(ToolOutput::wait(WaitSpec::question("?"))));
    let script = Script::new("m").call("ask", of("it")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(ask).on_wait(OnWait::Hold));
    let mut run = agent.run("go", &rig.session).await.unwrap();
    while rig.waits().await.is_empty() {
        run.next_event().await.unwrap();
    }
    rig.answer_with(json!("yes")).await;
    let report = run.report().await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"));
    assert_eq!(rig.records().await.iter().filter(|record| matches!(record, Record::RunStarted(_))).count(), 1);
}

#[tokio::test]
async fn a_checkpoint_stands_before_the_wait_and_leads_to_a_branch_that_asks_again() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval::default());
    up_to_the_wait(&agent, &rig).await;
    let first = rig.wait().await;
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    let before = found.iter().find(|found| found.checkpoint.kind == CheckpointType::UserCheckpoint).unwrap();
    assert!(before.checkpoint.description.contains("May `pay` be called?"), "{before:?}");
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    let options = ResumeOptions::new("maria").from_checkpoint(before.checkpoint.id.clone());
    let report = agent.resume_with(&rig.again().await, options).await.unwrap().report().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Waiting);
    assert_ne!(report.branch, rekindle::BranchId::main());
    assert_ne!(rig.wait().await.wait, first.wait);
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!(calls.all(), ["five", "five"]);
}

#[tokio::test]
async fn calls_beside_one_that_waits_are_made_once() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let script = Script::new("m")
        .calls([rekindle_models::Call::new("pay", of("five")), rekindle_models::Call::new("get", of("milk"))])
        .text("done");
    let got = Calls::default();
    let (agent, _) = agent(script, |builder| {
        builder.tool(calls.tool("pay").needs_approval(Approval::default())).tool(got.tool("get"))
    });
    up_to_the_wait(&agent, &rig).await;
    assert_eq!(got.all(), ["milk"]);
    decide(&rig, "maria", |_| {}).await;
    assert_eq!(resume(&agent, &rig).await.text(), "done");
    assert_eq!((calls.all().len(), got.all().len()), (1, 1));
    assert!(is_closed(&rig.messages().await));
}

#[tokio::test]
async fn cancelling_a_waiting_run_closes_its_wait() {
    let rig = Rig::memory().await;
    let calls = Calls::default();
    let (agent, _) = paying(&calls, Approval::default());
    up_to_the_wait(&agent, &rig).await;
    rig.send(&[rig.command(rekindle::core::record::Command::Cancel, None)]).await;
    assert_eq!(resume(&agent, &rig).await.outcome, RunOutcome::Cancelled);
    assert_eq!(closed(&rig.records().await), [WaitCloseReason::Cancelled]);
    assert_eq!(agent.run_once("again", &rig.session).await.unwrap().text(), "done");
    assert_eq!(calls.all(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_run_that_holds_goes_on_by_itself_when_its_timer_ends() {
    let (agent, _) = {
        let sleep = tool("sleep", "Sleeps.", async |_, _: Of| {
            Ok::<_, ToolError>(ToolOutput::wait(WaitSpec::timer(Duration::from_millis(5))))
        });
        let script = Script::new("m").call("sleep", of("it")).text("awake");
        agent(script, |builder| builder.tool(sleep).on_wait(OnWait::Hold))
    };
    // By the clock of this machine: nobody moves it.
    let session = rekindle::Engine::memory().unwrap().create("s").await.unwrap();
    assert_eq!(agent.run_once("go", &session).await.unwrap().text(), "awake");
}
