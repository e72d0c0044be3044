//! A session in the middle of a turn, taken from one store to another.

use std::io::BufReader;

use rekindle::core::ImportOptions;
use rekindle::{Agent, Status};

use crate::common::{Life, agent, interrupted, resume, script};
use crate::support::{Kind, World, messages, state};

/// The session of a dead process as a file.
async fn exported(world: &World) -> Vec<u8> {
    let session = interrupted(world).await;
    let mut file = Vec::new();
    world.engine().journal().export(&session, &mut file).await.unwrap();
    file
}

#[tokio::test]
async fn conversation_thread_serialize_includes_execution_state() {
    for kind in Kind::ALL {
        let world = World::new(kind);
        let file = exported(&world).await;
        let text = String::from_utf8(file).unwrap();
        for line in text.lines() {
            assert!(line.starts_with('{'), "a file people can read: {line}");
        }
        // Where the loop stands, the answer that asked for the call, and the call under way.
        for part in ["\"loop\"", "\"phase\"", "\"call_3_1\"", "effect_intent", "run_started"] {
            assert!(text.contains(part), "{kind:?}: no {part} in {text}");
        }
    }
}

#[tokio::test]
async fn conversation_thread_deserialize_restores_execution_state() {
    let unbroken = World::new(Kind::Memory);
    let session = unbroken.engine().create("s").await.unwrap();
    let whole: Agent = agent(&Life::immortal(), script()).build().unwrap();
    whole.run_once("go", &session).await.unwrap();
    let expected = messages(&unbroken.engine(), session.key()).await;
    for from in Kind::ALL {
        for to in Kind::ALL {
            let (source, target) = (World::new(from), World::new(to));
            let file = exported(&source).await;
            let engine = target.engine();
            let options = ImportOptions::default();
            engine.journal().import(&mut BufReader::new(&file[..]), &options).await.unwrap();
            let engine = target.engine();
            let there = state(&source.engine(), session.key()).await;
            let here = state(&engine, session.key()).await;
            assert_eq!(here, there, "{from:?} to {to:?}");
            let handle = engine.open_session("s").await.unwrap();
            assert_eq!(handle.info().await.unwrap().status(), Status::Interrupted, "{from:?} to {to:?}");
            let report = resume(&whole, &engine).await;
            assert_eq!(report.text(), "done");
            assert_eq!(messages(&engine, session.key()).await, expected, "{from:?} to {to:?}");
            // The origin is as it was.
            assert_eq!(state(&source.engine(), session.key()).await, there);
        }
    }
}
