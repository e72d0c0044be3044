//! Answers to approvals, questions and signals, right and wrong.

use std::time::Duration;

use rekindle::core::Hash;
use rekindle::core::record::RunOutcome;
use rekindle::operations::{self, Answer, At};
use rekindle::tool::Approval;
use rekindle::wait::WaitSpec;
use rekindle::{Agent, BranchId, ErrorKind, Json, MessageId, Session, WaitId};

use crate::world::{World, asker, code, payer, resume};

/// The first open wait of a session and what it shows.
async fn open(world: &World, session: &Session) -> (WaitId, Option<Hash>) {
    let shown = operations::show(&world.engine, session.key()).await.unwrap();
    (shown.waits[0].opened.wait.clone(), shown.waits[0].opened.digest)
}

fn int(value: &str) -> Json {
    Json::parse(value).unwrap()
}

#[tokio::test]
async fn an_approval_lets_the_call_go_on() {
    for world in [World::memory(), World::sqlite()] {
        let (engine, session, agent) = (&world.engine, world.session("s").await, payer(Approval::default()));
        agent.run_once("pay", &session).await.unwrap();
        let (wait, digest) = open(&world, &session).await;
        let listed = operations::waits(engine, engine.namespace()).await.unwrap();
        assert_eq!((listed.waits.len(), listed.waits[0].answered), (1, false));

        let yes = Answer::approve(wait.clone(), digest, "maria");
        let given = operations::answer(engine, session.key(), &yes).await.unwrap();
        assert!(given.decided && given.resume_needed && !given.repeated, "{given:?}");
        assert!(operations::waits(engine, engine.namespace()).await.unwrap().waits[0].answered);
        // Again the same, before and after a run has read it; then another.
        let again = operations::answer(engine, session.key(), &yes).await.unwrap();
        assert!(again.repeated && again.position == given.position);
        let no = Answer::reject(wait.clone(), "bob", "too much");
        let late = operations::answer(engine, session.key(), &no).await.unwrap_err();
        assert_eq!(*late.kind(), ErrorKind::WaitClosed);
        assert!(late.message().contains("maria"), "{late}");

        assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
        assert!(operations::answer(engine, session.key(), &yes).await.unwrap().repeated);
        let late = operations::answer(engine, session.key(), &no).await.unwrap_err();
        assert_eq!(*late.kind(), ErrorKind::WaitClosed);
        assert!(late.message().contains("maria"), "{late}");
        assert!(operations::waits(engine, engine.namespace()).await.unwrap().waits.is_empty());
    }
}

