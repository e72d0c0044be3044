//! Closing a call by hand of which nobody knows whether it happened.

use rekindle::core::RegisterKey;
use rekindle::core::record::{EffectIntent, EffectKind, InDoubtPolicy, RegisterSet, RunStarted};
use rekindle::operations::{self, At, Settlement};
use rekindle::tool::Approval;
use rekindle::{Agent, EffectId, Flow, Json, RunId};

use crate::world::{World, adder, code, payer, resume};

fn effect(id: &str) -> EffectId {
    EffectId::new(id).unwrap()
}

#[tokio::test]
async fn a_settled_call_is_not_made_again() {
    for world in [World::memory(), World::sqlite()] {
        for (id, settlement, expected) in [
            ("ok", Settlement::Ok(Json::from("paid by hand")), r#""paid by hand""#),
            ("failed", Settlement::Failed("the bank said no".into()), r#""the bank said no""#),
        ] {
            let session = world.dead_run(id, InDoubtPolicy::Never).await;
            let (engine, agent) = (&world.engine, payer(Approval::default()));
            let stuck = resume(&world, &session, &agent).await;
            assert_eq!(code(stuck), "RK0022");
            let shown = operations::show(engine, session.key()).await.unwrap();
            assert_eq!(shown.effects.len(), 1);
            let open = &shown.effects[0].effect;
            let done = operations::settle(engine, session.key(), open, &settlement, "maria", "asked the bank").await;
            assert!(done.unwrap().still_open.is_empty());
            let again = operations::settle(engine, session.key(), open, &settlement, "maria", "").await;
            assert_eq!(code(again), "RK0001");
            assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
            let seen = operations::inspect(engine, session.key(), &At::Latest).await.unwrap();
            let messages = Agent::messages(&seen.state).unwrap();
            assert_eq!(messages[2].results().next().unwrap().content.as_str(), expected);
            assert_eq!(messages[2].results().next().unwrap().error, id == "failed");
        }
    }
}

#[tokio::test]
async fn whoever_was_asked_need_not_answer_any_more() {
    let world = World::memory();
    let session = world.dead_run("s", InDoubtPolicy::Ask).await;
    let pay = rekindle::tool::tool("pay", "Pays.", async |_, _: serde_json::Map<String, serde_json::Value>| Ok("paid"));
    let script = rekindle_models::Script::new("m").text("unused").text("It is paid.").repeating_last();
    let agent =
        Agent::builder("payer", rekindle_models::ScriptedModel::new(script)).tool(pay.writes()).build().unwrap();
    let waiting = resume(&world, &session, &agent).await.unwrap();
    assert_eq!(waiting.waits.len(), 1);
    let settlement = Settlement::Ok(Json::parse("1").unwrap());
    operations::settle(&world.engine, session.key(), &effect("t1.0.c1"), &settlement, "maria", "").await.unwrap();
    assert_eq!(resume(&world, &session, &agent).await.unwrap().text(), "It is paid.");
}

#[tokio::test]
async fn a_step_of_a_flow_is_settled_with_its_plain_result() {
    let world = World::memory();
    let session = world.session("s").await;
    let flow = Flow::new("report", async |ctx: rekindle::FlowContext, month: String| {
        let never =
            async |_| -> rekindle::Result<u64, rekindle::tool::ToolError> { panic!("it must not be made again") };
        let policy = InDoubtPolicy::Never;
        let rows: u64 = ctx.step_with("fetch", &month, policy, rekindle::tool::Retries::none(), never).await?;
        Ok(format!("{rows} rows"))
    });
    let input = Json::from("may");
    let intent =
        EffectIntent::new(effect("f1.fetch"), EffectKind::Step, "fetch", rekindle::wait::digest(&input).unwrap());
    let at = Json::parse(r#"{"turn":1,"input":"may","done":false}"#).unwrap();
    let records = [
        RunStarted::new(RunId::new("run_dead").unwrap(), "flow").into(),
        RegisterSet::new(RegisterKey::new("flow").unwrap(), at).into(),
        EffectIntent { policy: InDoubtPolicy::Never, ..intent }.into(),
    ];
    world.leave_behind(&session, &records).await;
    let stuck = flow.resume(&session).await.unwrap().report().await;
    assert_eq!(code(stuck), "RK0022");
    assert!(operations::show(&world.engine, session.key()).await.unwrap().resumable.resumable);
    let settlement = Settlement::Ok(Json::parse("31").unwrap());
    operations::settle(&world.engine, session.key(), &effect("f1.fetch"), &settlement, "maria", "").await.unwrap();
    let report = flow.resume(&session).await.unwrap().report().await.unwrap();
    assert_eq!(report.value.unwrap(), Json::from("31 rows"));
}

#[tokio::test]
async fn unknown_and_ended_effects_are_refused() {
    let world = World::memory();
    let (engine, session) = (&world.engine, world.session("s").await);
    adder().run_once("19 + 23?", &session).await.unwrap();
    let settle = async |id: &str| {
        let settlement = Settlement::Failed("no".into());
        operations::settle(engine, session.key(), &effect(id), &settlement, "maria", "").await
    };
    assert_eq!(code(settle("nothing").await), "RK0003");
    let missing = engine.key("missing").unwrap();
    let lost = operations::settle(engine, &missing, &effect("x"), &Settlement::Failed("".into()), "m", "").await;
    assert_eq!(code(lost), "RK0003");
}
