//! The conformance suite: what every store must do, under every codec and decorator.
//!
//! Each test is a public async function over a [`Harness`](crate::Harness), so that a store
//! with unusual needs can call them one by one; everybody else uses
//! [`conformance!`](crate::conformance!).

// A conformance test is an assertion from its first line to its last.
#![allow(clippy::unwrap_used)]

mod append;
mod branches;
mod cancellation;
mod condition;
mod lease;
mod listing;
mod looking;
mod retention;
mod transfer;

pub use append::*;
pub use branches::*;
pub use cancellation::*;
pub use condition::*;
pub use lease::*;
pub use listing::*;
pub use looking::*;
pub use retention::*;
pub use transfer::*;

/// Runs every conformance test over a store. The second argument makes a new, empty
/// [`Fixture`](crate::Fixture) each time it is called; the third, optional, names the codecs
/// to run under (all four by default). The calling crate needs `tokio` with `macros` and
/// `rt-multi-thread`.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $fixture:expr) => {
        $crate::conformance!($name, $fixture, [default Default, compressed Compressed, signed Signed, encrypted Encrypted]);
    };
    ($name:ident, $fixture:expr, [$($module:ident $codec:ident),*]) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(mod $module {
                #[allow(unused_imports)]
                use super::*;
                fn harness() -> $crate::Harness {
                    $crate::Harness::new(($fixture)(), $crate::CodecKind::$codec)
                }
                $crate::conformance_tests! {
                    create_open_and_open_or_create_differ
                    acknowledged_survives_reopening
                    append_is_atomic
                    order_is_kept
                    pages_cover_everything_once
                    two_writers_one_winner
                    many_sessions_at_once_lose_nothing
                    repeated_append_is_not_duplicated
                    an_append_can_depend_on_another_branch
                    a_condition_on_another_branch_is_atomic
                    empty_and_huge_records
                    what_is_over_a_limit_leaves_no_trace
                    namespaces_and_sessions_are_isolated
                    any_legal_id
                    secrets_are_not_stored
                    json_over_several_lines_survives
                    a_session_made_again_is_another_one
                    stale_owner_is_fenced
                    expired_lease_is_taken_over
                    unleased_append_respects_a_lease
                    a_lease_covers_the_session_unless_told_otherwise
                    only_one_of_many_acquires
                    only_the_owner_that_was_seen_is_evicted
                    appends_renew_the_lease
                    a_lease_has_a_longest_time
                    interrupted_is_derived_from_the_lease
                    the_inbox_needs_no_lease
                    forks_across_forks
                    fork_inside_a_batch
                    fork_is_safe_to_repeat_and_refuses_nonsense
                    a_fork_is_of_the_session_that_was_seen
                    every_position_can_be_restored
                    checkpoints_are_found_newest_first
                    what_was_seen_can_be_checked
                    looking_again_sees_what_is_there
                    a_branch_can_be_removed_unless_needed
                    a_session_goes_only_as_it_was_seen
                    list_filters
                    paging_is_stable_under_writes
                    describing_changes_the_header
                    pruning_protects_and_frees
                    pruning_between_frames_of_one_append
                    pruning_may_leave_nothing
                    pruning_keeps_open_work
                    pruned_positions_say_so
                    old_checkpoints_can_be_deleted_by_age
                    deleting_inactive_sessions_spares_the_living
                    deleted_checkpoints_are_gone_and_protected_ones_are_not
                    export_and_import_round_trip
                    an_import_that_stopped_goes_on
                    an_import_in_place_of_a_known_session_is_read
                    a_damaged_export_is_refused
                    a_forged_export_is_refused
                    verify_is_content_with_sound_sessions
                    verify_notices_a_store_set_back
                    a_dropped_create_can_be_repeated
                    a_dropped_append_can_be_repeated
                    a_dropped_fork_can_be_repeated
                    a_dropped_lease_can_be_repeated
                    a_dropped_removal_can_be_repeated
                    dropped_pruning_can_be_repeated
                    a_dropped_look_costs_nothing
                    readers_that_give_up_stop_nobody
                }
            })*
        }
    };
}

/// One `#[tokio::test]` for each named conformance test. For [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($($test:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            $crate::conformance::$test(&harness()).await;
        })*
    };
}
