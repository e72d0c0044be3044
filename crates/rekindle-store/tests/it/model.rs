//! Random commands over every store, compared with the testkit's model of the contract, and random
//! requests, compared with the rules that all stores share.

use crate::fixtures::{Files, Memory, Metered, Sqlite};

rekindle_testkit::model_test!(memory, Memory::default);
rekindle_testkit::model_test!(files, Files::default);
rekindle_testkit::model_test!(sqlite, Sqlite::default);
rekindle_testkit::model_test!(encrypted_memory, Memory::default, Encrypted);
rekindle_testkit::model_test!(metered_memory, Metered::<Memory>::default, Signed);

rekindle_testkit::differential_test!(rules_memory, Memory::default);
rekindle_testkit::differential_test!(rules_files, Files::default);
rekindle_testkit::differential_test!(rules_sqlite, Sqlite::default);
rekindle_testkit::differential_test!(rules_metered_sqlite, Metered::<Sqlite>::default);
