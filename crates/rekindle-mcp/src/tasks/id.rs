//! The name of a task: its run's full name.

use std::fmt;
use std::str::FromStr;

use rekindle::{Error, RunId, SessionId};

/// The name of a task: `{run}@{session}`. It says where the run stands, so nothing has to remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.run, self.session)
    }
}

impl FromStr for TaskId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((run, session)) = text.split_once('@') else {
            return Err(Error::invalid("a task is named by its run and its session, as in `run@session`"));
        };
        Ok(Self { run: RunId::new(run)?, session: SessionId::new(session)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_may_have_any_name() {
        let id: TaskId = "run_1@maria@example.org".parse().unwrap();
        assert_eq!((id.run.as_str(), id.session.as_str()), ("run_1", "maria@example.org"));
        assert_eq!(id.to_string(), "run_1@maria@example.org");
    }

    #[test]
    fn what_names_no_run_is_refused() {
        let long = "x".repeat(300);
        for bad in ["", "run_1", "@", "run_1@", "@session", "run\n1@s", long.as_str()] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn fuzzed_names() {
        rekindle_fuzz::fuzz!("mcp-task").seeds(["run_1@ses_1", "run_1@maria@example.org"]).text(|text| {
            let id: TaskId = text.parse()?;
            assert_eq!(id.to_string(), text);
            Ok::<(), Error>(())
        });
    }

    #[test]
    fn fuzzed_messages() {
        let seeds = [
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
            r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"answer_wait","arguments":{"session":"a","wait":"w"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"rekindle://sessions/a"}}"#,
        ];
        rekindle_fuzz::fuzz!("mcp-client-message")
            .seeds(seeds)
            .words(["\"_meta\":{", "\"task\":{\"ttl\":1}"])
            .memory(4 << 20, 1_000)
            .bytes(|bytes| serde_json::from_slice::<rmcp::model::ClientJsonRpcMessage>(bytes));
    }
}
