//! The conformance suite and the model test.

#[cfg(feature = "sqlite")]
use crate::fixtures::Sqlite;
use crate::fixtures::{Cloud, Directory, Large, Memory, Moto, SeaweedFs};

rekindle_testkit::conformance!(directory, Directory::default);
rekindle_testkit::conformance!(s3, Cloud::default);
rekindle_testkit::conformance!(moto, Moto::default, [default Default]);
rekindle_testkit::conformance!(seaweedfs, SeaweedFs::default, [default Default]);
rekindle_testkit::values_conformance!(values_moto, Moto::default);
rekindle_testkit::values_conformance!(values_seaweedfs, SeaweedFs::default);
rekindle_testkit::conformance!(large_in_memory, Large::<Memory>::default);
#[cfg(feature = "sqlite")]
rekindle_testkit::conformance!(large_in_sqlite, Large::<Sqlite>::default, [default Default, encrypted Encrypted]);
rekindle_testkit::values_conformance!(values_directory, Directory::default);
rekindle_testkit::values_conformance!(values_s3, Cloud::default);
rekindle_testkit::values_conformance!(values_large_in_memory, Large::<Memory>::default);
rekindle_testkit::model_test!(model_directory, Directory::default);
rekindle_testkit::model_test!(model_s3, Cloud::default);
rekindle_testkit::model_test!(model_large_in_memory, Large::<Memory>::default, Encrypted);
rekindle_testkit::differential_test!(rules_directory, Directory::default);
rekindle_testkit::differential_test!(rules_s3, Cloud::default);
rekindle_testkit::differential_test!(rules_large_in_memory, Large::<Memory>::default);
