//! The four cases of starting or resuming, in one place for every front end.

use rekindle_core::{Error, ErrorKind, Position, Result, SessionKey, State, Status};

use crate::executor::Descriptor;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// There is input and nothing unfinished: a new turn.
    NewTurn,
    /// There is an unfinished run and no input: go on with it.
    Resume,
}

/// What the validator looks at.
pub(crate) struct Situation<'a> {
    pub(crate) session: &'a SessionKey,
    pub(crate) state: &'a State,
    pub(crate) position: &'a Position,
    /// New input was given, or stands queued in the inbox.
    pub(crate) has_input: bool,
    /// What tells whether the last turn was not finished, whatever the status says: after a failure, or on a branch
    /// forked in the middle of a turn.
    pub(crate) descriptor: &'a dyn Descriptor,
    /// Whether new input gives up a turn that failed.
    pub(crate) gives_up_failed: bool,
}

/// Decides between the four cases; the error names the way out.
pub(crate) fn validate(situation: &Situation<'_>) -> Result<Case> {
    let Situation { session, state, position, has_input, descriptor, gives_up_failed } = *situation;
    let mid_turn = descriptor.is_mid_turn(state);
    // The lease is ours, so a run that is still `running` on record has lost its process.
    let status = state.status().seen(false);
    let refused = |error: Error| Err(error.on(session).at(position.clone()));
    match (status, has_input) {
        // A turn that came to its end is over, even if its run could not say so any more, or if
        // this is a branch that was forked right there.
        (status, true) if status.is_unfinished() && mid_turn => refused(unfinished(situation, status)),
        (Status::Failed, true) if mid_turn && !gives_up_failed => refused(unfinished(situation, status)),
        (_, true) => Ok(Case::NewTurn),
        (status, false) if status.is_unfinished() => Ok(Case::Resume),
        (Status::Failed | Status::Idle, false) if mid_turn => Ok(Case::Resume),
        (Status::Idle, false) => refused(nothing("the session has no run and no new input was given")),
        (status, false) => refused(nothing(&format!("the last run {status} and no new input was given"))),
    }
}

fn nothing(message: &str) -> Error {
    Error::new(ErrorKind::NotResumable, message.to_owned()).hint("give new input, or resume from an earlier checkpoint")
}

fn unfinished(situation: &Situation<'_>, status: Status) -> Error {
    let Situation { session, state, descriptor, .. } = *situation;
    let run = state.run().map(|run| run.started.run.to_string()).unwrap_or_default();
    let step = descriptor.step(state).map_or_else(|| "?".to_owned(), |step| step.to_string());
    let message = format!("run {run} of session `{session}` is {status} at step {step}, and new input was given");
    let go_on = format!("to go on: resume `{session}` without a message; to give it up: cancel `{session}`");
    Error::new(ErrorKind::Unfinished, message).hint(match descriptor.reads_messages() {
        true => format!("{go_on}; to have the message read when the turn ends: send it to the inbox of `{session}`"),
        false => go_on,
    })
}

#[cfg(test)]
mod tests {
    use rekindle_core::record::{RunEnded, RunOutcome, RunStarted};
    use rekindle_core::{BranchId, Record, RunId, Seq, SessionId};

    use super::*;

    /// An executor that is or is not in the middle of a turn.
    #[derive(Debug)]
    struct Stub(bool);

    impl Descriptor for Stub {
        fn kind(&self) -> &str {
            "stub"
        }

        fn is_mid_turn(&self, _: &State) -> bool {
            self.0
        }
    }

    fn check(outcome: Option<RunOutcome>, started: bool, has_input: bool, expected: Result<Case, &str>) {
        let over = [RunOutcome::Succeeded, RunOutcome::Idle, RunOutcome::Cancelled];
        let mid_turn = started && outcome.is_none_or(|outcome| !over.contains(&outcome));
        check_at(outcome, started, has_input, mid_turn, expected);
    }

    fn check_at(
        outcome: Option<RunOutcome>,
        started: bool,
        has_input: bool,
        mid_turn: bool,
        expected: Result<Case, &str>,
    ) {
        let run = RunId::new("run_1").unwrap();
        let mut state = State::default();
        if started {
            state.apply(&Record::from(RunStarted::new(run.clone(), "agent"))).unwrap();
        }
        if let Some(outcome) = outcome {
            state.apply(&RunEnded::new(run, outcome).into()).unwrap();
        }
        let session = SessionId::new("trip").unwrap().into();
        let position = Position::new(BranchId::main(), Seq(3));
        let situation = Situation {
            session: &session,
            state: &state,
            position: &position,
            has_input,
            descriptor: &Stub(mid_turn),
            gives_up_failed: true,
        };
        let decided = validate(&situation).map_err(|error| error.code());
        assert_eq!(decided, expected, "{outcome:?} {started} {has_input}");
    }

    #[test]
    fn the_four_cases() {
        check(None, false, false, Err("RK0010"));
        check(None, false, true, Ok(Case::NewTurn));
        check(None, true, false, Ok(Case::Resume));
        check(None, true, true, Err("RK0019"));
    }

    #[test]
    fn a_turn_that_is_over_takes_a_message_whatever_became_of_its_run() {
        check_at(None, true, true, false, Ok(Case::NewTurn));
        check_at(None, true, false, false, Ok(Case::Resume));
    }

    #[test]
    fn finished_runs_are_open_to_the_next_message_only() {
        for outcome in [RunOutcome::Succeeded, RunOutcome::Idle, RunOutcome::Cancelled] {
            check(Some(outcome), true, true, Ok(Case::NewTurn));
            check(Some(outcome), true, false, Err("RK0010"));
        }
        check(Some(RunOutcome::Failed), true, true, Ok(Case::NewTurn));
        check(Some(RunOutcome::Failed), true, false, Ok(Case::Resume));
        for outcome in [RunOutcome::Paused, RunOutcome::Waiting] {
            check(Some(outcome), true, true, Err("RK0019"));
            check(Some(outcome), true, false, Ok(Case::Resume));
        }
    }
}
