//! Budgets: what may be used, and what was raised.

use rekindle::core::record::RunOutcome;
use rekindle::{Budget, Budgets, ResumeOptions};
use rekindle_models::{Call, Script};

use crate::kit::{Counter, Rig, agent, of, run_with};

#[tokio::test]
async fn a_budget_of_the_session_raised_with_a_message_counts_for_the_turn_of_that_message() {
    let rig = Rig::memory().await;
    let (agent, _) = agent(Script::new("m").text("one").text("two"), |builder| {
        builder.session_budgets(Budgets::new().with(Budget::Iterations, 1))
    });
    agent.run_once("go", &rig.session).await.unwrap();
    let raised = ResumeOptions::new("maria").raise(Budget::Iterations, 10);
    let report = run_with(&agent, &rig, Some("more"), raised).await.unwrap();
    assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "two"), "{}", report.reason);
}

#[tokio::test]
async fn the_calls_of_one_answer_do_not_exceed_the_budget_of_calls() {
    let rig = Rig::memory().await;
    let counter = Counter::default();
    let calls = (0..500).map(|number| Call::new("pay", of(&number.to_string())));
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| {
        builder.budgets(Budgets::new().with(Budget::ToolCalls, 5)).tool(counter.tool("pay"))
    });
    let report = agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Paused, "{}", report.reason);
    assert!(counter.count() <= 5, "{} calls", counter.count());
}
