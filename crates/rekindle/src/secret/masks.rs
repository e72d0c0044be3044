//! The secrets that operators gave to a program: known by value, so that they are masked wherever they turn up.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::Secret;
use super::clean::clean_value;
use super::finder::{Finder, plain_name};

/// The shortest secret that is masked: a shorter one would be found in every text.
const SHORTEST: usize = 4;

/// The most secrets that are known at once; the oldest is forgotten first.
const MOST: usize = 512;

/// The secrets a program knows, shared by everything that must not show them: runs, and what prints.
///
/// They are masked as they are, escaped for JSON, in base64, base64url and hex, and percent-encoded.
///
/// ```
/// use rekindle::{Masks, Secret};
/// let masks = Masks::default();
/// masks.learn("token", &Secret::new("hunter2hunter2"));
/// assert_eq!(masks.text("GET /?t=hunter2hunter2"), "GET /?t=[secret token]");
/// assert_eq!(masks.text("Bearer aHVudGVyMmh1bnRlcjI="), "Bearer [secret token]I=");
/// ```
#[derive(Clone, Default)]
pub struct Masks {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    /// Counts what was learnt.
    version: AtomicU64,
}

/// Values with their names, and what finds them.
#[derive(Default)]
pub(super) struct Known {
    secrets: VecDeque<(Arc<str>, String)>,
    finder: Option<Arc<Finder>>,
    /// Something was learnt since the finder was made.
    stale: bool,
}

impl Known {
    /// Takes note of a value; whether it was new.
    pub(super) fn learn(&mut self, name: &str, value: &str, most: usize) -> bool {
        if let Some((known, _)) = self.secrets.iter_mut().find(|(_, known)| known == value) {
            // A reference says where it came from; a name is what it is asked for by.
            let renamed = known.starts_with('@') && !name.starts_with('@');
            if renamed {
                *known = plain_name(name);
            }
            self.stale |= renamed;
            return renamed;
        }
        if self.secrets.len() >= most {
            self.secrets.pop_front();
        }
        self.secrets.push_back((plain_name(name), value.to_owned()));
        self.stale = true;
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    pub(super) fn secrets(&self) -> impl Iterator<Item = (&Arc<str>, &str)> {
        self.secrets.iter().map(|(name, value)| (name, value.as_str()))
    }

    fn finder(&mut self) -> Option<Arc<Finder>> {
        if std::mem::take(&mut self.stale) {
            self.finder = Finder::new(self.secrets.iter().map(|(name, value)| (name, value.as_str()))).map(Arc::new);
        }
        self.finder.clone()
    }
}

impl Masks {
    /// Masks the value from now on, as `[secret NAME]`. One of fewer than four bytes is not: it would be
    /// found in every text.
    pub fn learn(&self, name: &str, secret: &Secret) {
        if secret.expose().len() >= SHORTEST && self.lock().learn(name, secret.expose(), MOST) {
            self.shared.version.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A text with the names of secrets in place of their values.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let cleaned = self.finder().and_then(|finder| finder.replaced(text));
        cleaned.map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// A value with the names of secrets in place of their values.
    pub fn value(&self, value: &mut Value) {
        if let Some(finder) = self.finder() {
            clean_value(&finder, value);
        }
    }

    /// Counts up with each secret that is learnt.
    pub(super) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::SeqCst)
    }

    /// Returns the finder of the secrets; nothing, at the cost of one load, if there are none.
    pub(super) fn finder(&self) -> Option<Arc<Finder>> {
        (self.version() > 0).then(|| self.lock().finder()).flatten()
    }

    /// Looks at what is known.
    pub(super) fn with_known<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masks(…)")
    }
}
