//! A place for archives in memory, that stops at any call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle::operations::ArchivePlace;
use rekindle::{Error, ErrorKind, Result};

use tokio::sync::Semaphore;

use crate::kit::Stop;

#[derive(Clone, Debug)]
pub struct Shelf {
    pub objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    name: &'static str,
    stop: Option<(u64, Stop)>,
    calls: Arc<AtomicU64>,
}

impl Shelf {
    pub fn new() -> Self {
        Self { objects: Arc::default(), name: "shelf:", stop: None, calls: Arc::default() }
    }

    /// The same objects under another name.
    pub fn named(&self, name: &'static str) -> Self {
        Self { name, ..self.clone() }
    }

    /// The same objects, behind calls that stop at one of them and at all that follow.
    pub fn stopping(&self, at: u64, how: Stop) -> Self {
        Self { stop: Some((at, how)), calls: Arc::default(), ..self.clone() }
    }

    pub fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn call<T>(&self, call: impl FnOnce(&mut BTreeMap<String, Bytes>) -> T) -> Result<T> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let stopped = Err(Error::new(ErrorKind::StoreUnavailable, "stopped"));
        match self.stop {
            Some((at, Stop::After)) if number == at => {
                call(&mut self.objects.lock().unwrap());
                stopped
            }
            Some((at, _)) if number >= at => stopped,
            _ => Ok(call(&mut self.objects.lock().unwrap())),
        }
    }
}

#[async_trait]
impl ArchivePlace for Shelf {
    fn shown(&self) -> String {
        self.name.to_owned()
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.call(|objects| drop(objects.insert(name.to_owned(), bytes)))
    }

    async fn put_new(&self, name: &str, bytes: Bytes) -> Result<bool> {
        self.call(|objects| *objects.entry(name.to_owned()).or_insert_with(|| bytes.clone()) == bytes)
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.call(|objects| objects.get(name).cloned())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.call(|objects| drop(objects.remove(name)))
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>> {
        let below = format!("{folder}/");
        self.call(|objects| {
            let found = objects.iter().filter(|(name, _)| name.starts_with(&below));
            let behind = found.filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
            behind.take(limit).map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect()
        })
    }
}

/// The objects of a shelf, behind calls of which one waits until it may go on.
#[derive(Debug)]
pub struct Held {
    shelf: Shelf,
    at: (&'static str, &'static str),
    pub reached: Semaphore,
    pub go_on: Semaphore,
}

impl Held {
    /// Waits at a call whose name ends so.
    pub fn new(shelf: &Shelf, call: &'static str, end: &'static str) -> Arc<Self> {
        let (reached, go_on) = (Semaphore::new(0), Semaphore::new(0));
        Arc::new(Self { shelf: shelf.clone(), at: (call, end), reached, go_on })
    }

    async fn pass(&self, call: &str, name: &str) {
        if self.at.0 == call && name.ends_with(self.at.1) {
            self.reached.add_permits(1);
            self.go_on.acquire().await.unwrap().forget();
        }
    }
}

#[async_trait]
impl ArchivePlace for Held {
    fn shown(&self) -> String {
        self.shelf.shown()
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.pass("put", name).await;
        self.shelf.put(name, bytes).await
    }

    async fn put_new(&self, name: &str, bytes: Bytes) -> Result<bool> {
        self.pass("put_new", name).await;
        self.shelf.put_new(name, bytes).await
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.pass("get", name).await;
        self.shelf.get(name).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.pass("delete", name).await;
        self.shelf.delete(name).await
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>> {
        self.pass("list", folder).await;
        self.shelf.list(folder, after, limit).await
    }

    async fn older_than(&self, folder: &str, age: Duration) -> Result<Vec<(String, u64)>> {
        self.pass("older_than", folder).await;
        self.shelf.older_than(folder, age).await
    }
}
