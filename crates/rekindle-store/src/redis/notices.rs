//! Listening for what happens in a store.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use redis::Client;
use redis::aio::{PubSubSink, PubSubStream};
use rekindle_core::queue::{Notice, Notices};
use rekindle_core::{Error, ErrorKind, Result, SessionKey};
use tokio::time::{sleep, timeout};

use super::failure::server_error;
use super::link::Link;

/// After so long without a word the server is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(15);
/// How long to wait before connecting anew.
const PAUSE: Duration = Duration::from_millis(500);

/// Notices of a store. In a cluster every server passes them on.
pub(super) struct Listener {
    client: Client,
    channel: String,
    shown: String,
    patience: Duration,
    line: Option<(PubSubSink, PubSubStream)>,
}

impl Listener {
    /// Begins to listen.
    pub(super) async fn new(link: &Link) -> Result<Self> {
        let mut listener = Self {
            client: link.client()?,
            channel: link.keys.channel(),
            shown: link.config.shown.clone(),
            patience: link.config.timeout,
            line: None,
        };
        listener.connect().await?;
        Ok(listener)
    }

    async fn connect(&mut self) -> Result<()> {
        let subscribed = async {
            let (mut sink, stream) = self.client.get_async_pubsub().await?.split();
            sink.subscribe(&self.channel).await?;
            Ok((sink, stream))
        };
        let line = timeout(self.patience, subscribed).await.map_err(|_| {
            let message = format!("the server did not answer in time: {}", self.shown);
            Error::new(ErrorKind::StoreUnavailable, message).during("listen")
        })?;
        self.line = Some(line.map_err(|error| server_error(&self.shown, error).during("listen"))?);
        Ok(())
    }

    async fn is_there(&mut self) -> bool {
        let Some((sink, _)) = &mut self.line else { return false };
        timeout(self.patience, sink.ping::<redis::Value>()).await.is_ok_and(|answer| answer.is_ok())
    }
}

#[async_trait]
impl Notices for Listener {
    async fn next(&mut self) -> Notice {
        loop {
            let Some((_, stream)) = &mut self.line else {
                match self.connect().await {
                    // Whatever was said in between was not heard.
                    Ok(()) => return Notice::Anything,
                    Err(_) => sleep(PAUSE).await,
                }
                continue;
            };
            match timeout(SILENCE, stream.next()).await {
                Ok(Some(message)) => return notice(message.get_payload_bytes()),
                Ok(None) => self.line = None,
                Err(_) => {
                    if !self.is_there().await {
                        self.line = None;
                    }
                }
            }
        }
    }
}

/// What a message says. Anybody may send one: what is not understood may mean anything.
fn notice(payload: &[u8]) -> Notice {
    if payload == b"r" {
        return Notice::Ready;
    }
    let inbox = payload.strip_prefix(b"i").and_then(|name| std::str::from_utf8(name).ok());
    let parts = inbox.and_then(|name| name.split_once('\0'));
    let key = parts.and_then(|(namespace, id)| Some(SessionKey::new(namespace.parse().ok()?, id.parse().ok()?)));
    key.map_or(Notice::Anything, Notice::Inbox)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_understood() {
        assert_eq!(notice(b"r"), Notice::Ready);
        let key = SessionKey::new("a/b".parse().unwrap(), "c d".parse().unwrap());
        assert_eq!(notice(b"ia/b\0c d"), Notice::Inbox(key));
        for payload in [&b""[..], b"i", b"x", b"i\0", b"\xff\xff"] {
            assert_eq!(notice(payload), Notice::Anything);
        }
    }
}
