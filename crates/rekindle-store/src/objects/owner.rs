//! Whose large values are whose. Several stores may have their values in one place, and a copied session has the same name
//! and incarnation in both stores. So every store has an id of its own, kept among its small values, and puts its values
//! below it:
//!
//! ```text
//! large/<store>/<namespace>/<session>/<nonce>/<value>-<frame>
//! values/<namespace>/<session>/i<incarnation>/…        by earlier versions: whose they are is not known
//! ```
//!
//! The nonce is that of a note (`stranded.rs`): a session that was removed and comes back has another one, so that whoever
//! still deletes the values of the first deletes none of the second. A store deletes nothing outside its own folder. Values of the earlier form can be read, and stay.

use bytes::Bytes;
use rekindle_core::values::{Change, Changed, ValueKey, ValueKind, Values};
use rekindle_core::{Error, ErrorKind, Namespace, Result, SessionKey, Store, file_name};

use super::large_values::LargeValues;
use super::layout::{hex, parse_hex};
use crate::system::system_ids;

/// Why values of the earlier form stay.
pub(super) const SHARED: &str =
    "an earlier version wrote them, and other stores may use them: delete them by hand if none does";

impl<S: Store> LargeValues<S> {
    /// The id of the store, made if it has none yet. Nothing if it keeps no small values.
    pub(super) async fn own_id(&self) -> Result<Option<&str>> {
        let Some(values) = self.store.values() else { return Ok(None) };
        let made = self.id.get_or_try_init(|| async {
            if let Some(id) = stored_id(values).await? {
                return Ok(id);
            }
            let id = hex(&system_ids()?.nonce());
            match values.change(&Change::set(id_key()?, Bytes::from(id.clone())).if_is(None)).await? {
                Changed::Done => Ok(id),
                Changed::Differs(_) => stored_id(values).await?.ok_or_else(|| {
                    Error::new(ErrorKind::StoreUnavailable, "the id of the store was removed meanwhile")
                }),
            }
        });
        made.await.map(|id| Some(id.as_str()))
    }

    /// The id of the store, if it has one.
    pub(super) async fn known_id(&self) -> Result<Option<String>> {
        match (self.id.get(), self.store.values()) {
            (Some(id), _) => Ok(Some(id.clone())),
            (None, Some(values)) => stored_id(values).await,
            (None, None) => Ok(None),
        }
    }
}

async fn stored_id(values: &dyn Values) -> Result<Option<String>> {
    let Some(bytes) = values.get(&id_key()?).await? else { return Ok(None) };
    let id = std::str::from_utf8(&bytes).ok().filter(|text| parse_hex(text).is_some_and(|id| hex(&id) == **text));
    let damaged = || Error::corrupt("the id of the store for its large values cannot be read");
    id.map(|id| Some(id.to_owned())).ok_or_else(damaged)
}

fn id_key() -> Result<ValueKey> {
    ValueKey::new(Namespace::default(), ValueKind::LARGE_VALUES_OWNER, "id")
}

/// The folder of all values of a store in a namespace.
pub(super) fn namespace_folder(id: &str, namespace: &Namespace) -> String {
    format!("large/{id}/{}", file_name(namespace.as_str()))
}

/// The folder of the values of all sessions of a name.
pub(super) fn name_folder(id: &str, session: &SessionKey) -> String {
    format!("{}/{}", namespace_folder(id, &session.namespace), file_name(session.id.as_str()))
}

/// The folder of the values of a session, whose note calls it `folder`.
pub(super) fn folder_of(id: &str, session: &SessionKey, folder: &str) -> String {
    format!("{}/{}", name_folder(id, session), file_name(folder))
}

/// The folder in which earlier versions put the values of all sessions of a name.
fn earlier_name_folder(session: &SessionKey) -> String {
    format!("values/{}/{}", file_name(session.namespace.as_str()), file_name(session.id.as_str()))
}

/// The folder in which earlier versions put the values of a session.
pub(super) fn earlier_folder_of(session: &SessionKey, incarnation: &str) -> String {
    format!("{}/i{}", earlier_name_folder(session), file_name(incarnation))
}

/// Returns true if an object has its place among the values of sessions of that name, of whatever store: a reference
/// that was tampered with must not reach into another session.
pub(super) fn is_value_of(object: &str, session: &SessionKey) -> bool {
    let below = |folder: String| object.strip_prefix(&folder).is_some_and(|rest| rest.starts_with('/'));
    let id = object.strip_prefix("large/").and_then(|rest| rest.split('/').next());
    below(earlier_name_folder(session)) || id.is_some_and(|id| below(name_folder(id, session)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rekindle_core::SessionId;

    #[test]
    fn references_stay_with_their_session() {
        let session: SessionKey = SessionId::new("s").unwrap().into();
        for object in ["values/default/s/i1/v", "large/00ff/default/s/i1/v", &folder_of("0", &session, "1")] {
            assert!(is_value_of(object, &session), "{object}");
        }
        for object in [
            "values/default/s",
            "values/default/s2/i1/v",
            "large/default/s/i1/v",
            "large/0/default/other/i1/v",
            "large/0/other/s/i1/v",
            "sessions/default/s/heads/1",
        ] {
            assert!(!is_value_of(object, &session), "{object}");
        }
    }
}
