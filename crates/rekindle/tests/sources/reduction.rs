//! History reduction is a view: what is sent is reduced before every call, what is stored never.

use rekindle::message::Role;
use rekindle::reduction::{Reduction, Summarise};
use rekindle::{Message, Status};

use crate::common::{Life, Recorder, Sent, check_whole, died, edit, resume, with_history};
use crate::support::{Kind, World, messages, state};

/// Each policy with the most messages it sends of the histories here.
fn policies() -> [(Reduction, usize); 3] {
    [(Reduction::KeepLast(10), 11), (Reduction::TokenBudget(150), 15), (Reduction::Summarise(Summarise::new(10)), 21)]
}

/// Every view is reduced, whole, and ends with the last message there was.
#[track_caller]
fn check_views(sent: &[Sent], most: usize, context: &str) {
    for (call, view) in sent.iter().enumerate() {
        let len = view.messages.len();
        assert!(len <= most, "{context}: call {call} was sent {len} messages");
        assert_eq!(view.previous, None, "{context}");
        check_whole(&view.messages);
        let last = view.messages.last().unwrap();
        let expected = if call == 0 { Role::User } else { Role::Tool };
        assert_eq!(last.role, expected, "{context}: call {call}");
    }
}

#[tokio::test]
async fn a_hundred_old_one_new_and_three_generated_messages_are_104_stored_whatever_was_sent() {
    for kind in Kind::ALL {
        for (reduction, most) in policies() {
            let context = format!("{kind:?}, {}", reduction.name());
            let world = World::new(kind);
            let engine = world.engine();
            let session = with_history(&engine, 100).await;
            let model = Recorder::new(1);
            let agent = model.agent(&Life::immortal(), reduction.clone());
            let report = agent.run_once("one more", &session).await.unwrap();
            assert_eq!(report.text(), "answer", "{context}");
            let stored = messages(&world.engine(), session.key()).await;
            assert_eq!(stored.len(), 104, "{context}");
            let roles: Vec<Role> = stored[100..].iter().map(|message| message.role).collect();
            assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant], "{context}");
            let old = |number: usize| stored[number].text();
            assert_eq!((old(0), old(99)), ("question 0".into(), "answer 99".into()), "{context}");
            // Not only the first call is sent the reduced view.
            let sent = model.sent();
            assert_eq!(sent.len(), 2, "{context}");
            check_views(&sent, most, &context);
            let state = state(&engine, session.key()).await;
            assert_eq!(state.status(), Status::Succeeded, "{context}");
        }
    }
}

#[tokio::test]
async fn keep_last_sends_the_last_messages_of_all_there_are_at_each_call() {
    let world = World::new(Kind::Memory);
    let session = with_history(&world.engine(), 100).await;
    let model = Recorder::new(4);
    model.agent(&Life::immortal(), Reduction::KeepLast(10)).run_once("one more", &session).await.unwrap();
    let stored = messages(&world.engine(), session.key()).await;
    assert_eq!(stored.len(), 110);
    for (call, view) in model.sent().iter().enumerate() {
        let bare: Vec<Message> = view.messages.iter().map(|said| Message { id: None, ..said.clone() }).collect();
        let end = 101 + 2 * call;
        assert_eq!(bare, stored[end - bare.len()..end], "call {call}");
        assert!((10..=11).contains(&bare.len()), "call {call}: {}", bare.len());
    }
}

#[tokio::test]
async fn many_iterations_with_calls_are_each_sent_a_reduced_view() {
    for kind in Kind::ALL {
        for (reduction, most) in policies() {
            let context = format!("{kind:?}, {}", reduction.name());
            let world = World::new(kind);
            let engine = world.engine();
            let session = with_history(&engine, 100).await;
            let model = Recorder::new(8).parallel(3);
            let report = model.agent(&Life::immortal(), reduction).run_once("one more", &session).await.unwrap();
            assert_eq!(report.text(), "answer", "{context}");
            assert_eq!(messages(&engine, session.key()).await.len(), 100 + 1 + 8 * 4 + 1, "{context}");
            let sent = model.sent();
            assert_eq!(sent.len(), 9, "{context}");
            check_views(&sent, most + 4, &context);
        }
    }
}

#[tokio::test]
async fn calls_and_results_are_never_split_by_reduction() {
    for reduction in [Reduction::KeepLast(1), Reduction::KeepLast(2), Reduction::KeepLast(3), Reduction::TokenBudget(1)]
    {
        let context = reduction.describe();
        let world = World::new(Kind::Memory);
        let session = with_history(&world.engine(), 100).await;
        let model = Recorder::new(3).parallel(3);
        let agent = model.agent(&Life::immortal(), reduction);
        agent.run_once("one more", &session).await.unwrap();
        for (call, view) in model.sent().iter().enumerate().skip(1) {
            check_whole(&view.messages);
            assert_eq!(view.messages.len(), 4, "{context}: call {call}: the answer and its three results");
        }
        assert_eq!(messages(&world.engine(), session.key()).await.len(), 100 + 1 + 3 * 4 + 1, "{context}");
    }
}

