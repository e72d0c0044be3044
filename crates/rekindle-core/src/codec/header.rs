//! The seal of a session's header: what binds title, tags, labels, metadata and the current branch to the
//! session, so that nobody without the key can change or exchange them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use super::Codec;
use super::chain::header_hash;
use super::keychain::Standing;
use super::keys::{DataKey, DerivedKeys};
use super::seal::{open_bytes, open_text, seal_bytes};
use super::{Protection, Root};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, SessionKey};
use crate::json::Json;
use crate::position::{Hash, Seq};
use crate::record::is_default;
use crate::session::SessionHeader;

/// What a seal says besides the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The record of the inbox that described the session last; zero if none did.
    pub at: Seq,
    /// The current branch.
    pub current: BranchId,
}

impl Default for Described {
    /// As of a session that was just made.
    fn default() -> Self {
        Self { at: Seq::ZERO, current: BranchId::main() }
    }
}

/// A seal, as it is stored in the header.
#[derive(Serialize, Deserialize)]
struct Seal {
    v: u32,
    /// The main key it was made with; nothing without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    key: String,
    /// The data key it was made with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    data: String,
    #[serde(default, skip_serializing_if = "is_default")]
    at: Seq,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    branch: Option<BranchId>,
    /// The hash of what is bound, if nothing is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<Hash>,
    /// Base64 of title and metadata, sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
}

/// The version of seals.
const SEAL: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Sealed {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    metadata: BTreeMap<String, Json>,
}

/// How a stored header is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderKey {
    /// By nothing, or by a hash that anybody can make.
    None,
    /// By the main key of that id.
    Main(String),
    /// By a data key of its session.
    Data(String),
}

impl SessionHeader {
    /// Returns whether title and metadata are encrypted, as it stands in a store.
    pub fn is_encrypted(&self) -> bool {
        self.sealed.as_deref().is_some_and(|text| match Seal::parse(text) {
            Some(Ok(seal)) => seal.sealed.is_some(),
            _ => true,
        })
    }

    /// Returns whether it names a key, as it stands in a store.
    pub(crate) fn is_protected(&self) -> bool {
        self.key_named() != HeaderKey::None
    }

    /// Returns whether it names a data key, as it stands in a store.
    pub(crate) fn names_data_key(&self) -> bool {
        matches!(self.key_named(), HeaderKey::Data(_))
    }

    /// The key a stored header names.
    pub(crate) fn key_named(&self) -> HeaderKey {
        let Some(text) = self.sealed.as_deref() else { return HeaderKey::None };
        match Seal::parse(text) {
            Some(Ok(seal)) if !seal.data.is_empty() => HeaderKey::Data(seal.data),
            Some(Ok(seal)) if !seal.key.is_empty() => HeaderKey::Main(seal.key),
            Some(_) => HeaderKey::None,
            None => HeaderKey::Main(text.split_once(' ').map_or("", |(key, _)| key).to_owned()),
        }
    }
}

impl Seal {
    /// Reads a seal; nothing if the text is of the first era.
    fn parse(text: &str) -> Option<Result<Self>> {
        text.starts_with('{').then(|| {
            let damaged = |_| Error::corrupt("the seal of the header cannot be read");
            let seal: Self = serde_json::from_str(text).map_err(damaged)?;
            match seal.v == SEAL {
                true => Ok(seal),
                false => {
                    let kind = ErrorKind::VersionTooNew { what: "header".into(), found: seal.v, supported: SEAL };
                    Err(Error::new(kind, format!("header version {}; this build reads {SEAL}", seal.v)))
                }
            }
        })
    }
}

impl Codec {
    /// The header as it is stored: redacted, sealed, and with title and metadata encrypted if the codec
    /// encrypts.
    pub fn seal_header(&self, header: &SessionHeader, described: &Described) -> Result<SessionHeader> {
        let standing = self.keychain.get(&header.key);
        if let Some(error) = standing.as_ref().and_then(Standing::refusal) {
            return Err(error.on(&header.key));
        }
        self.seal_header_under(header, described, self.keychain.data(&header.key).as_deref())
    }

