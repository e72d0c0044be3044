//! Budgets: used up, never refilled, raised by somebody.

use std::time::Duration;

use rekindle::core::Record;
use rekindle::core::record::{BudgetRaised, RunOutcome, Usage};
use rekindle::tool::{ToolError, tool};
use rekindle::{Agent, Budget, Budgets, ResumeOptions, RunReport};
use rekindle_models::{Call, Script, Turn};

use crate::kit::{Held, Rig, Spy, agent, echo, of};
use crate::support::{Kind, Of};

const USAGE: Usage = Usage { input_tokens: 60, output_tokens: 50, cost_micros: 10 };

/// A call, then an answer, then answers for ever; each as dear as the other.
fn script() -> Script {
    let call = Turn::calls([Call::new("echo", of("a"))]);
    Script::new("m").turn(call.with_usage(USAGE)).turn(Turn::text("done").with_usage(USAGE)).repeating_last()
}

fn limited(budget: Budget, limit: u64) -> (Agent, Spy) {
    agent(script(), |builder| builder.tool(echo()).budgets(Budgets::new().with(budget, limit)))
}

fn limited_in_all(budget: Budget, limit: u64) -> (Agent, Spy) {
    agent(script(), |builder| builder.tool(echo()).session_budgets(Budgets::new().with(budget, limit)))
}

async fn resume(agent: &Agent, rig: &Rig, options: ResumeOptions) -> RunReport {
    agent.resume_with(&rig.again().await, options).await.unwrap().report().await.unwrap()
}

/// The code the last run ended with.
async fn code(rig: &Rig) -> Option<String> {
    rig.state().await.run().unwrap().ended.clone().unwrap().code
}

fn raised(records: &[Record]) -> Vec<BudgetRaised> {
    let raised = records.iter().filter_map(|record| match record {
        Record::BudgetRaised(raised) => Some(raised.clone()),
        _ => None,
    });
    raised.collect()
}

async fn spent(budget: Budget, limit: u64, enough: u64) {
    let rig = Rig::new(Kind::Sqlite).await;
    let (agent, spy) = limited(budget, limit);
    let report = agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Paused, "{budget:?}");
    assert!(report.reason.contains(budget.as_str()), "{}", report.reason);
    assert_eq!(code(&rig).await.as_deref(), Some("RK0023"));
    let used = report.spent.of(budget);
    for _ in 0..3 {
        let again = resume(&agent, &rig, ResumeOptions::default()).await;
        assert_eq!((again.outcome, again.spent.of(budget)), (RunOutcome::Paused, used), "{budget:?}");
        assert_eq!(code(&rig).await.as_deref(), Some("RK0023"));
    }
    assert_eq!(spy.count(), 1, "nobody asked the model");
    let report = resume(&agent, &rig, ResumeOptions::new("maria").raise(budget, enough)).await;
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{budget:?}");
    let raised = raised(&rig.records().await).remove(0);
    let words = (raised.budget.as_str(), raised.from.as_str(), raised.to.as_str(), raised.author.as_str());
    assert_eq!(words, (budget.as_str(), &*limit.to_string(), &*enough.to_string(), "maria"));
}

#[tokio::test]
async fn a_spent_budget_pauses_the_run_until_it_is_raised() {
    spent(Budget::Iterations, 1, 2).await;
    spent(Budget::ToolCalls, 1, 2).await;
    spent(Budget::Tokens, 100, 300).await;
    spent(Budget::CostMicros, 10, 11).await;
}

