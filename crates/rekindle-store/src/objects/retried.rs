//! Every request of a service, made again by the policy of the store.
//!
//! Safe for each of them: reads, deletes and lists change nothing the second time, an unconditional write puts the same
//! bytes there, and whoever writes on a condition recognises an object of its own (see [`Objects::put`]).

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::{Result, Retries};

use super::backend::{Listed, Objects, Put, Stat, Tag, Write};
use crate::retry::{RetryPolicy, Retrying};

/// A service whose requests are made again.
#[derive(Debug)]
pub(super) struct Retried<O> {
    objects: O,
    retrying: Retrying,
}

impl<O: Objects> Retried<O> {
    pub(super) fn new(objects: O, policy: RetryPolicy) -> Self {
        Self { objects, retrying: Retrying::new(policy) }
    }
}

#[async_trait]
impl<O: Objects> Objects for Retried<O> {
    async fn put(&self, name: &str, bytes: Bytes, write: Write) -> Result<Put> {
        self.retrying.run(|| self.objects.put(name, bytes.clone(), write)).await
    }

    async fn put_over(&self, name: &str, bytes: Bytes, tag: &Tag) -> Result<Put> {
        self.retrying.run(|| self.objects.put_over(name, bytes.clone(), tag)).await
    }

    async fn get_tagged(&self, name: &str) -> Result<Option<(Bytes, Tag)>> {
        self.retrying.run(|| self.objects.get_tagged(name)).await
    }

    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        self.retrying.run(|| self.objects.get(name, range.clone())).await
    }

    async fn stat(&self, name: &str) -> Result<Option<Stat>> {
        self.retrying.run(|| self.objects.stat(name)).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.retrying.run(|| self.objects.delete(name)).await
    }

    async fn delete_all(&self, names: &[String]) -> Result<()> {
        self.retrying.run(|| self.objects.delete_all(names)).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>> {
        self.retrying.run(|| self.objects.list(prefix, after, limit)).await
    }

    fn untried(&self) -> Option<String> {
        self.objects.untried()
    }

    fn retries(&self) -> Retries {
        self.retrying.seen()
    }
}