    /// The same under a data key, if there is one.
    pub(crate) fn seal_header_under(
        &self,
        header: &SessionHeader,
        described: &Described,
        data: Option<&DataKey>,
    ) -> Result<SessionHeader> {
        // Before anything walks it, and after what redaction adds.
        self.check_header(header).map_err(|error| error.on(&header.key))?;
        let mut stored = self.redacted_header(header)?;
        self.check_header(&stored).map_err(|error| error.on(&header.key))?;
        let mut seal = Seal {
            v: SEAL,
            key: String::new(),
            data: String::new(),
            at: described.at,
            branch: Some(described.current.clone()).filter(|branch| *branch != BranchId::main()),
            hash: None,
            sealed: None,
        };
        match (&self.protection, data) {
            (Protection::Encrypted { .. }, Some(data)) => {
                seal.data.clone_from(&data.id);
                seal.sealed = Some(encrypt(&data.keys, &mut stored, described)?);
            }
            (Protection::Encrypted { ring: Some(ring), .. }, _) => {
                ring.active_id().clone_into(&mut seal.key);
                seal.sealed = Some(encrypt(ring.active(), &mut stored, described)?);
            }
            (Protection::Encrypted { ring: None, .. }, _) => return Err(not_opened(&header.key)),
            (Protection::Signed(ring), _) => {
                ring.active_id().clone_into(&mut seal.key);
                seal.hash = Some(header_hash(Some(&ring.active().chain), &bound(&stored, described)));
            }
            (Protection::None, _) => seal.hash = Some(header_hash(None, &bound(&stored, described))),
        }
        let text = serde_json::to_string(&seal);
        stored.sealed = Some(text.map_err(|error| Error::invalid("the header cannot be written").because(error))?);
        Ok(stored)
    }

    /// The header as callers see it, from the stored one.
    pub fn open_header(&self, stored: SessionHeader) -> Result<SessionHeader> {
        self.open_described(stored).map(|(header, _)| header)
    }

    /// The same, with what its seal says; nothing if it has none.
    pub(crate) fn open_described(&self, mut stored: SessionHeader) -> Result<(SessionHeader, Option<Described>)> {
        let key = stored.key.clone();
        let context = |error: Error| error.during("open header").on(&key);
        let seal = match stored.sealed.take() {
            None => return self.without_seal(stored).map(|header| (header, None)).map_err(context),
            Some(text) => match Seal::parse(&text) {
                None => return self.first_era(stored, &text).map(|header| (header, None)).map_err(context),
                Some(seal) => seal.map_err(context)?,
            },
        };
        let described = Described { at: seal.at, current: seal.branch.clone().unwrap_or_else(BranchId::main) };
        self.check_seal(&mut stored, &seal, &described).map_err(context)?;
        Ok((stored, Some(described)))
    }

    fn check_seal(&self, stored: &mut SessionHeader, seal: &Seal, described: &Described) -> Result<()> {
        let forged = || Error::corrupt("the header does not fit its seal: altered, or of another session");
        let ring = self.protection.ring();
        let missing = |key: &str| {
            let message = format!("the header is protected by the key `{key}`, which was not given");
            Error::new(ErrorKind::KeyMissing { key: key.to_owned() }, message)
        };
        let standing = self.keychain.get(&stored.key);
        let data = match &standing {
            Some(Standing::Data(data)) if data.id == seal.data => Some(&data.keys),
            _ => None,
        };
        let keys = match (seal.data.is_empty(), seal.key.is_empty()) {
            (false, _) => Some(data.ok_or_else(|| match standing.as_ref().and_then(Standing::refusal) {
                Some(error) => error,
                None => missing(&seal.data),
            })?),
            (true, false) => match ring {
                Some(ring) => Some(ring.get(&seal.key).ok_or_else(|| missing(&seal.key))?),
                None if seal.sealed.is_some() => return Err(missing(&seal.key)),
                // Without any key a signed session is only text.
                None => return Ok(()),
            },
            (true, true) => None,
        };
        match (&seal.sealed, seal.hash, keys) {
            (Some(sealed), None, Some(keys)) => decrypt(keys, sealed, stored, described),
            (None, Some(hash), keys) => {
                if header_hash(keys.map(|keys| &*keys.chain), &bound(stored, described)) != hash {
                    return Err(forged());
                }
                match keys.is_none() {
                    true => self.without_key(stored),
                    false => Ok(()),
                }
            }
            _ => Err(forged()),
        }
    }

    /// A header without a seal: of a session from before there were seals.
    fn without_seal(&self, stored: SessionHeader) -> Result<SessionHeader> {
        self.without_key(&stored)?;
        Ok(stored)
    }

    fn without_key(&self, stored: &SessionHeader) -> Result<()> {
        if self.encrypts() && !self.accepts_unprotected {
            return Err(Error::corrupt("the header is not sealed, and this codec demands it"));
        }
        match self.root(stored) {
            Root::Keyed(_) => Err(Error::corrupt("the header has lost its seal")),
            Root::Open | Root::Unknown => Ok(()),
        }
    }

    fn first_era(&self, mut stored: SessionHeader, text: &str) -> Result<SessionHeader> {
        let plain = open_text(self.protection.ring(), &stored.key, text)?;
        put_in(&mut stored, &plain)?;
        match self.root(&stored) {
            Root::Keyed(_) => Err(Error::corrupt("the header has lost its seal")),
            Root::Open | Root::Unknown => Ok(stored),
        }
    }

