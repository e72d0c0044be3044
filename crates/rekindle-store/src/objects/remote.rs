//! Object services as the crate object_store knows them.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{
    Error as ServiceError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    UpdateVersion,
};
use rekindle_core::{Error, Result, Timestamp};

use super::backend::{Listed, Objects, Put, Stat, Tag, Write};
use super::failure::{no_bucket, service_error};
use super::local::{LocalTurn, content_tag};

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
}

impl Remote {
    fn path(&self, name: &str) -> Result<Path> {
        let full = format!("{}{name}", self.prefix);
        Path::parse(&full).map_err(|_| Error::invalid(format!("`{full}` is not the name of an object")))
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
        Some(Listed { name, size: meta.size, modified: modified(meta) })
    }
}

fn modified(meta: &ObjectMeta) -> Timestamp {
    Timestamp(u64::try_from(meta.last_modified.timestamp_micros()).unwrap_or(0))
}

#[async_trait]
impl Objects for Remote {
    async fn put(&self, name: &str, bytes: Bytes, write: Write) -> Result<Put> {
        let mode = match write {
            Write::Replace => PutMode::Overwrite,
            Write::New => PutMode::Create,
        };
        match self.service.put_opts(&self.path(name)?, bytes.into(), PutOptions::from(mode)).await {
            Ok(_) => Ok(Put::Done),
            Err(ServiceError::AlreadyExists { .. }) if write == Write::New => Ok(Put::Exists),
            Err(error) => Err(self.error(name, &error)),
        }
    }

    async fn put_over(&self, name: &str, bytes: Bytes, tag: &Tag) -> Result<Put> {
        let path = self.path(name)?;
        if let Some(local) = &self.local {
            return local.put_over(self.service.clone(), &self.shown, path, bytes, tag).await;
        }
        let version = UpdateVersion { e_tag: tag.entity.clone(), version: tag.version.clone() };
        let put = self.service.put_opts(&path, bytes.into(), PutOptions::from(PutMode::Update(version))).await;
        match put {
            Ok(_) => Ok(Put::Done),
            Err(ServiceError::Precondition { .. }) => Ok(Put::Exists),
            Err(error) => Err(self.error(name, &error)),
        }
    }

    async fn get_tagged(&self, name: &str) -> Result<Option<(Bytes, Tag)>> {
        let found = self.service.get_opts(&self.path(name)?, GetOptions::default()).await;
        let Some(found) = self.found(name, found)? else { return Ok(None) };
        let tag = Tag { entity: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let Some(bytes) = self.found(name, found.bytes().await)? else { return Ok(None) };
        let tag = if self.local.is_some() { content_tag(&bytes) } else { tag };
        Ok(Some((bytes, tag)))
    }

    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let Some(result) = self.found(name, self.service.get_opts(&self.path(name)?, options).await)? else {
            return Ok(None);
        };
        // Gone between the answer and its body: gone.
        self.found(name, result.bytes().await)
    }

    async fn stat(&self, name: &str) -> Result<Option<Stat>> {
        let meta = self.found(name, self.service.head(&self.path(name)?).await)?;
        Ok(meta.map(|meta| Stat { size: meta.size, modified: modified(&meta) }))
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.found(name, self.service.delete(&self.path(name)?).await).map(drop)
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
        while let Some(meta) = stream.next().await {
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
