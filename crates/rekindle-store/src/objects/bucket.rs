//! A place for objects: a bucket of a cloud, or a directory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rekindle_core::{Error, ErrorKind, Result, Retries};
use tokio::sync::OnceCell;

use super::address::{self, Connected};
use super::backend::{Listed, Objects, Put, Stat, Tag, Write};
use super::dates::Dates;
use crate::options::StoreOptions;
use crate::url::shown_url;

/// The longest name of an object, in bytes. Services allow 1,024; the prefix takes its part.
const LONGEST_NAME: usize = 800;
/// How often a conditional write is tried when the service cannot tell what is there.
const UNDECIDED_TRIES: usize = 5;

/// A bucket of S3, Google Cloud Storage or Azure, or a local directory used like one.
///
/// Names of objects are parts separated by `/`; each part is made of lower-case letters, digits,
/// `-`, `_`, `.`, `%` and `~` and does not begin with a dot, as [`rekindle_core::file_name`] makes
/// them of any id. Every other name is refused.
///
/// ```
/// use bytes::Bytes;
/// use rekindle_store::{Bucket, StoreOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rekindle_core::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("rekindle-bucket-{}", std::process::id()));
/// let bucket = Bucket::open(&format!("objects:{}", dir.display()), &StoreOptions::new())?;
/// bucket.put("reports/one", Bytes::from_static(b"text")).await?;
/// assert!(!bucket.put_new("reports/one", Bytes::from_static(b"other")).await?);
/// assert_eq!(bucket.get("reports/one").await?.as_deref(), Some(&b"text"[..]));
/// assert_eq!(bucket.list("reports", None, 10).await?.len(), 1);
/// bucket.delete("reports/one").await?;
/// # let _ = std::fs::remove_dir_all(dir);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Bucket {
    pub(super) objects: Arc<dyn Objects>,
    shown: Arc<str>,
    local: bool,
    /// The dates of the service's answers.
    pub(super) dates: Dates,
    /// Set once conditional writes of this service can be relied on.
    pub(super) tried: Arc<OnceCell<()>>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.shown).finish()
    }
}

impl Bucket {
    /// Opens `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    /// `objects:./dir`. Keys, regions and endpoints are parameters of the URL
    /// (`?region=eu-central-1`) or settings of `options`, under the names object_store knows
    /// (`aws_secret_access_key`, `google_service_account_path`, `azure_storage_account_key`,
    /// `endpoint`, `allow_http`, `timeout`...). The environment is not looked at.
    ///
    /// Nothing is sent: a bucket that does not exist is noticed by the first request.
    pub fn open(url: &str, options: &StoreOptions) -> Result<Self> {
        let Connected { objects, is_local: local, dates } = address::connect(url, options)?;
        Ok(Self { objects, shown: shown_url(url).into(), local, dates, tried: Arc::default() })
    }

    /// A bucket over another object service, shown as `shown`.
    #[doc(hidden)]
    pub fn over(objects: Arc<dyn Objects>, shown: &str) -> Self {
        Self { objects, shown: shown.into(), local: false, dates: Dates::default(), tried: Arc::default() }
    }

    /// Its URL, without secrets.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The requests that were made again since it was opened.
    pub fn retries(&self) -> Retries {
        self.objects.retries()
    }

    /// Whether it is a directory of this machine.
    pub(super) fn is_local(&self) -> bool {
        self.local
    }

