//! Objects beside frames: marks, jobs, sessions as stores keep them, damage, receipts.

use rekindle_core::high_water::Mark;
use rekindle_core::queue::{Job, NewJob};
use rekindle_core::*;
use rekindle_fuzz::fuzz;

use super::{json, session};

fn info() -> SessionInfo {
    let text = r#"{"header":{"key":{"namespace":"default","id":"a"},"genesis":"GENESIS","incarnation":"first","title":"t"},
        "current":"main","created_at":5,"updated_at":9,"observed_at":9,"branches":[
        {"branch":"main","head":{"seq":7,"hash":"GENESIS"},"last_wait":3,"status":"running","created_at":5,"updated_at":9,"epoch":2,
         "lease":{"owner":"o","epoch":2,"expires_at":99,"boot":{"boot":4,"micros":7}}},
        {"branch":"fork","parent":{"branch":"main","seq":4},"head":{"seq":8,"hash":"GENESIS"},"base":{"seq":5,"hash":"GENESIS"},"created_at":5,"updated_at":9}],
        "damage":[{"kind":"key","branch":"main","first":3,"last":4,"detail":"is sealed"}]}"#;
    serde_json::from_str(&text.replace("GENESIS", &Hash::of(b"g").to_string())).unwrap()
}

#[test]
fn marks() {
    let mark = Mark::of(&info());
    let words = ["\"standing\":\"leaving\"", "\"standing\":\"new\"", "\"n\":"];
    fuzz!("mark").seeds([mark.encode().to_vec()]).words(words).bytes(|bytes| {
        let mark = Mark::decode(bytes)?;
        assert_eq!(Mark::decode(&mark.encode()), Some(mark.clone()));
        let _ = (mark.is_kept(), mark.heads(), mark.compare(&info()));
        Some(())
    });
}

#[test]
fn sessions() {
    let words = ["\"parent\":{\"branch\":\"fork\",\"seq\":1}", "\"status\":\"failed\"", "\"boot\":null"];
    fuzz!("session-info").seeds([serde_json::to_vec(&info()).unwrap()]).words(words).bytes(|bytes| {
        let read = json::<SessionInfo>(bytes)?;
        let _ = (read.status(), read.heads(), Cursor::behind(&read), Mark::of(&read));
        for branch in &read.branches {
            let _ = (branch.live_lease(Timestamp(9)), branch.status_at(Timestamp(u64::MAX)), branch.first_own());
        }
        for damage in &read.damage {
            let _ = (damage.to_error(&session("a")), damage.affects_records());
        }
        Some(())
    });
}

#[test]
fn jobs() {
    let mut job = Job::new(&NewJob::new(session("a")), Timestamp(5));
    let short = serde_json::to_vec(&job).unwrap();
    job.note = "note".into();
    job.agent = Some("payer".into());
    job.claims = 4;
    let words =
        ["\"key\":{\"key\":\"k\",\"most\":2}", "\"claim\":{\"worker\":\"w\",\"number\":3}", "\"ready_at\":null"];
    fuzz!("job").seeds([short, serde_json::to_vec(&job).unwrap()]).words(words).bytes(json::<Job>);
}

#[test]
fn receipts() {
    let hash = Hash::of(b"h");
    let receipt = format!(
        r#"{{"rekindle_receipt":1,"session":{{"namespace":"default","id":"a"}},"incarnation":"first","genesis":"{hash}","erased_at":5,
        "author":"ada","branches":[{{"branch":"main","start":"{hash}","head":{{"seq":7,"hash":"{hash}"}}}}],
        "data_key":{{"id":"d1","copies":["postgres://db"]}},"notice":"n","signature":{{"key":"s","hash":"{hash}"}}}}"#
    );
    fuzz!("receipt").seeds([receipt]).bytes(json::<Receipt>);
}
