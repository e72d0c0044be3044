//! The status in a store's index decides nothing: what waits is shown, and what is not at its end stays.

use super::damage;
use super::prepared::Prepared;
use super::table::{How, Marks, Protection, Store};

#[test]
fn what_leaves_a_store_goes_by_its_records() {
    for (store, protection) in [(Store::Sqlite, Protection::Plain), (Store::Files, Protection::Encrypted)] {
        let prepared = Prepared::new(store, protection);
        let copied = prepared.copy("status", false, Marks::Off);
        let run = |words: &[&str]| copied.run(words);
        // A pin would keep it from being deleted.
        assert_eq!(run(&["checkpoint", "unpin", "s@~1"]).code, 0);
        damage(store, &copied, How::Status);
        let shown = run(&["waits"]);
        assert!(shown.out.contains("rekindle resume s\n"), "{store:?}: {}{}", shown.out, shown.err);
        for words in [
            &["prune", "inactive", "--older-than", "0s", "--apply"][..],
            &["prune", "inactive", "--older-than", "0s", "--status", "succeeded", "--apply"],
            &["archive", "--inactive", "1ms", "--to", "objects:./archive"],
            &["archive", "--inactive", "1ms", "--status", "succeeded", "--to", "objects:./archive"],
        ] {
            let said = run(words);
            assert_eq!(run(&["sessions", "show", "s"]).code, 0, "{store:?} {words:?}: {}{}", said.out, said.err);
        }
        let said = run(&["archive", "s", "--to", "objects:./archive"]);
        assert!(said.code != 0 && said.err.contains("cannot be archived"), "{store:?}: {}{}", said.out, said.err);
        assert_eq!(run(&["sessions", "show", "s"]).code, 0);
    }
}
