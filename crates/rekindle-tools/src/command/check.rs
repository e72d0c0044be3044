//! Asking a program whether a call happened.

use rekindle::Json;
use rekindle::tool::{Checked, ToolContext, ToolError};
use serde_json::Value;

use super::run::{Finished, run};
use super::{CommandOutput, CommandTool, parsed};

/// The exit code that says that a call did not happen.
const DID_NOT_HAPPEN: i32 = 3;

impl CommandTool {
    pub(super) async fn ask(&self, context: &ToolContext, arguments: &Value) -> Result<Checked, ToolError> {
        let Some(command) = &self.check else { return Ok(Checked::Unknown) };
        let values = self.values(context, arguments).await?;
        let start = self.start_check(command, &values)?;
        let finished = run(self.job(start, Vec::new()), context).await?;
        Ok(match finished.status.code() {
            Some(0) => self.happened(&finished).map_or(Checked::Unknown, Checked::Happened),
            Some(DID_NOT_HAPPEN) => Checked::DidNotHappen,
            _ => Checked::Unknown,
        })
    }

    /// The result, as the program tells it.
    fn happened(&self, finished: &Finished) -> Option<Json> {
        let json = parsed("", finished).ok();
        match self.output {
            CommandOutput::Json => json,
            CommandOutput::Text => Some(Json::from(finished.stdout.text().as_str())),
            CommandOutput::Full => json.or_else(|| Some(Json::from(finished.stdout.text().as_str()))),
        }
    }
}
