//! An import that is stopped at every write of the store, and repeated: the end is that of an
//! import that was never stopped.

use std::sync::Arc;

use rekindle::core::record::Checkpoint;
use rekindle::operations::{self, At, Change};
use rekindle::{Engine, Json, Result, SessionKey};
use rekindle_import::{Existing, ImportOptions, ImportReport};
use rekindle_store::{Fault, FaultPlan, FaultyStore};
use serde_json::Value;

use crate::kit::{checkpoints, database, fixture};
use crate::support::{Kind, World};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Json,
    Table,
    Directory,
}

const FORMS: [Form; 3] = [Form::Json, Form::Table, Form::Directory];

async fn import(form: Form, engine: &Engine, options: ImportOptions) -> Result<ImportReport> {
    match form {
        Form::Json => rekindle_import::json_sessions(engine, &fixture("json_sessions"), options).await,
        Form::Table => {
            let (_directory, path) = database("");
            rekindle_import::checkpoint_table(engine, &path, options).await
        }
        Form::Directory => {
            rekindle_import::session_directory(engine, &fixture("session_directory/deep_research_agent"), options).await
        }
    }
}

/// What an import comes to, without ids of runs.
async fn outcome(engine: &Engine) -> Vec<(SessionKey, Value, Vec<Checkpoint>, Vec<Value>)> {
    let page = operations::list(engine, &rekindle::SessionQuery::new(rekindle::Namespace::default())).await.unwrap();
    let mut outcome = Vec::new();
    for info in page.sessions {
        let key = info.header.key.clone();
        let mut marks = checkpoints(engine, &key).await;
        let mut states = Vec::new();
        for mark in &mut marks {
            mark.run = None;
            mark.extra.remove("imported_from");
            let seen = operations::inspect(engine, &key, &At::Checkpoint(mark.id.clone())).await.unwrap();
            states.push(seen.state.to_value().unwrap());
        }
        let complete = info.header.metadata["import"].to_value().unwrap()["complete"].clone();
        outcome.push((key, complete, marks, states));
    }
    outcome.sort_by(|a, b| a.0.cmp(&b.0));
    outcome
}

async fn stop_everywhere(form: Form, kind: Kind) {
    let unbroken = World::new(kind);
    import(form, &unbroken.engine(), ImportOptions::new()).await.unwrap();
    let expected = outcome(&unbroken.engine()).await;
    assert!(expected.iter().all(|session| session.1 == Value::Bool(true)));
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        for call in 0.. {
            let context = format!("{form:?} {kind:?} {fault:?} at call {call}");
            let world = World::new(kind);
            let plan = Arc::new(FaultPlan::default());
            let engine = world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone())));
            plan.fail_from(call, fault);
            let stopped = import(form, &engine, ImportOptions::new()).await;
            if plan.calls() <= call {
                assert!(stopped.is_ok() && call > 4, "{context}");
                break;
            }
            let error = stopped.unwrap_err();
            assert!(["RK0016", "RK0017"].contains(&error.code()), "{context}: {error:?}");
            let options = ImportOptions::new().with_existing(Existing::Skip);
            let again = import(form, &world.engine(), options).await.unwrap();
            assert!(again.sessions.iter().filter(|session| session.done_anew).count() <= 1, "{context}");
            assert_eq!(outcome(&world.engine()).await, expected, "{context}");
            let error = import(form, &world.engine(), ImportOptions::new()).await.unwrap_err();
            assert_eq!(error.code(), "RK0004", "{context}");
        }
    }
}

#[tokio::test]
async fn an_import_stopped_at_any_write_is_done_anew() {
    for form in FORMS {
        stop_everywhere(form, Kind::Memory).await;
    }
}

#[tokio::test]
async fn the_same_on_disk() {
    stop_everywhere(Form::Directory, Kind::Sqlite).await;
    stop_everywhere(Form::Directory, Kind::Files).await;
}

#[tokio::test]
async fn what_somebody_changed_since_is_never_deleted() {
    let world = World::new(Kind::Memory);
    let plan = Arc::new(FaultPlan::default());
    let engine = world.engine_over(Arc::new(FaultyStore::new(world.store(), plan.clone())));
    plan.fail_from(3, Fault::Unreachable);
    import(Form::Directory, &engine, ImportOptions::new()).await.unwrap_err();
    let engine = world.engine();
    let key =
        operations::list(&engine, &rekindle::SessionQuery::new(rekindle::Namespace::default())).await.unwrap().sessions
            [0]
        .header
        .key
        .clone();
    let change = Change::SetMemory { key: "mine".into(), value: Json::from("keep me") };
    operations::edit(&engine, &key, &At::Latest, &[change], "maria", "work of my own").await.unwrap();
    let error = import(Form::Directory, &engine, ImportOptions::new()).await.unwrap_err();
    assert!(error.message().contains("was changed since"), "{error}");
    let seen = operations::inspect(&engine, &key, &At::Latest).await.unwrap();
    assert!(seen.state.register("memory/mine").is_some());
}

#[tokio::test]
async fn a_session_that_was_not_imported_is_never_touched() {
    let world = World::new(Kind::Memory);
    world.engine().create("trip").await.unwrap();
    let error = import(Form::Json, &world.engine(), ImportOptions::new()).await.unwrap_err();
    assert!(error.message().contains("was not imported"), "{error}");
    let page =
        operations::list(&world.engine(), &rekindle::SessionQuery::new(rekindle::Namespace::default())).await.unwrap();
    assert_eq!(page.sessions.len(), 1, "nothing else was written");
}
