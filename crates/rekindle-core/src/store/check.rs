//! Defects of a store outside its frames.

use serde::{Deserialize, Serialize};

use crate::id::SessionKey;

/// A defect of a store outside its frames: in an index, a table or a file beside them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// The session it concerns, if that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// The part of the store that is wrong, e.g. the name of an index.
    pub place: String,
    /// What was found, for people.
    pub detail: String,
    /// The command or the step that helps.
    pub hint: String,
}