    /// Writes an object, whatever was there.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        check(name)?;
        self.objects.put(name, bytes, Write::Replace).await.map(drop)
    }

    /// Writes an object unless there is one of that name; whether it is the one written. Of any
    /// number of callers with different bytes, exactly one succeeds. `Unsupported` if the service ignores the
    /// condition.
    pub async fn put_new(&self, name: &str, bytes: Bytes) -> Result<bool> {
        check(name)?;
        self.rely_on_conditions().await?;
        for _ in 0..UNDECIDED_TRIES {
            if self.objects.put(name, bytes.clone(), Write::New).await? == Put::Done {
                return Ok(true);
            }
            // A write whose acknowledgement was lost is repeated and then finds itself.
            if let Some(found) = self.objects.get(name, None).await? {
                return Ok(found == bytes);
            }
            // Removed in between, or two writes met and the service refused both.
        }
        let message = format!("{} did not decide about the object `{name}`", self.shown);
        Err(Error::new(ErrorKind::StoreUnavailable, message))
    }

    /// Writes an object unless there is one of that name; whether it was written, as far as is known:
    /// a write whose acknowledgement was lost may find itself there.
    pub(super) async fn try_put_new(&self, name: &str, bytes: Bytes) -> Result<bool> {
        check(name)?;
        self.rely_on_conditions().await?;
        Ok(self.objects.put(name, bytes, Write::New).await? == Put::Done)
    }

    /// Writes over exactly one version of an object; whether it was written, as far as is known.
    pub(super) async fn put_over(&self, name: &str, bytes: Bytes, tag: &Tag) -> Result<bool> {
        check(name)?;
        self.rely_on_conditions().await?;
        Ok(self.objects.put_over(name, bytes, tag).await? == Put::Done)
    }

    /// Reads an object and what tells this version of it from others; nothing if there is none.
    pub(super) async fn get_tagged(&self, name: &str) -> Result<Option<(Bytes, Tag)>> {
        check(name)?;
        self.objects.get_tagged(name).await
    }

    /// Reads an object; nothing if there is none.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        check(name)?;
        self.objects.get(name, None).await
    }

    /// Reads as much of `range` as the object has; nothing if there is no object.
    pub async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        check(name)?;
        if range.is_empty() {
            return Err(Error::invalid("an empty range of an object was asked for"));
        }
        self.objects.get(name, Some(range)).await
    }

    /// The length of an object; nothing if there is none.
    pub async fn size(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.stat(name).await?.map(|stat| stat.size))
    }

    pub(super) async fn stat(&self, name: &str) -> Result<Option<Stat>> {
        check(name)?;
        self.objects.stat(name).await
    }

    /// Removes an object; one that is not there is removed already.
    pub async fn delete(&self, name: &str) -> Result<()> {
        check(name)?;
        self.objects.delete(name).await
    }

    /// Removes objects, in any order, with as few requests as the service allows.
    pub(super) async fn delete_all(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| check(name))?;
        if names.is_empty() { Ok(()) } else { self.objects.delete_all(names).await }
    }

    /// The names and sizes of at most `limit` objects below the folder `prefix` (all, if it is empty)
    /// that come behind `after`, by name.
    pub async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>> {
        Ok(self.entries(prefix, after, limit).await?.into_iter().map(|listed| (listed.name, listed.size)).collect())
    }

    /// The names and sizes of the objects below the folder `prefix` that were written at least `age` ago, by the clock of
    /// the place.
    pub async fn older_than(&self, prefix: &str, age: Duration) -> Result<Vec<(String, u64)>> {
        const NAMES: usize = 1_000;
        let (mut old, mut after) = (Vec::new(), None::<String>);
        let now = self.now().await?;
        loop {
            let page = self.entries(prefix, after.as_deref(), NAMES).await?;
            let full = page.len() >= NAMES;
            after = page.last().map(|listed| listed.name.clone());
            let aged = page.into_iter().filter(|listed| now.since(listed.modified) >= age);
            old.extend(aged.map(|listed| (listed.name, listed.size)));
            if !full {
                return Ok(old);
            }
        }
    }

    pub(super) async fn entries(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>> {
        if !prefix.is_empty() {
            check(prefix)?;
        }
        if let Some(after) = after {
            check(after)?;
        }
        self.objects.list(prefix, after, limit).await
    }
}

/// An error unless `name` is the name of an object here: nothing else ever reaches a service.
fn check(name: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.%~".contains(&byte);
    let legal = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(fits);
    match name.len() <= LONGEST_NAME && name.split('/').all(legal) {
        true => Ok(()),
        false => Err(Error::invalid(format!("`{}` is not the name of an object", name.escape_debug()))),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn only_safe_names_reach_the_service() {
        for name in ["a", "a/b-c_d.json", "names/%2e%2e/%~0123"] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.hidden", "A", "a b", "a\0", "ä", "a?b", "a#1"]
        {
            assert!(check(name).is_err(), "{name}");
        }
        assert!(check(&"x".repeat(801)).is_err());
    }
}