    fn redacted_header(&self, header: &SessionHeader) -> Result<SessionHeader> {
        let mut stored = header.clone();
        stored.title = header.title.as_deref().map(|title| self.redaction.text(title));
        stored.tags = header.tags.iter().map(|tag| self.redaction.text(tag)).collect();
        for (name, value) in &mut stored.labels {
            *value = match self.redaction.excludes(name) {
                true => format!("[redacted:{name}]"),
                false => self.redaction.text(value),
            };
        }
        for (key, value) in &mut stored.metadata {
            *value = match self.redaction.excludes(key) {
                true => Json::from(serde_json::json!({ "$redacted": key })),
                false => self.redaction.value(value)?,
            };
        }
        Ok(stored)
    }

    /// An error if a header is over the limits.
    pub fn check_header(&self, header: &SessionHeader) -> Result<()> {
        let bytes = serde_json::to_vec(header)
            .map_err(|error| Error::invalid("the header cannot be written").because(error))?;
        if bytes.len() > self.limits.record_bytes {
            return Err(Error::limit("bytes of the header", bytes.len() as u64, self.limits.record_bytes as u64));
        }
        let depth = crate::json::depth(&bytes).saturating_sub(2);
        match depth > self.limits.depth {
            true => Err(Error::limit("depth of the metadata", depth as u64, self.limits.depth as u64)),
            false => Ok(()),
        }
    }
}

pub(super) fn not_opened(session: &SessionKey) -> Error {
    Error::invalid("the session has no data key at hand").on(session).hint("open the session before writing to it")
}

/// Title and metadata as ciphertext; they are taken out of the header.
fn encrypt(keys: &DerivedKeys, stored: &mut SessionHeader, described: &Described) -> Result<String> {
    let plain = Sealed { title: stored.title.take(), metadata: std::mem::take(&mut stored.metadata) };
    let plain =
        serde_json::to_vec(&plain).map_err(|error| Error::invalid("the header cannot be written").because(error))?;
    Ok(STANDARD_NO_PAD.encode(seal_bytes(keys, &bound(stored, described), &plain)?))
}

fn decrypt(keys: &DerivedKeys, sealed: &str, stored: &mut SessionHeader, described: &Described) -> Result<()> {
    let wrong = || Error::corrupt("the sealed header is damaged: altered, or of another session");
    // What stands in clear beside the sealed part was put there by somebody else.
    if stored.title.is_some() || !stored.metadata.is_empty() {
        return Err(wrong());
    }
    let sealed = STANDARD_NO_PAD.decode(sealed).map_err(|_| wrong())?;
    let plain = open_bytes(keys, &bound(stored, described), &sealed).ok_or_else(wrong)?;
    put_in(stored, &plain)
}

fn put_in(stored: &mut SessionHeader, plain: &[u8]) -> Result<()> {
    let header: Sealed = serde_json::from_slice(plain)
        .map_err(|error| Error::corrupt("the sealed header does not have the expected fields").because(error))?;
    stored.title = header.title;
    stored.metadata = header.metadata;
    Ok(())
}

/// Everything a seal binds: each part with its length, so that no two headers look alike.
fn bound(header: &SessionHeader, described: &Described) -> Vec<u8> {
    let SessionHeader { key, agent, parent, title, tags, labels, metadata, sealed: _, imported_from, .. } = header;
    let mut out = Vec::with_capacity(256);
    let mut part = |text: Option<&str>| {
        out.extend_from_slice(&text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.unwrap_or_default().as_bytes());
    };
    for name in [Some(key), parent.as_ref(), imported_from.as_ref()] {
        part(name.map(|name| name.namespace.as_str()));
        part(name.map(|name| name.id.as_str()));
    }
    for text in [agent.as_deref(), title.as_deref(), Some(&header.incarnation), Some(described.current.as_str())] {
        part(text);
    }
    part(Some(&header.genesis.to_string()));
    part(Some(&described.at.to_string()));
    part(Some(&tags.len().to_string()));
    tags.iter().for_each(|tag| part(Some(tag)));
    part(Some(&labels.len().to_string()));
    labels.iter().flat_map(|(name, value)| [name, value]).for_each(|text| part(Some(text)));
    part(Some(&metadata.len().to_string()));
    for (name, value) in metadata {
        part(Some(name));
        // Some stores keep everything on one line.
        let mut value = value.as_str().as_bytes().to_vec();
        crate::json::put_on_one_line(&mut value);
        part(Some(&String::from_utf8_lossy(&value)));
    }
    out
}
