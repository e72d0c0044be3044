//! One URL for every store.

use std::sync::Arc;

use rekindle_core::{Error, ErrorKind, Result, Store};

use crate::anchored::Marking;
use crate::memory::MemoryStore;
use crate::options::StoreOptions;
use crate::url::shown_url;

/// The schemes this version knows, with the feature each needs.
const SCHEMES: &[(&str, &str)] = &[
    ("memory", ""),
    ("file", "files"),
    ("sqlite", "sqlite"),
    ("postgres", "postgres"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("objects", "objects"),
    ("s3", "objects"),
    ("gs", "objects"),
    ("az", "objects"),
];

/// The schemes of the stores in this build.
///
/// ```
/// assert!(rekindle_store::schemes().contains(&"memory"));
/// ```
pub fn schemes() -> Vec<&'static str> {
    let built = |feature: &str| match feature {
        "files" => cfg!(feature = "files"),
        "sqlite" => cfg!(feature = "sqlite"),
        "redis" => cfg!(feature = "redis"),
        "postgres" => cfg!(feature = "postgres"),
        "objects" => cfg!(feature = "objects"),
        _ => feature.is_empty(),
    };
    SCHEMES.iter().filter(|(_, feature)| built(feature)).map(|(name, _)| *name).collect()
}

/// Opens the store a URL names: `memory:`, `file:./dir`, `sqlite:./rekindle.db`,
/// `postgres://user@host/database`, `redis://host`, `s3://bucket/prefix` (or `gs://`, `az://`) or
/// `objects:./dir`.
///
/// For files, everything behind the scheme is the path as it is: nothing is decoded, so no path can
/// be smuggled in. `file:///abs` and `sqlite:///abs` name absolute paths too.
///
/// ```
/// # fn main() -> rekindle_core::Result<()> {
/// let store = rekindle_store::open("memory:", rekindle_store::StoreOptions::new())?;
/// assert_eq!(store.capabilities().name, "memory");
/// # Ok(()) }
/// ```
///
/// With the feature `objects`, the setting `large_values` names a bucket for large values of any
/// store, `large_values_from` from how many bytes on, and `large_values_…` any setting of that bucket.
///
/// Calls to a store on a server are made again while the server does not answer, for six seconds and twenty times at most:
/// `retry_for` and `retry_attempts`, in the URL or among the settings, say otherwise.
///
/// A `sqlite:` or `file:` store notices when it was set back to an older state ([`Anchored`]): marks of
/// the highest heads stand beside it, in `<path>-marks`, unless the setting `marks` is `false`. The setting
/// `anchor` names another store or bucket for marks of any store, and `anchor_…` any setting of that.
///
/// [`Anchored`]: crate::Anchored
pub fn open(url: &str, mut options: StoreOptions) -> Result<Arc<dyn Store>> {
    let marking = Marking::take(url, &mut options)?;
    Ok(marking.over(open_unmarked(url, options)?))
}

fn open_unmarked(url: &str, options: StoreOptions) -> Result<Arc<dyn Store>> {
    #[cfg(feature = "objects")]
    if options.settings.contains_key(crate::objects::LARGE_VALUES) {
        return crate::objects::open_with_large_values(options, |options| open_unmarked(url, options));
    }
    let (scheme, path) = url.split_once(':').ok_or_else(|| {
        let hint = format!("write sqlite:{url} for a database file or file:{url} for a directory");
        Error::invalid(format!("`{url}` is not a store URL: it has no scheme")).during("open store").hint(hint)
    })?;
    // Both are common.
    let scheme = if scheme == "postgresql" { "postgres" } else { scheme };
    let path = path.strip_prefix("//").unwrap_or(path);
    if scheme != "memory" && (path.is_empty() || path.contains('\0')) {
        return Err(nowhere(scheme, url));
    }
    match scheme {
        "memory" if path.is_empty() => Ok(Arc::new(MemoryStore::new(options))),
        "memory" => Err(Error::invalid("a memory store has no path; write memory:").during("open store")),
        #[cfg(feature = "files")]
        "file" => Ok(Arc::new(crate::files::FileStore::open(path, options)?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(crate::sqlite::SqliteStore::open(path, options)?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => repeating(url, options, crate::redis::RedisStore::open),
        #[cfg(feature = "postgres")]
        "postgres" => repeating(url, options, crate::postgres::PostgresStore::open),
        #[cfg(feature = "objects")]
        scheme if crate::objects::SCHEMES.contains(&scheme) => {
            Ok(Arc::new(crate::objects::ObjectsStore::open(url, options)?))
        }
        _ => Err(unknown(scheme)),
    }
}

/// A store on a server, whose calls are made again while the server is away.
#[cfg(any(feature = "postgres", feature = "redis"))]
fn repeating<S: Store>(
    url: &str,
    mut options: StoreOptions,
    open: fn(&str, StoreOptions) -> Result<S>,
) -> Result<Arc<dyn Store>> {
    let policy = crate::retry::RetryPolicy::take(url, &mut options);
    let (url, policy) = policy.map_err(|error| error.during("open store"))?;
    Ok(Arc::new(crate::retry::RetryStore::new(open(&url, options)?, policy)))
}

/// The error of a URL that does not say where the store is.
fn nowhere(scheme: &str, url: &str) -> Error {
    let (what, like) = match scheme {
        "postgres" => ("server", "postgres://user@host:5432/database"),
        "redis" => ("server", "redis://host:6379"),
        "rediss" => ("server", "rediss://host:6379"),
        "s3" => ("bucket", "s3://bucket/prefix"),
        "gs" => ("bucket", "gs://bucket/prefix"),
        "az" => ("container", "az://container/prefix"),
        "sqlite" => ("path", "sqlite:./rekindle.db"),
        "file" => ("path", "file:./directory"),
        "objects" => ("path", "objects:./directory"),
        _ => return unknown(scheme),
    };
    let error = Error::invalid(format!("`{}` names no {what}", shown_url(url))).during("open store");
    error.hint(format!("write it like {like}"))
}

fn unknown(scheme: &str) -> Error {
    let known: Vec<_> = SCHEMES.iter().map(|(name, _)| format!("{name}:")).collect();
    match SCHEMES.iter().find(|(name, _)| *name == scheme) {
        Some((_, feature)) => Error::new(ErrorKind::Unsupported, format!("this build has no `{scheme}:` store"))
            .hint(format!("build rekindle-store with the feature `{feature}`")),
        None => {
            Error::invalid(format!("there is no `{scheme}:` store")).hint(format!("use one of {}", known.join(", ")))
        }
    }
    .during("open store")
}
