//! Sessions that a list names although they cannot be read.

use rekindle_core::{
    BranchId, Damage, DamageKind, Error, ErrorKind, NewSession, Seq, SessionHeader, SessionInfo, SessionKey, Timestamp,
};

/// Returns whether an error concerns one session, while others can be read.
pub(crate) fn is_about_session(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionTooNew { .. })
}

/// A session of which nothing is known but its name and, perhaps, when it was created: listed with the reason as
/// damage, so that whatever works through a list meets it, and fails with it.
pub(crate) fn unreadable(key: SessionKey, created_at: Timestamp, error: &Error, now: Timestamp) -> SessionInfo {
    let kind = match error.kind() {
        ErrorKind::VersionTooNew { .. } => DamageKind::Version,
        _ => DamageKind::Index,
    };
    let new = NewSession { created_at: Some(created_at), ..NewSession::new(SessionHeader::new(key)) };
    let mut info = new.session_info(now);
    // When it last changed is not known: to a policy about old sessions it is not one.
    info.branches.iter_mut().for_each(|branch| branch.updated_at = now);
    info.damage.push(Damage::new(kind, BranchId::main(), Seq(1), Seq::MAX, error.message().to_owned()));
    info
}