#[tokio::test]
async fn a_turn_that_was_interrupted_under_reduction_is_resumed_without_a_stale_error() {
    for kind in Kind::ALL {
        for (reduction, most) in policies() {
            let context = format!("{kind:?}, {}", reduction.name());
            let world = World::new(kind);
            let life = Life::mortal();
            let session = with_history(&life.engine(&world), 100).await;
            let model = Recorder::new(4).dying_in(3);
            died(model.agent(&life, reduction.clone()).run_once("one more", &session).await);
            world.pass_leases();
            let engine = world.engine();
            let seen = engine.journal().load(session.key(), None).await.unwrap().head;
            assert_eq!(messages(&engine, session.key()).await.len(), 100 + 1 + 2 * 2 + 1, "{context}");
            let agent = model.reborn().agent(&Life::immortal(), reduction);
            let handle = engine.open_session("s").await.unwrap();
            let options = rekindle::ResumeOptions::new("maria").seen(seen);
            let report = agent.resume_with(&handle, options).await.unwrap().report().await.unwrap();
            assert_eq!(report.text(), "answer", "{context}");
            assert_eq!(messages(&engine, session.key()).await.len(), 100 + 1 + 4 * 2 + 1, "{context}");
            let sent = model.sent();
            assert_eq!(sent.len(), 5, "{context}: no answer was asked for again");
            check_views(&sent, most, &context);
        }
    }
}

#[tokio::test]
async fn a_summary_is_paid_for_once() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = with_history(&engine, 100).await;
        let model = Recorder::new(3);
        let reduction = Reduction::Summarise(Summarise::new(10));
        let agent = model.agent(&Life::immortal(), reduction);
        agent.run_once("one more", &session).await.unwrap();
        assert_eq!(model.summaries().len(), 1, "{kind:?}");
        assert_eq!(model.summaries()[0].messages.len(), 91 + 1, "{kind:?}: all but the last ten, and the question");
        for view in model.sent() {
            let lead = view.messages[0].text();
            assert_eq!(lead, "Summary of the conversation so far: what was said before", "{kind:?}");
        }
        // The next turn goes on with the same one until too much is in none.
        agent.run_once("and more", &session).await.unwrap();
        assert_eq!(model.summaries().len(), 2, "{kind:?}");
        let second = &model.summaries()[1].messages;
        assert!(second[0].text().contains("what was said before"), "{kind:?}: it builds on the first");
        assert!(second.len() < 25, "{kind:?}: {}", second.len());
    }
}

#[tokio::test]
async fn a_summary_is_not_asked_for_again_after_a_crash() {
    for kind in Kind::ALL {
        let reduction = || Reduction::Summarise(Summarise::new(10));
        // Right after the summary, before the answer; and later in the turn.
        for when in ["before the answer", "in a call"] {
            let world = World::new(kind);
            let life = Life::mortal();
            let session = with_history(&life.engine(&world), 100).await;
            let model = match when {
                "in a call" => Recorder::new(3).dying_in(2),
                _ => Recorder::new(3).dying_when_asked(&life),
            };
            died(model.agent(&life, reduction()).run_once("one more", &session).await);
            assert_eq!(model.summaries().len(), 1, "{kind:?}, {when}");
            world.pass_leases();
            let engine = world.engine();
            resume(&model.reborn().agent(&Life::immortal(), reduction()), &engine).await;
            assert_eq!(model.summaries().len(), 1, "{kind:?}, {when}: it was on record");
            assert_eq!(messages(&engine, session.key()).await.len(), 100 + 1 + 3 * 2 + 1, "{kind:?}, {when}");
            let lead = model.sent().last().unwrap().messages[0].text();
            assert!(lead.contains("what was said before"), "{kind:?}, {when}: {lead}");
        }
    }
}

#[tokio::test]
async fn a_summary_of_what_was_edited_since_does_not_count() {
    for kind in Kind::ALL {
        let reduction = || Reduction::Summarise(Summarise::new(10));
        let world = World::new(kind);
        let life = Life::mortal();
        let session = with_history(&life.engine(&world), 100).await;
        let model = Recorder::new(3).dying_in(2);
        died(model.agent(&life, reduction()).run_once("one more", &session).await);
        world.pass_leases();
        let engine = world.engine();
        edit(&engine, session.key(), 4, "what was really asked").await;
        resume(&model.reborn().agent(&Life::immortal(), reduction()), &engine).await;
        let summaries = model.summaries();
        assert_eq!(summaries.len(), 2, "{kind:?}");
        assert_eq!(summaries[1].messages[4].text(), "what was really asked", "{kind:?}");
        assert_eq!(messages(&engine, session.key()).await[4].text(), "what was really asked", "{kind:?}");
    }
}
