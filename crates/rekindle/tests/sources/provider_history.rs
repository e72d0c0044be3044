//! Providers that keep the conversation on their side are sent what they lack, and told behind
//! which of their answers it stands.

use rekindle::message::Role;
use rekindle::reduction::{Reduction, Summarise};
use rekindle::{Message, ResumeOptions};

use crate::common::{Life, Recorder, Sent, check_whole, died, edit, resume, with_history};
use crate::support::{Kind, World, messages};

fn reductions() -> [(Reduction, usize); 3] {
    [(Reduction::Whole, 101), (Reduction::KeepLast(10), 10), (Reduction::Summarise(Summarise::new(10)), 11)]
}

fn roles(sent: &Sent) -> Vec<Role> {
    sent.messages.iter().map(|message| message.role).collect()
}

/// `sent` is what followed the answer `before`, and nothing else.
#[track_caller]
fn check_follows(sent: &Sent, before: &Sent, expected: &[Role], context: &str) {
    assert_eq!(sent.previous.as_ref(), Some(&before.response), "{context}");
    assert_eq!(roles(sent), expected, "{context}");
}

#[tokio::test]
async fn only_what_the_provider_lacks_is_sent() {
    for kind in Kind::ALL {
        for (reduction, first) in reductions() {
            let context = format!("{kind:?}, {}", reduction.name());
            let world = World::new(kind);
            let session = with_history(&world.engine(), 100).await;
            let model = Recorder::new(2).parallel(2).keeping_history();
            let agent = model.agent(&Life::immortal(), reduction);
            agent.run_once("one more", &session).await.unwrap();
            let engine = world.engine();
            agent.run_once("and more", &engine.open_session("s").await.unwrap()).await.unwrap();
            let sent = model.sent();
            assert_eq!(sent.len(), 6, "{context}");
            // It has nothing yet, so it is sent what the reduction leaves.
            assert_eq!((&sent[0].previous, sent[0].messages.len()), (&None, first), "{context}");
            check_whole(&sent[0].messages);
            for call in [1, 2, 4, 5] {
                check_follows(&sent[call], &sent[call - 1], &[Role::Tool; 2], &format!("{context}, call {call}"));
            }
            check_follows(&sent[3], &sent[2], &[Role::User], &context);
            assert_eq!(messages(&engine, session.key()).await.len(), 100 + 2 * (1 + 2 * 3 + 1), "{context}");
        }
    }
}

#[tokio::test]
async fn a_resume_goes_on_behind_the_right_answer() {
    for kind in Kind::ALL {
        for (reduction, _) in reductions() {
            // In the first round nothing but the first answer is on record.
            for round in [1, 2, 3] {
                let context = format!("{kind:?}, {}, died in round {round}", reduction.name());
                let world = World::new(kind);
                let life = Life::mortal();
                let session = with_history(&life.engine(&world), 100).await;
                let model = Recorder::new(3).keeping_history().dying_in(round);
                died(model.agent(&life, reduction.clone()).run_once("one more", &session).await);
                world.pass_leases();
                let engine = world.engine();
                resume(&model.reborn().agent(&Life::immortal(), reduction.clone()), &engine).await;
                let sent = model.sent();
                assert_eq!(sent.len(), 4, "{context}: no answer was asked for again");
                for call in 1..4 {
                    check_follows(&sent[call], &sent[call - 1], &[Role::Tool], &format!("{context}, call {call}"));
                }
                assert_eq!(messages(&engine, session.key()).await.len(), 100 + 1 + 2 * 3 + 1, "{context}");
            }
        }
    }
}

#[tokio::test]
async fn a_question_whose_answer_was_lost_is_asked_as_it_was() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = with_history(&engine, 100).await;
        let model = Recorder::new(1).keeping_history();
        model.agent(&Life::immortal(), Reduction::Whole).run_once("one more", &session).await.unwrap();
        // The process dies while the provider answers the next message.
        let life = Life::mortal();
        let dying = model.clone().dying_when_asked(&life);
        let session = life.engine(&world).open_session("s").await.unwrap();
        died(dying.agent(&life, Reduction::Whole).run_once("and more", &session).await);
        world.pass_leases();
        resume(&model.agent(&Life::immortal(), Reduction::Whole), &world.engine()).await;
        let sent = model.sent();
        assert_eq!(sent.len(), 5, "{kind:?}");
        check_follows(&sent[2], &sent[1], &[Role::User], &format!("{kind:?}"));
        check_follows(&sent[3], &sent[1], &[Role::User], &format!("{kind:?}: the same again"));
        check_follows(&sent[4], &sent[3], &[Role::Tool], &format!("{kind:?}"));
    }
}

#[tokio::test]
async fn everything_is_sent_again_after_an_edit_of_history() {
    for kind in Kind::ALL {
        for (reduction, first) in reductions() {
            let context = format!("{kind:?}, {}", reduction.name());
            let world = World::new(kind);
            let life = Life::mortal();
            let session = with_history(&life.engine(&world), 100).await;
            let model = Recorder::new(3).keeping_history().dying_in(2);
            died(model.agent(&life, reduction.clone()).run_once("one more", &session).await);
            world.pass_leases();
            let engine = world.engine();
            edit(&engine, session.key(), 98, "what was really asked").await;
            resume(&model.reborn().agent(&Life::immortal(), reduction.clone()), &engine).await;
            let sent = model.sent();
            // What the provider has is not what stands in history any more.
            assert_eq!(sent[2].previous, None, "{context}");
            check_whole(&sent[2].messages);
            let all = sent[2].messages.len();
            assert!(all >= first.min(10) && all <= 105, "{context}: {all}");
            if matches!(reduction, Reduction::Whole) {
                assert_eq!(sent[2].messages[98].text(), "what was really asked", "{context}");
                assert_eq!(all, 105, "{context}");
            }
            // From there on it has it all again.
            check_follows(&sent[3], &sent[2], &[Role::Tool], &context);
        }
    }
}

#[tokio::test]
async fn a_new_branch_goes_on_behind_the_answer_it_was_forked_at() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let engine = world.engine();
        let session = with_history(&engine, 100).await;
        let model = Recorder::new(3).keeping_history();
        let agent = model.agent(&Life::immortal(), Reduction::KeepLast(10));
        agent.run_once("one more", &session).await.unwrap();
        let checkpoint = engine.journal().checkpoint_at_step(session.key(), None, 2).await.unwrap();
        let options = ResumeOptions::new("maria").from_checkpoint(checkpoint.checkpoint.id);
        agent.resume_with(&session, options).await.unwrap().report().await.unwrap();
        let sent = model.sent();
        assert_eq!(sent.len(), 6, "{kind:?}");
        let context = format!("{kind:?}: not behind what the other branch was answered");
        check_follows(&sent[4], &sent[1], &[Role::Tool], &context);
        assert_ne!(sent[4].response, sent[2].response, "{kind:?}: and under another key");
        check_follows(&sent[5], &sent[4], &[Role::Tool], &context);
        let stored: Vec<Message> = messages(&engine, session.key()).await;
        assert_eq!(stored.len(), 108, "{kind:?}");
    }
}
