//! The status in a store's index: no run believes it, and `verify` compares it with the records.

use rekindle::core::DamageKind;
use rekindle::core::record::RunOutcome;
use rekindle::{Status, operations};
use rekindle_models::Script;

use crate::kit::{Held, Rig, agent, of};
use crate::support::Kind;
use crate::victim::set_status;

#[tokio::test]
async fn a_resume_goes_by_the_records_and_verify_reports_the_index() {
    for wrong in ["succeeded", "idle", "waiting", "cancelled"] {
        let rig = Rig::new(Kind::Sqlite).await;
        let (session, faults) = rig.faulty().await;
        let held = Held::default();
        let (agent, _) = agent(Script::new("m").call("wait", of("x")).text("done"), |builder| {
            builder.tool(held.tool("wait").replay_safe())
        });
        let run = agent.run("go", &session).await.unwrap();
        held.began().await;
        faults.fail_from(0, rekindle_store::Fault::Unreachable);
        held.release();
        run.report().await.unwrap_err();
        rig.world.pass_leases();
        let sound = operations::verify(&rig.world.engine(), rig.key(), &Default::default()).await.unwrap();
        assert!(sound.sound, "{:?}", sound.report.damage);

        set_status(&rig.world, "main", wrong);
        let engine = rig.world.engine();
        assert_eq!(engine.journal().open(rig.key()).await.unwrap().status().to_string(), wrong);
        let verified = operations::verify(&engine, rig.key(), &Default::default()).await.unwrap();
        let found: Vec<_> = verified.report.damage.iter().map(|damage| (damage.kind, damage.branch.as_str())).collect();
        assert_eq!((verified.sound, found.as_slice()), (false, &[(DamageKind::Index, "main")][..]), "{wrong}");
        assert_eq!(operations::show(&engine, rig.key()).await.unwrap().status, Status::Interrupted, "{wrong}");

        held.release();
        let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
        assert_eq!((report.outcome, report.text().as_str()), (RunOutcome::Succeeded, "done"), "{wrong}");
        let mended = operations::verify(&rig.world.engine(), rig.key(), &Default::default()).await.unwrap();
        assert!(mended.sound, "what the run recorded is in the index again: {:?}", mended.report.damage);
    }
}
