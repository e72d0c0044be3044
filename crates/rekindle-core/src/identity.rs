//! The identity of who does something, and what proves it.

/// The identity of who does something, and what proves it.
///
/// An approval counts once for each credential, whatever names are given with it. Programs that check
/// themselves who asks give an author alone: then each author counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The name on record.
    pub author: String,
    /// The credential of the caller, e.g. `token:maria` or `uid:1000@host`. Never a secret.
    pub credential: Option<String>,
    /// True if the name is only what the environment or the request says, and the credential does not prove
    /// it.
    pub claimed: bool,
}

impl Identity {
    /// Somebody whose name the calling program vouches for.
    pub fn of(author: impl Into<String>) -> Self {
        Self { author: author.into(), credential: None, claimed: false }
    }

    /// Somebody whose name the credential proves.
    pub fn proven(author: impl Into<String>, credential: impl Into<String>) -> Self {
        Self { author: author.into(), credential: Some(credential.into()), claimed: false }
    }

    /// Somebody who has a credential and goes by a name that it does not prove.
    pub fn claimed(author: impl Into<String>, credential: impl Into<String>) -> Self {
        Self { claimed: true, ..Self::proven(author, credential) }
    }
}

impl From<&str> for Identity {
    fn from(author: &str) -> Self {
        Self::of(author)
    }
}

impl From<String> for Identity {
    fn from(author: String) -> Self {
        Self::of(author)
    }
}

impl From<&String> for Identity {
    fn from(author: &String) -> Self {
        Self::of(author.as_str())
    }
}