#[tokio::test]
async fn an_approval_must_name_what_was_shown_and_may_change_it() {
    let world = World::memory();
    let (engine, session, agent) = (&world.engine, world.session("s").await, payer(Approval::default()));
    agent.run_once("pay", &session).await.unwrap();
    let (wait, digest) = open(&world, &session).await;
    let shown = operations::show(engine, session.key()).await.unwrap();
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["waits"][0]["arguments"], serde_json::json!({"cents": 5}));
    assert!(serde_json::to_string(&shown).unwrap().contains(r#""arguments":{"cents":5}"#));
    let give = async |answer: Answer| operations::answer(engine, session.key(), &answer).await;
    let wrong = give(Answer::approve(wait.clone(), Some(Hash::of(b"other")), "maria")).await.unwrap_err();
    assert_eq!(wrong.code(), "RK0001");
    assert!(wrong.next_step().contains(&digest.unwrap().to_string()));
    assert_eq!(code(give(Answer::approve(wait.clone(), None, "maria")).await), "RK0001");
    assert_eq!(code(give(Answer::value(wait.clone(), int("1"), "maria")).await), "RK0001");
    let edited_no = Answer::reject(wait.clone(), "maria", "").with_arguments(int("{}"));
    assert_eq!(code(give(edited_no).await), "RK0001");
    assert_eq!(code(give(Answer::reject(WaitId::new("wait_none").unwrap(), "maria", "")).await), "RK0003");

    give(Answer::approve(wait, digest, "maria").with_arguments(int(r#"{"cents":4}"#))).await.unwrap();
    assert_eq!(resume(&world, &session, &agent).await.unwrap().outcome, RunOutcome::Succeeded);
    let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
    let messages = Agent::messages(&seen.state).unwrap();
    assert_eq!(messages[2].results().next().unwrap().content, Json::from("paid 4"));
}

#[tokio::test]
async fn two_must_agree_if_two_are_needed() {
    let world = World::memory();
    let agent = payer(Approval { approvals: 2, ..Approval::default() });
    let (engine, session) = (&world.engine, world.session("s").await);
    agent.run_once("pay", &session).await.unwrap();
    let (wait, digest) = open(&world, &session).await;
    let yes = async |author: &str| {
        operations::answer(engine, session.key(), &Answer::approve(wait.clone(), digest, author)).await.unwrap()
    };
    let first = yes("maria").await;
    assert!(!first.decided && !first.repeated);
    assert!(yes("maria").await.repeated);
    assert!(yes("bob").await.decided);
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
}

#[tokio::test]
async fn whoever_agrees_after_a_change_agrees_to_the_change() {
    let world = World::memory();
    let agent = payer(Approval { approvals: 2, ..Approval::default() });
    let (engine, session) = (&world.engine, world.session("s").await);
    agent.run_once("pay", &session).await.unwrap();
    let (wait, digest) = open(&world, &session).await;
    let early = Answer::approve(wait.clone(), digest, "bob");
    assert!(!operations::answer(engine, session.key(), &early).await.unwrap().decided);
    let changed = Answer::approve(wait.clone(), digest, "mallory").with_arguments(int(r#"{"cents":999}"#));
    assert!(!operations::answer(engine, session.key(), &changed).await.unwrap().decided);
    let old = operations::answer(engine, session.key(), &early).await.unwrap_err();
    assert_eq!(old.code(), "RK0001");
    assert!(old.message().contains("mallory") && old.next_step().contains("999"), "{old:?}");
    let shown = operations::show(engine, session.key()).await.unwrap().waits[0].approve_digest;
    assert!(shown != digest && old.next_step().contains(&shown.unwrap().to_string()));
    let agreed = Answer::approve(wait, shown, "bob");
    assert!(operations::answer(engine, session.key(), &agreed).await.unwrap().decided);
    assert!(operations::answer(engine, session.key(), &agreed).await.unwrap().repeated);
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
    let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
    let messages = Agent::messages(&seen.state).unwrap();
    assert_eq!(messages[2].results().next().unwrap().content, Json::from("paid 999"));
}

#[tokio::test]
async fn an_answer_must_fit_the_schema_and_come_in_time() {
    let world = World::memory();
    let spec = WaitSpec::question("how many?").with_schema(int(r#"{"type":"integer"}"#));
    let agent = asker(spec.expiring(Duration::from_secs(60), Some(int("7"))));
    let (engine, session) = (&world.engine, world.session("s").await);
    agent.run_once("ask", &session).await.unwrap();
    let (wait, _) = open(&world, &session).await;
    let give = async |value: &str| {
        operations::answer(engine, session.key(), &Answer::value(wait.clone(), int(value), "maria")).await
    };
    assert_eq!(code(give(r#""many""#).await), "RK0001");
    let approve = Answer::approve(wait.clone(), None, "maria");
    assert_eq!(code(operations::answer(engine, session.key(), &approve).await), "RK0001");
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(code(give("3").await), "RK0020");
    assert!(operations::show(engine, session.key()).await.unwrap().waits[0].expired);
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "Thanks.");
    let late = give("3").await.unwrap_err();
    assert_eq!(late.code(), "RK0020");
    assert!(late.message().contains("expired"), "{late}");
}

#[tokio::test]
async fn a_question_is_answered_once_by_id_too() {
    let world = World::memory();
    let agent = asker(WaitSpec::question("what colour?"));
    let (engine, session) = (&world.engine, world.session("s").await);
    agent.run_once("ask", &session).await.unwrap();
    let (wait, _) = open(&world, &session).await;
    let blue = Answer { id: Some(MessageId::new("a1").unwrap()), ..Answer::value(wait, Json::from("blue"), "maria") };
    operations::answer(engine, session.key(), &blue).await.unwrap();
    assert!(operations::answer(engine, session.key(), &blue).await.unwrap().repeated);
    let red = Answer { value: Some(Json::from("red")), id: None, ..blue };
    assert_eq!(code(operations::answer(engine, session.key(), &red).await), "RK0020");
    resume(&world, &session, &agent).await.unwrap();
    let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
    let messages = Agent::messages(&seen.state).unwrap();
    assert_eq!(messages[2].results().next().unwrap().content, Json::from("blue"));
}

#[tokio::test]
async fn a_signal_is_given_by_name() {
    let world = World::memory();
    let agent = asker(WaitSpec::signal("delivered"));
    let (engine, session) = (&world.engine, world.session("s").await);
    agent.run_once("ask", &session).await.unwrap();
    let signal = async |name: &str| operations::signal(engine, session.key(), name, int("true"), "courier").await;
    let unknown = signal("lost").await.unwrap_err();
    assert_eq!(unknown.code(), "RK0003");
    assert!(unknown.next_step().contains("delivered"));
    assert!(signal("delivered").await.unwrap().decided);
    assert!(signal("delivered").await.unwrap().repeated);
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "Thanks.");
    assert_eq!(code(signal("delivered").await), "RK0003");
}

#[tokio::test]
async fn a_signal_reaches_the_branch_that_waits_for_it() {
    let world = World::memory();
    let agent = asker(WaitSpec::signal("delivered"));
    let (session, wait, fork) = two_that_wait(&world, &agent).await;
    let engine = &world.engine;
    let signal = async || operations::signal(engine, session.key(), "delivered", int("true"), "courier").await;
    assert_eq!(signal().await.unwrap().branch, Some(BranchId::main()), "the current one first");
    assert_eq!(resume_on(&agent, &session, &BranchId::main()).await.text(), "Thanks.");
    let given = signal().await.unwrap();
    assert_eq!((given.branch, given.wait, given.decided), (Some(fork.clone()), wait, true));
    assert_eq!(resume_on(&agent, &session, &fork).await.text(), "Thanks.");
    assert_eq!(code(signal().await), "RK0003");
}

#[tokio::test]
async fn a_wait_on_another_branch_is_found() {
    let world = World::memory();
    let agent = asker(WaitSpec::question("what colour?"));
    let (engine, session) = (&world.engine, world.session("s").await);
    agent.run_once("ask", &session).await.unwrap();
    let (wait, _) = open(&world, &session).await;
    let start = At::Position("main:1".parse().unwrap());
    let fork = operations::fork(engine, session.key(), &start, Default::default()).await.unwrap();
    engine.journal().choose_branch(session.key(), &fork.branch).await.unwrap();
    assert_eq!(session.info().await.unwrap().current, fork.branch);
    let given = operations::answer(engine, session.key(), &Answer::value(wait, Json::from("blue"), "maria")).await;
    assert!(given.unwrap().decided);
    let on_main = rekindle::ResumeOptions::new("maria").on_branch(rekindle::BranchId::main());
    let report = agent.resume_with(&session, on_main).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "Thanks.");
}

#[tokio::test]
async fn an_answer_given_in_time_counts_however_late_it_is_looked_at() {
    let world = World::memory();
    let approval = Approval { expires_after: Some(std::time::Duration::from_secs(60)), ..Approval::default() };
    let agent = payer(approval);
    let (engine, session) = (&world.engine, world.session("s").await);
    agent.run_once("pay", &session).await.unwrap();
    let (wait, digest) = open(&world, &session).await;
    let yes = Answer::approve(wait, digest, "maria");
    assert!(operations::answer(engine, session.key(), &yes).await.unwrap().decided);
    world.clock.advance(std::time::Duration::from_secs(3_600));
    let shown = operations::show(engine, session.key()).await.unwrap();
    assert_eq!(shown.waits[0].decisions.len(), 1, "as the next run will see it");
    let again = operations::answer(engine, session.key(), &yes).await.unwrap();
    assert!(again.repeated && again.decided);
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
}

/// A session that waits on `main`, and a fork of it that waits for the same.
async fn two_that_wait(world: &World, agent: &Agent) -> (rekindle::Session, rekindle::WaitId, BranchId) {
    let session = world.session("s").await;
    agent.run_once("ask", &session).await.unwrap();
    let (wait, _) = open(world, &session).await;
    let fork = operations::fork(&world.engine, session.key(), &At::Latest, Default::default()).await.unwrap();
    (session, wait, fork.branch)
}

async fn resume_on(agent: &Agent, session: &rekindle::Session, branch: &BranchId) -> rekindle::RunReport {
    let options = rekindle::ResumeOptions::new("maria").on_branch(branch.clone());
    agent.resume_with(session, options).await.unwrap().report().await.unwrap()
}

#[tokio::test]
async fn an_answer_to_one_branch_is_not_lost_while_another_goes_on() {
    for world in [World::memory(), World::sqlite()] {
        let agent = asker(WaitSpec::question("what colour?"));
        let (session, wait, fork) = two_that_wait(&world, &agent).await;
        let (engine, main) = (&world.engine, BranchId::main());
        let blue = Answer::value(wait.clone(), Json::from("blue"), "maria").on_branch(fork.clone());
        let given = operations::answer(engine, session.key(), &blue).await.unwrap();
        assert!(given.decided && given.resume_needed && given.branch == Some(fork.clone()), "{given:?}");
        // Of another branch, it passes the answer by, again and again.
        for _ in 0..2 {
            assert_eq!(resume_on(&agent, &session, &main).await.outcome, RunOutcome::Waiting);
        }
        let listed = operations::waits_of(engine, session.key()).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|open| (&open.branch, open.current, open.answered)).collect();
        assert_eq!(listed, [(&main, true, false), (&fork, false, true)]);
        assert!(operations::answer(engine, session.key(), &blue).await.unwrap().repeated);

        assert_eq!(resume_on(&agent, &session, &fork).await.text(), "Thanks.");
        // The other one still waits, and is found by its id; its answer stays through a run of the fork.
        let red = Answer::value(wait, Json::from("red"), "maria");
        let given = operations::answer(engine, session.key(), &red).await.unwrap();
        assert_eq!((given.branch.as_ref(), given.resume_needed), (Some(&main), true));
        agent.run_once("thank you", &session).await.unwrap_err();
        assert_eq!(session.info().await.unwrap().current, fork);
        assert_eq!(resume_on(&agent, &session, &main).await.text(), "Thanks.");
        let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
        let messages = Agent::messages(&seen.state).unwrap();
        assert_eq!(messages[2].results().next().unwrap().content, Json::from("red"));
    }
}

#[tokio::test]
async fn waits_of_every_branch_are_listed_and_an_answer_says_which_it_means() {
    let world = World::memory();
    let agent = asker(WaitSpec::question("what colour?"));
    let (session, wait, fork) = two_that_wait(&world, &agent).await;
    let engine = &world.engine;
    let blue = Answer::value(wait, Json::from("blue"), "maria");
    operations::answer(engine, session.key(), &blue).await.unwrap();
    assert_eq!(resume_on(&agent, &session, &BranchId::main()).await.text(), "Thanks.");
    // The session itself waits no more.
    let all = operations::waits(engine, engine.namespace()).await.unwrap();
    let listed: Vec<_> = all.waits.iter().map(|open| (open.branch.clone(), open.current)).collect();
    assert_eq!((listed, all.unreadable.len()), (vec![(fork.clone(), false)], 0));

    let options = operations::ForkOptions { branch: Some(BranchId::new("third").unwrap()), ..Default::default() };
    let at = At::Head(fork.clone());
    let third = operations::fork(engine, session.key(), &at, options).await.unwrap().branch;
    let unclear = operations::answer(engine, session.key(), &blue).await.unwrap_err();
    assert_eq!(unclear.code(), "RK0001", "{unclear}");
    assert!(unclear.message().contains("third") && unclear.message().contains(fork.as_str()), "{unclear}");
    let given = operations::answer(engine, session.key(), &blue.clone().on_branch(third.clone())).await.unwrap();
    assert_eq!(given.branch, Some(third.clone()));
    assert_eq!(resume_on(&agent, &session, &third).await.text(), "Thanks.");
    let none = blue.on_branch(BranchId::new("none").unwrap());
    assert_eq!(code(operations::answer(engine, session.key(), &none).await), "RK0003");
}
