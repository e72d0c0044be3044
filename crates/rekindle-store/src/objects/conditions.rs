//! Trying out a service: the store is safe only where conditional writes are. A service that accepts the
//! condition and ignores it would let two writers of one session both succeed, so it is refused before
//! anything is written.
//!
//! ```text
//! conditions/<hash of the service>   this service was tried out
//! probe/<nonce>                      what is written to find out; removed afterwards
//! ```
//!
//! The marker names the service: a bucket whose objects were copied elsewhere is tried out there anew.

use bytes::Bytes;
use rekindle_core::{Error, ErrorKind, Hash, Result};

use super::backend::{Put, Tag, Write};
use super::bucket::Bucket;
use super::layout::{PROBE, hex};
use crate::system::system_ids;

/// Writing an object only if there is none.
const CREATE: &str = "`If-None-Match: *` (create an object only if there is none)";
/// Writing over one version of an object.
const REPLACE: &str = "`If-Match` (replace only the version that was read)";

impl Bucket {
    /// Makes sure that conditional writes can be relied on: by the marker of this service, or by trying them
    /// out. Costs one read in a process, and nothing where conditions hold by construction.
    pub(super) async fn rely_on_conditions(&self) -> Result<()> {
        let Some(service) = self.objects.untried() else { return Ok(()) };
        let tried = self.tried.get_or_try_init(|| async {
            if self.objects.get(&marker(&service), None).await?.is_some() {
                return Ok(());
            }
            self.try_conditions().await
        });
        tried.await.map(drop)
    }

    /// Tries out conditional writes, whatever is known of the service; `Unsupported` if it ignores a condition, with the
    /// name of the service and of the condition. Writes a few small objects and removes them.
    pub async fn try_conditions(&self) -> Result<()> {
        let Some(service) = self.objects.untried() else { return Ok(()) };
        let name = format!("{PROBE}/{}", hex(&system_ids()?.nonce()));
        let ignored = self.ignored(&name).await;
        // What stays behind is tiny, and garbage collection finds it.
        let _ = self.objects.delete(&name).await;
        let ignored = ignored?;
        if ignored.is_empty() {
            let text = format!("conditional writes were tried out at {service}\n");
            return self.objects.put(&marker(&service), text.into(), Write::Replace).await.map(drop);
        }
        // Another process must not rely on an older answer.
        self.objects.delete(&marker(&service)).await?;
        let message = format!("{service} ignores {}: {}", ignored.join(" and "), self.shown());
        Err(Error::new(ErrorKind::Unsupported, message).hint(
            "two processes could own one session there; use a service with conditional writes, e.g. Amazon S3, \
             Cloudflare R2, a current MinIO or Ceph",
        ))
    }

    /// The conditions that the service ignores. Judged by what is there afterwards as much as by answers: the
    /// answer to a write that was repeated by the client may be about itself.
    async fn ignored(&self, name: &str) -> Result<Vec<&'static str>> {
        let [first, second, third, fourth] = ["first", "second", "third", "fourth"].map(Bytes::from);
        self.objects.put(name, first.clone(), Write::New).await?;
        let (found, stale) = self.written(name).await?;
        if found != first {
            return Err(self.does_not_show(name));
        }
        let mut ignored = Vec::new();
        let answer = self.objects.put(name, second, Write::New).await?;
        let (found, current) = self.written(name).await?;
        if answer == Put::Done || found != first {
            ignored.push(CREATE);
        }
        self.objects.put_over(name, third.clone(), &current).await?;
        let (found, _) = self.written(name).await?;
        if found != third {
            return Err(self.does_not_show(name));
        }
        let answer = self.objects.put_over(name, fourth, &stale).await?;
        let (found, _) = self.written(name).await?;
        if answer == Put::Done || found != third {
            ignored.push(REPLACE);
        }
        Ok(ignored)
    }

    async fn written(&self, name: &str) -> Result<(Bytes, Tag)> {
        self.objects.get_tagged(name).await?.ok_or_else(|| self.does_not_show(name))
    }

    fn does_not_show(&self, name: &str) -> Error {
        let message = format!("{} does not show what was just written to `{name}`", self.shown());
        Error::new(ErrorKind::Unsupported, message).hint("use a service that shows every write at once")
    }
}

/// The marker of a service that was tried out.
fn marker(service: &str) -> String {
    let hash = Hash::of(service.as_bytes()).to_string();
    format!("conditions/{}", &hash[..hash.len().min(16)])
}
