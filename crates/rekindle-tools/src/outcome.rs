//! The one place that says what is known of a call whose answer was lost.

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{ToolError, ToolOptions};

/// Whether a call in doubt may be made again.
pub(crate) fn may_repeat(options: &ToolOptions) -> bool {
    matches!(options.policy(), InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent)
}

/// The answer of a call was lost after it was sent: what is done then is what the tool declares.
pub(crate) fn lost(message: String) -> ToolError {
    ToolError::in_doubt(message)
}

/// What a tool says that was told to stop. The engine knows why.
pub(crate) fn stopped() -> ToolError {
    ToolError::failed("the call was stopped")
}
