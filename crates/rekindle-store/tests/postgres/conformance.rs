//! The suites of the testkit.

use crate::fixture::{Repeating, Shared};

rekindle_testkit::conformance!(postgres, Shared::default);
rekindle_testkit::conformance!(unprepared, Shared::unprepared, [default Default]);
rekindle_testkit::conformance!(repeating, Repeating::default, [default Default]);
rekindle_testkit::queue_conformance!(queue, Shared::default);
rekindle_testkit::queue_conformance!(queue_repeating, Repeating::default);
rekindle_testkit::queue_conformance!(queue_unprepared, Shared::unprepared);
rekindle_testkit::values_conformance!(values, Shared::default);
rekindle_testkit::values_conformance!(values_unprepared, Shared::unprepared);
rekindle_testkit::values_conformance!(values_repeating, Repeating::default);
rekindle_testkit::model_test!(model, Shared::default);
rekindle_testkit::differential_test!(rules, Shared::default);
rekindle_testkit::differential_test!(rules_unprepared, Shared::unprepared);
