//! Objects in memory that stop at any request, and count all of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rekindle_core::{Error, ErrorKind, Hash, Result, Timestamp};
use rekindle_store::Bucket;
use rekindle_store::objects::{Listed, Objects, Put, Stat, Tag, Write};
use tokio::sync::Notify;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// The request with that number fails.
    Once(usize, Effect),
    /// That request and all behind it fail: the process is as good as dead.
    From(usize, Effect),
}

/// Whether the request that fails first has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    Done,
}

#[derive(Clone, Debug, Default)]
pub struct Simulated(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<String, Bytes>,
    fault: Fault,
    requests: Vec<(&'static str, String)>,
    /// The state of the numbers that delay requests; zero for none.
    delays: u64,
    latency: Duration,
    /// The request that waits, by its kind and how its name begins.
    held: Option<(&'static str, String, Arc<Held>)>,
}

/// A request that waits until it is let go.
#[derive(Debug, Default)]
pub struct Held {
    pub reached: Notify,
    pub go: Notify,
}

impl Simulated {
    pub fn bucket(&self) -> Bucket {
        Bucket::over(Arc::new(self.clone()), "simulated")
    }

    pub fn set_fault(&self, fault: Fault) {
        self.0.lock().unwrap().fault = fault;
    }

    /// Delays every request and every answer by chance: mostly little, sometimes for long.
    pub fn set_delays(&self, seed: u64) {
        self.0.lock().unwrap().delays = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Has every request take this long, by the clock of the runtime.
    pub fn set_latency(&self, latency: Duration) {
        self.0.lock().unwrap().latency = latency;
    }

    /// Holds the next request of that kind whose name begins like this.
    pub fn hold(&self, kind: &'static str, name: &str) -> Arc<Held> {
        let held = Arc::<Held>::default();
        self.0.lock().unwrap().held = Some((kind, name.to_owned(), held.clone()));
        held
    }

    async fn wait_if_held(&self, kind: &str, name: &str) {
        let is_it = |held: &mut (&'static str, String, Arc<Held>)| held.0 == kind && name.starts_with(&held.1);
        let held = self.0.lock().unwrap().held.take_if(is_it);
        if let Some((_, _, held)) = held {
            held.reached.notify_one();
            held.go.notified().await;
        }
    }

    async fn delay(&self) {
        let latency = self.0.lock().unwrap().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency / 2).await;
        }
        let turns = {
            let mut inner = self.0.lock().unwrap();
            if inner.delays == 0 {
                return;
            }
            for shift in [13i32, -7, 17] {
                let shifted = if shift > 0 { inner.delays << shift } else { inner.delays >> -shift };
                inner.delays ^= shifted;
            }
            match inner.delays % 40 {
                0 => 300,
                1..4 => 40,
                few => few % 4,
            }
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// How many requests were made.
    pub fn requests(&self) -> usize {
        self.0.lock().unwrap().requests.len()
    }

    /// The requests since then.
    pub fn requests_since(&self, since: usize) -> Vec<(&'static str, String)> {
        self.0.lock().unwrap().requests[since..].to_vec()
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().objects.keys().cloned().collect()
    }

    pub fn remove(&self, name: &str) {
        self.0.lock().unwrap().objects.remove(name).unwrap();
    }

    pub fn insert(&self, name: &str, bytes: Vec<u8>) {
        self.0.lock().unwrap().objects.insert(name.to_owned(), bytes.into());
    }

    pub fn alter(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.0.lock().unwrap();
        let object = inner.objects.get_mut(name).unwrap();
        let mut bytes = object.to_vec();
        change(&mut bytes);
        *object = bytes.into();
    }

    /// Counts a request, carries it out unless it fails without effect, and answers.
    fn request<T>(
        &self,
        kind: &'static str,
        name: &str,
        work: impl FnOnce(&mut BTreeMap<String, Bytes>) -> T,
    ) -> Result<T> {
        let mut inner = self.0.lock().unwrap();
        let number = inner.requests.len() + 1;
        inner.requests.push((kind, name.to_owned()));
        let failed = match inner.fault {
            Fault::Once(at, effect) if at == number => Some(effect),
            Fault::From(at, effect) if at == number => Some(effect),
            Fault::From(at, _) if at < number => Some(Effect::Nothing),
            _ => None,
        };
        let away = || Error::new(ErrorKind::StoreUnavailable, format!("request {number} failed: {kind} {name}"));
        match failed {
            Some(Effect::Nothing) => Err(away()),
            Some(Effect::Done) => {
                work(&mut inner.objects);
                Err(away())
            }
            None => Ok(work(&mut inner.objects)),
        }
    }
}

fn tag(bytes: &[u8]) -> Tag {
    Tag { entity: Some(Hash::of(bytes).to_string()), version: None }
}

#[async_trait]
impl Objects for Simulated {
    async fn put(&self, name: &str, bytes: Bytes, write: Write) -> Result<Put> {
        self.delay().await;
        let answer = self.request("PUT", name, |objects| {
            if write == Write::New && objects.contains_key(name) {
                return Put::Exists;
            }
            objects.insert(name.to_owned(), bytes);
            Put::Done
        });
        self.delay().await;
        answer
    }

    async fn put_over(&self, name: &str, bytes: Bytes, expected: &Tag) -> Result<Put> {
        self.delay().await;
        let answer = self.request("PUT", name, |objects| {
            if objects.get(name).map(|object| tag(object)).as_ref() != Some(expected) {
                return Put::Exists;
            }
            objects.insert(name.to_owned(), bytes);
            Put::Done
        });
        self.delay().await;
        answer
    }

    async fn get_tagged(&self, name: &str) -> Result<Option<(Bytes, Tag)>> {
        self.delay().await;
        let answer = self.request("GET", name, |objects| objects.get(name).map(|object| (object.clone(), tag(object))));
        self.delay().await;
        answer
    }

    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        self.delay().await;
        let answer = self.request("GET", name, |objects| {
            let object = objects.get(name)?;
            let range = range.unwrap_or(0..u64::MAX);
            let end = (range.end as usize).min(object.len());
            Some(object.slice((range.start as usize).min(end)..end))
        });
        self.delay().await;
        answer
    }

    async fn stat(&self, name: &str) -> Result<Option<Stat>> {
        self.delay().await;
        let answer = self.request("HEAD", name, |objects| {
            objects.get(name).map(|object| Stat { size: object.len() as u64, modified: Timestamp(0) })
        });
        self.delay().await;
        answer
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.delay().await;
        let answer = self.request("DELETE", name, |objects| drop(objects.remove(name)));
        self.delay().await;
        answer
    }

    async fn delete_all(&self, names: &[String]) -> Result<()> {
        self.delay().await;
        let answer = self.request("DELETES", &names.join(" "), |objects| {
            for name in names {
                objects.remove(name);
            }
        });
        self.delay().await;
        answer
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>> {
        self.delay().await;
        self.wait_if_held("LIST", prefix).await;
        let answer = self.request("LIST", prefix, |objects| {
            let inside = |name: &str| prefix.is_empty() || name.starts_with(&format!("{prefix}/"));
            let all =
                objects.iter().filter(|(name, _)| inside(name) && after.is_none_or(|after| name.as_str() > after));
            let listed = |(name, object): (&String, &Bytes)| Listed {
                name: name.clone(),
                size: object.len() as u64,
                modified: Timestamp(0),
                tag: Some(tag(object)),
            };
            all.take(limit).map(listed).collect()
        });
        self.delay().await;
        answer
    }
}
