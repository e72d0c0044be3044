//! Object services as the crate object_store knows them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{
    Error as ServiceError, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, UpdateVersion,
};
use rekindle_core::{Error, Result, Timestamp};

use super::backend::{Listed, Objects, Put, Stat, Tag, Write};
use super::failure::{no_bucket, service_error, unanswered};
use super::local::{LocalTurn, content_tag};

/// The slowest transfer of content that is waited for, in bytes per second.
const SLOWEST: u64 = 256 << 10;

/// A service of object_store, everything in it below one prefix.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) service: Arc<dyn ObjectStore>,
    /// Empty, or parts that end with a slash.
    pub(super) prefix: String,
    pub(super) shown: String,
    /// Whether listings come sorted and can begin behind a name.
    pub(super) sorted: bool,
    /// Where the objects are, if in a directory of this machine.
    pub(super) local: Option<LocalTurn>,
    /// Who answers, for people; nothing for a directory.
    pub(super) host: Option<String>,
    /// The time it has to answer a request, transfers of content aside; nothing for a directory.
    pub(super) patience: Option<Duration>,
}

impl Remote {
    fn path(&self, name: &str) -> Result<Path> {
        let full = format!("{}{name}", self.prefix);
        Path::parse(&full).map_err(|_| Error::invalid(format!("`{full}` is not the name of an object")))
    }

    /// Waits for an answer to a request that moves so many bytes, no longer than the service has to give one.
    async fn within<T>(&self, name: &str, bytes: u64, answer: impl Future<Output = T>) -> Result<T> {
        let Some(patience) = self.patience else { return Ok(answer.await) };
        let limit = patience + Duration::from_secs(bytes / SLOWEST);
        tokio::time::timeout(limit, answer).await.map_err(|_| unanswered(&self.shown, name, limit))
    }

    /// The content of an object whose answer has begun. Gone between the answer and its body: gone.
    async fn body(&self, name: &str, found: GetResult) -> Result<Option<Bytes>> {
        let length = found.range.end.saturating_sub(found.range.start);
        self.found(name, self.within(name, length, found.bytes()).await?)
    }

    fn error(&self, name: &str, error: &ServiceError) -> Error {
        service_error(&self.shown, name, error)
    }

    /// Nothing for an object that is not there; the bucket has to be.
    fn found<T>(&self, name: &str, result: Result<T, ServiceError>) -> Result<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(error @ ServiceError::NotFound { .. }) if !no_bucket(&error) => Ok(None),
            Err(error) => Err(self.error(name, &error)),
        }
    }

    fn listed(&self, meta: &ObjectMeta) -> Option<Listed> {
        let name = meta.location.as_ref().strip_prefix(&self.prefix)?.to_owned();
        // No object is hidden: this is the lock.
        if name.starts_with('.') {
            return None;
        }
        // A directory is not listed at one instant, and its tags tell less.
        let tag = meta
            .e_tag
            .as_ref()
            .filter(|_| self.local.is_none())
            .map(|entity| Tag { entity: Some(entity.clone()), version: None });
        Some(Listed { name, size: meta.size, modified: modified(meta), tag })
    }
}

fn modified(meta: &ObjectMeta) -> Timestamp {
    Timestamp(u64::try_from(meta.last_modified.timestamp_micros()).unwrap_or(0))
}

#[async_trait]
impl Objects for Remote {
    fn untried(&self) -> Option<String> {
        self.host.clone()
    }

    async fn put(&self, name: &str, bytes: Bytes, write: Write) -> Result<Put> {
        if let Some(local) = &self.local {
            return local.put(&self.shown, self.path(name)?, bytes, write).await;
        }
        let mode = match write {
            Write::Replace => PutMode::Overwrite,
            Write::New => PutMode::Create,
        };
        let (path, length) = (self.path(name)?, bytes.len() as u64);
        let put = self.service.put_opts(&path, bytes.into(), PutOptions::from(mode));
        match self.within(name, length, put).await? {
            Ok(_) => Ok(Put::Done),
            Err(ServiceError::AlreadyExists { .. }) if write == Write::New => Ok(Put::Exists),
            Err(error) => Err(self.error(name, &error)),
        }
    }

    async fn put_over(&self, name: &str, bytes: Bytes, tag: &Tag) -> Result<Put> {
        let path = self.path(name)?;
        if let Some(local) = &self.local {
            return local.put_over(&self.shown, path, bytes, tag).await;
        }
        let version = UpdateVersion { e_tag: tag.entity.clone(), version: tag.version.clone() };
        let length = bytes.len() as u64;
        let put = self.service.put_opts(&path, bytes.into(), PutOptions::from(PutMode::Update(version)));
        match self.within(name, length, put).await? {
            Ok(_) => Ok(Put::Done),
            Err(ServiceError::Precondition { .. }) => Ok(Put::Exists),
            Err(error) => Err(self.error(name, &error)),
        }
    }

    async fn get_tagged(&self, name: &str) -> Result<Option<(Bytes, Tag)>> {
        let path = self.path(name)?;
        let found = self.within(name, 0, self.service.get_opts(&path, GetOptions::default())).await?;
        let Some(found) = self.found(name, found)? else { return Ok(None) };
        let tag = Tag { entity: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let Some(bytes) = self.body(name, found).await? else { return Ok(None) };
        let tag = if self.local.is_some() { content_tag(&bytes) } else { tag };
        Ok(Some((bytes, tag)))
    }

    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let path = self.path(name)?;
        let found = self.within(name, 0, self.service.get_opts(&path, options)).await?;
        let Some(found) = self.found(name, found)? else { return Ok(None) };
        self.body(name, found).await
    }

    async fn stat(&self, name: &str) -> Result<Option<Stat>> {
        let path = self.path(name)?;
        let meta = self.found(name, self.within(name, 0, self.service.head(&path)).await?)?;
        Ok(meta.map(|meta| Stat { size: meta.size, modified: modified(&meta) }))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        self.found(name, self.within(name, 0, self.service.delete(&path)).await?).map(drop)
    }

    async fn delete_all(&self, names: &[String]) -> Result<()> {
        let paths = names.iter().map(|name| self.path(name)).collect::<Result<Vec<_>>>()?;
        let mut deleted = self.service.delete_stream(futures_util::stream::iter(paths.into_iter().map(Ok)).boxed());
        let name = names.first().map(String::as_str).unwrap_or_default();
        while let Some(one) = self.within(name, 0, deleted.next()).await? {
            self.found(name, one)?;
        }
        Ok(())
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>> {
        let folder = match format!("{}{prefix}", self.prefix) {
            all if all.is_empty() => None,
            _ if prefix.is_empty() => Some(self.path("")?),
            _ => Some(self.path(prefix)?),
        };
        let mut stream = match after.filter(|_| self.sorted) {
            Some(after) => self.service.list_with_offset(folder.as_ref(), &self.path(after)?),
            None => self.service.list(folder.as_ref()),
        };
        let mut all = Vec::new();
        while let Some(meta) = self.within(prefix, 0, stream.next()).await? {
            let listed = self.listed(&meta.map_err(|error| self.error(prefix, &error))?);
            all.extend(listed.filter(|listed| after.is_none_or(|after| listed.name.as_str() > after)));
            if self.sorted && all.len() >= limit {
                break;
            }
        }
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all.truncate(limit);
        Ok(all)
    }
}