#[tokio::test]
async fn time_spent_working_counts() {
    let rig = Rig::memory().await;
    let work = tool("echo", "Works.", async |_, of: Of| {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, ToolError>(of.what)
    });
    let budgets = Budgets::new().with(Budget::ActiveMillis, 250);
    let (agent, spy) = agent(script(), |builder| builder.tool(work).budgets(budgets));
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().outcome, RunOutcome::Paused);
    // Time in which nobody works is free, and none of it comes back.
    rig.world.pass_leases();
    let report = resume(&agent, &rig, ResumeOptions::default()).await;
    assert_eq!((report.outcome, spy.count()), (RunOutcome::Paused, 1));
    assert!(report.spent.active_micros < 60_000_000, "{:?}", report.spent);
    let report = resume(&agent, &rig, ResumeOptions::new("maria").raise(Budget::ActiveMillis, 600_000)).await;
    assert_eq!(report.text(), "done");
}

#[tokio::test]
async fn a_resume_never_refills() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let script = Script::new("m").call("slow", of("a")).repeating_last();
    let (agent, spy) = agent(script, |builder| {
        builder.tool(held.tool("slow")).budgets(Budgets::new().with(Budget::Iterations, 3)).same_call_limit(0)
    });
    let mut run = agent.run("go", &rig.session).await.unwrap();
    for _ in 0..3 {
        held.began().await;
        run.stop("a while");
        held.release();
        assert_eq!(run.report().await.unwrap().outcome, RunOutcome::Paused);
        run = agent.resume(&rig.again().await).await.unwrap();
    }
    assert!(run.report().await.unwrap().reason.contains("3 of 3"));
    assert_eq!(spy.count(), 3);
}

#[tokio::test]
async fn each_turn_has_its_own_budget_and_all_share_that_of_the_session() {
    let rig = Rig::memory().await;
    let (agent, spy) = limited_in_all(Budget::Iterations, 4);
    for message in ["one", "two", "three"] {
        assert_eq!(agent.run_once(message, &rig.session).await.unwrap().text(), "done");
    }
    let report = agent.run_once("four", &rig.session).await.unwrap();
    assert_eq!((report.outcome, spy.count()), (RunOutcome::Paused, 4));
    assert!(report.reason.contains("session"), "{}", report.reason);
    assert_eq!(report.spent.iterations, 0);
}

#[tokio::test]
async fn a_raised_budget_of_the_session_stays_raised_for_its_later_turns() {
    let rig = Rig::memory().await;
    let (agent, _) = limited_in_all(Budget::Iterations, 2);
    agent.run_once("one", &rig.session).await.unwrap();
    assert_eq!(agent.run_once("two", &rig.session).await.unwrap().outcome, RunOutcome::Paused);
    let report = resume(&agent, &rig, ResumeOptions::new("maria").raise(Budget::Iterations, 4)).await;
    assert_eq!(report.text(), "done");
    assert_eq!(agent.run_once("three", &rig.session).await.unwrap().text(), "done", "the fourth of four");
    assert_eq!(agent.run_once("four", &rig.session).await.unwrap().outcome, RunOutcome::Paused);
}

#[tokio::test]
async fn a_budget_raised_with_a_new_message_counts_for_its_turn() {
    let rig = Rig::memory().await;
    let (agent, _) = limited(Budget::Iterations, 1);
    let options = ResumeOptions::new("maria").raise(Budget::Iterations, 2);
    let run = agent.run_with(vec!["go".into()], &rig.session, options).await.unwrap();
    assert_eq!(run.report().await.unwrap().text(), "done");
    assert_eq!(raised(&rig.records().await).len(), 1);
}

#[tokio::test]
async fn a_budget_raised_for_one_turn_is_not_raised_for_the_next() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("echo", of("a")).text("done").call("echo", of("b")).text("done");
    let (agent, spy) =
        agent(script, |builder| builder.tool(echo()).budgets(Budgets::new().with(Budget::Iterations, 1)));
    agent.run_once("one", &rig.session).await.unwrap();
    resume(&agent, &rig, ResumeOptions::new("maria").raise(Budget::Iterations, 2)).await;
    assert_eq!(agent.run_once("two", &rig.session).await.unwrap().outcome, RunOutcome::Paused);
    assert_eq!(spy.count(), 3);
}
