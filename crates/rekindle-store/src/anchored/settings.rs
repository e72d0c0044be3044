//! Which marks a store keeps, by its URL and its settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::values::Values;
use rekindle_core::{Error, Result, Store};

use super::beside;
use super::opened::OpenedValues;
use super::{Anchored, MarksIn};
use crate::options::StoreOptions;
use crate::url::shown_url;

/// The setting that says whether marks are kept beside the data.
const MARKS: &str = "marks";
/// The setting that names the anchor.
const ANCHOR: &str = "anchor";
/// What settings of the anchor itself begin with.
const ANCHOR_PREFIX: &str = "anchor_";
/// How far an anchor lies behind at most, besides the time a write takes.
const LAG: Duration = Duration::from_secs(1);

/// Which marks a store keeps.
#[derive(Debug)]
pub(crate) struct Marking {
    beside: Option<(Scheme, PathBuf)>,
    anchor: Option<(String, StoreOptions)>,
    read_only: bool,
}

/// The stores that have a place beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Files,
    Sqlite,
}

impl Marking {
    /// Takes what concerns marks out of the settings of a store.
    pub(crate) fn take(url: &str, options: &mut StoreOptions) -> Result<Self> {
        let wanted = match options.settings.remove(MARKS).as_deref() {
            None | Some("true") => true,
            Some("false") => false,
            Some(other) => {
                let message = format!("the setting `{MARKS}` is `true` or `false`, not `{other}`");
                return Err(Error::invalid(message).during("open store"));
            }
        };
        let create = !options.read_only;
        let mut of_anchor = StoreOptions { settings: BTreeMap::new(), create, ..options.clone() };
        options.settings.retain(|name, value| match name.strip_prefix(ANCHOR_PREFIX) {
            Some(name) => {
                of_anchor.settings.insert(name.to_owned(), std::mem::take(value));
                false
            }
            None => true,
        });
        // An anchor keeps no marks of its own.
        of_anchor.settings.insert(MARKS.to_owned(), "false".to_owned());
        let anchor = options.settings.remove(ANCHOR).filter(|url| !url.is_empty()).map(|url| (url, of_anchor));
        let (scheme, path) = url.split_once(':').unwrap_or_default();
        let path = path.strip_prefix("//").unwrap_or(path);
        let scheme = match scheme {
            "file" => Some(Scheme::Files),
            "sqlite" => Some(Scheme::Sqlite),
            _ => None,
        };
        let beside = scheme.filter(|_| wanted).map(|scheme| (scheme, Path::new(path).to_owned()));
        Ok(Self { beside, anchor, read_only: options.read_only })
    }

    /// The store with its marks.
    pub(crate) fn over(self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let mut places = Vec::new();
        if let Some((scheme, path)) = &self.beside {
            // The data is there by now, so links to it can be followed.
            let beside = beside::beside(path);
            let name = beside.display().to_string();
            places.extend(place(*scheme, path, beside, self.read_only).map(|values| MarksIn::beside(name, values)));
        }
        if let Some((url, options)) = self.anchor {
            let name = shown_url(&url);
            let open = Arc::new(move || crate::open(&url, options.clone()));
            let values = || Arc::new(OpenedValues::new(open.clone()));
            places.push(MarksIn::anchor(name, LAG, values(), values()));
        }
        match places.is_empty() {
            true => store,
            false => Arc::new(Anchored::new(store, &places)),
        }
    }
}

fn place(scheme: Scheme, data: &Path, path: PathBuf, read_only: bool) -> Option<Arc<dyn Values>> {
    match scheme {
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => Some(Arc::new(beside::MarkDatabase::new(path, read_only).about(data.to_owned()))),
        #[cfg(feature = "files")]
        Scheme::Files => Some(Arc::new(beside::MarkFolder::new(path, read_only).about(data))),
        #[allow(unreachable_patterns, reason = "not every build has both")]
        _ => {
            let _ = (data, path, read_only);
            None
        }
    }
}
