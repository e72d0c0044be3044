//! The conformance suite over every store under every codec, and over every decorator around
//! every store.

use crate::fixtures::{Beside, Faulty, Files, Marked, Memory, Metered, Sqlite};

rekindle_testkit::conformance!(memory, Memory::default);
rekindle_testkit::conformance!(files, Files::default);
rekindle_testkit::conformance!(sqlite, Sqlite::default);

rekindle_testkit::conformance!(metered_memory, Metered::<Memory>::default, [default Default]);
rekindle_testkit::conformance!(metered_files, Metered::<Files>::default, [default Default]);
rekindle_testkit::conformance!(metered_sqlite, Metered::<Sqlite>::default, [encrypted Encrypted]);
rekindle_testkit::conformance!(anchored_memory, Marked::<Memory>::default, [default Default]);
rekindle_testkit::conformance!(anchored_files, Marked::<Files>::default, [default Default]);
rekindle_testkit::conformance!(anchored_sqlite, Marked::<Sqlite>::default, [encrypted Encrypted]);
rekindle_testkit::conformance!(faulty_memory, Faulty::<Memory>::default, [default Default]);
rekindle_testkit::conformance!(faulty_files, Faulty::<Files>::default, [default Default]);
rekindle_testkit::conformance!(faulty_sqlite, Faulty::<Sqlite>::default, [encrypted Encrypted]);

rekindle_testkit::queue_conformance!(queue_memory, Memory::default);
rekindle_testkit::queue_conformance!(queue_sqlite, Sqlite::default);
rekindle_testkit::queue_conformance!(queue_metered_memory, Metered::<Memory>::default);
rekindle_testkit::queue_conformance!(queue_anchored_sqlite, Marked::<Sqlite>::default);
rekindle_testkit::queue_conformance!(queue_faulty_sqlite, Faulty::<Sqlite>::default);

rekindle_testkit::values_conformance!(values_memory, Memory::default);
rekindle_testkit::values_conformance!(values_files, Files::default);
rekindle_testkit::values_conformance!(values_sqlite, Sqlite::default);
rekindle_testkit::values_conformance!(values_beside_sqlite, Beside::database);
rekindle_testkit::values_conformance!(values_beside_files, Beside::folder);
rekindle_testkit::values_conformance!(values_metered_sqlite, Metered::<Sqlite>::default);
rekindle_testkit::values_conformance!(values_faulty_files, Faulty::<Files>::default);
