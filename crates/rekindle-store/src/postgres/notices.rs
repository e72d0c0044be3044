//! Notices of the server: a connection of its own that listens, and is made again when it is lost.
//! Where listening is impossible, as through a pooler or on a replica, time passing is the notice.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use rekindle_core::queue::{Notice, Notices};
use rekindle_core::{Namespace, Result, SessionId, SessionKey};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};

use super::Inner;
use super::failure::{database_error, unanswered};

/// Notices that may wait for a slow listener before it is told to look at everything.
const WAITING: usize = 1_024;
/// How often there is something to look at where listening is impossible.
const TICK: Duration = Duration::from_secs(1);
/// After how many of those listening is tried again.
const TICKS: u32 = 60;
/// How long a first notice of our own may take to come back.
const ECHO: Duration = Duration::from_secs(3);
/// How often a quiet connection is tried.
const TRIED_EVERY: Duration = Duration::from_secs(30);
const SHORTEST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A task that ends with whoever needs it.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What arrives from a server.
#[derive(Debug)]
pub(super) struct PostgresNotices {
    arriving: broadcast::Receiver<Notice>,
    _task: Task,
}

impl PostgresNotices {
    /// Listens; an error if the server cannot be reached.
    pub(super) async fn open(store: Arc<Inner>) -> Result<Self> {
        let (sender, arriving) = broadcast::channel(WAITING);
        let (first, answer) = oneshot::channel();
        let task = Task(tokio::spawn(listen(store.clone(), sender, first)));
        answer.await.unwrap_or_else(|_| Err(unanswered(&store.settings.shown)))?;
        Ok(Self { arriving, _task: task })
    }
}

#[async_trait]
impl Notices for PostgresNotices {
    async fn next(&mut self) -> Notice {
        match self.arriving.recv().await {
            Ok(notice) => notice,
            Err(broadcast::error::RecvError::Lagged(_)) => Notice::Anything,
            Err(broadcast::error::RecvError::Closed) => {
                tokio::time::sleep(TICK).await;
                Notice::Anything
            }
        }
    }
}

/// Listens for ever; `first` is told how the first attempt went.
async fn listen(store: Arc<Inner>, sender: broadcast::Sender<Notice>, first: oneshot::Sender<Result<()>>) {
    let (mut first, mut delay) = (Some(first), SHORTEST_DELAY);
    loop {
        match Line::open(&store).await {
            Ok(line) => {
                delay = SHORTEST_DELAY;
                match first.take() {
                    // Whoever asked may have gone; then this task is about to end.
                    Some(first) => drop(first.send(Ok(()))),
                    None => tell(&sender, Notice::Anything),
                }
                line.serve(&sender).await;
                tell(&sender, Notice::Anything);
            }
            Err(error) => {
                if let Some(first) = first.take() {
                    let _ = first.send(Err(error));
                    return;
                }
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
}

fn tell(sender: &broadcast::Sender<Notice>, notice: Notice) {
    // That nobody listens any more is no failure.
    let _ = sender.send(notice);
}

/// A connection that listens.
struct Line {
    client: Client,
    payloads: mpsc::Receiver<String>,
    hears: bool,
    _driver: Task,
}

impl Line {
    async fn open(store: &Inner) -> Result<Self> {
        let settings = &store.settings;
        let connecting = tokio::time::timeout(settings.timeout, settings.config.connect(store.tls.clone()));
        let (client, mut connection) = match connecting.await {
            Ok(connected) => connected.map_err(|error| database_error(&settings.shown, error))?,
            Err(_) => return Err(unanswered(&settings.shown)),
        };
        let (sender, payloads) = mpsc::channel(WAITING);
        let driver = Task(tokio::spawn(async move {
            let mut messages = stream::poll_fn(|context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message
                    && sender.send(notification.payload().to_owned()).await.is_err()
                {
                    return;
                }
            }
        }));
        let mut line = Self { client, payloads, hears: false, _driver: driver };
        line.hears = tokio::time::timeout(ECHO, line.hears_itself(&store.channel)).await.unwrap_or(false);
        Ok(line)
    }

    /// Whether a notice that is sent arrives. A pooler takes the command and keeps the notices.
    async fn hears_itself(&mut self, channel: &str) -> bool {
        let quoted = channel.replace('"', "\"\"");
        if self.client.batch_execute(&format!("LISTEN \"{quoted}\"")).await.is_err() {
            return false;
        }
        let sql = "SELECT pg_notify($1, 'echo')::text";
        if self.client.query_typed(sql, &[(&channel, Type::TEXT)]).await.is_err() {
            return false;
        }
        self.payloads.recv().await.is_some()
    }

    /// Passes on what arrives until the connection is lost.
    async fn serve(mut self, sender: &broadcast::Sender<Notice>) {
        if !self.hears {
            drop(self);
            return tick(sender).await;
        }
        loop {
            match tokio::time::timeout(TRIED_EVERY, self.payloads.recv()).await {
                Ok(Some(payload)) => notices(&payload).into_iter().for_each(|notice| tell(sender, notice)),
                Ok(None) => return,
                Err(_) => {
                    let tried = tokio::time::timeout(ECHO, self.client.simple_query("SELECT 1")).await;
                    if !matches!(tried, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

/// Lets time pass in place of notices, until it is worth another attempt.
async fn tick(sender: &broadcast::Sender<Notice>) {
    for _ in 0..TICKS {
        tokio::time::sleep(TICK).await;
        tell(sender, Notice::Anything);
    }
}

/// What a payload means; nothing if a newer program sent it.
fn notices(payload: &str) -> Vec<Notice> {
    let (kind, rest) = payload.split_once(' ').unwrap_or((payload, ""));
    let inbox = || session(rest).map(Notice::Inbox);
    match kind {
        "ready" => vec![Notice::Ready],
        "inbox" => inbox().into_iter().collect(),
        "job" => inbox().into_iter().chain([Notice::Ready]).collect(),
        _ => Vec::new(),
    }
}

fn session(text: &str) -> Option<SessionKey> {
    let (namespace, id): (String, String) = serde_json::from_str(text).ok()?;
    Some(SessionKey::new(Namespace::new(namespace).ok()?, SessionId::new(id).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_of_any_kind_are_read() {
        let key = SessionKey::new(Namespace::new("n\"s").unwrap(), SessionId::new("ses 🦀").unwrap());
        let text = serde_json::to_string(&(key.namespace.as_str(), key.id.as_str())).unwrap();
        assert_eq!(notices("ready"), [Notice::Ready]);
        assert_eq!(notices(&format!("inbox {text}")), [Notice::Inbox(key.clone())]);
        assert_eq!(notices(&format!("job {text}")), [Notice::Inbox(key), Notice::Ready]);
        for odd in ["", "echo", "newer thing", "inbox", "inbox [", "inbox [\"\",\"\"]"] {
            assert!(notices(odd).is_empty(), "{odd}");
        }
    }

    #[test]
    fn fuzzed_payloads() {
        let seeds = ["ready", r#"inbox ["n","a"]"#, r#"job ["n","a"]"#];
        rekindle_fuzz::fuzz!("postgres-notice").seeds(seeds).text(|text| !notices(text).is_empty());
    }
}
