//! Damaged rows: they are named, and everything else stays readable.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_frame_is_named_and_its_neighbours_stay_readable() {
    let place = Site::new();
    let store = place.open();
    store.create(&new_session("a")).await.unwrap();
    append_many(&store, &key("a"), genesis(), 6, 100).await;
    let whole = read_main(&store, &key("a")).await;
    let raw = place.raw();
    let flip =
        "UPDATE frames SET body = CAST(substr(body, 1, 150) || x'00' || substr(body, 152) AS BLOB) WHERE last = ?1";
    raw.execute(flip, [2]).unwrap();
    raw.execute("UPDATE frames SET body = x'' WHERE last = ?1", [3]).unwrap();
    raw.execute("UPDATE frames SET body = (SELECT body FROM frames WHERE last = 6) WHERE last = ?1", [5]).unwrap();
    let read = read_main(&store, &key("a")).await;
    for (index, kind) in [(1, DamageKind::Checksum), (2, DamageKind::Format), (4, DamageKind::Index)] {
        let Slot::Damaged(damage) = &read[index] else { panic!("frame {index} is damaged: {:?}", read[index]) };
        let seq = Seq(index as u64 + 1);
        assert_eq!((damage.kind, damage.first, damage.last, &damage.branch), (kind, seq, seq, &BranchId::main()));
    }
    for index in [0, 3, 5] {
        assert_eq!(read[index], whole[index]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_header_is_named_and_its_session_stays_readable() {
    let place = Site::new();
    let store = place.open();
    for name in ["a", "b"] {
        store.create(&new_session(name)).await.unwrap();
    }
    let head = append_many(&store, &key("a"), genesis(), 1, 10).await;
    place.raw().execute("UPDATE sessions SET header = '{\"key\":' WHERE session = 'a'", []).unwrap();
    let info = store.open(&key("a")).await.unwrap();
    assert_eq!((info.header.key.clone(), info.damage[0].kind), (key("a"), DamageKind::Header));
    let mut query = SessionQuery::new(Namespace::default());
    assert_eq!(store.list(&query).await.unwrap().sessions.len(), 2);
    query.tags.push("x".into());
    assert_eq!(store.list(&query).await.unwrap().sessions.len(), 0);
    let mut append = appending(&key("a"), head, "title");
    append.describe = Some(SessionDescribed { title: Some("t".into()), ..SessionDescribed::default() });
    assert_eq!(*store.append(&append).await.unwrap_err().kind(), ErrorKind::Corrupt);
    append.describe = None;
    store.append(&append).await.unwrap();
}
