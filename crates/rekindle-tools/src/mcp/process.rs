//! A server that is a program: what it says on its standard error, and how it ends.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::process::{Group, ended};

/// How many lines of its standard error are kept, and how long they may be.
const LINES: usize = 20;
const LINE_BYTES: u64 = 1 << 10;

/// How long a server has to end by itself, first after the end of its input, then after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(2);

/// How long a server that broke off is waited for, to tell how it ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A server's process. It is ended when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    stop: CancellationToken,
    said: Said,
    ended: Ended,
    watch: Mutex<Option<JoinHandle<()>>>,
    _stop_when_dropped: DropGuard,
}

type Said = Arc<Mutex<VecDeque<String>>>;
type Ended = Arc<Mutex<Option<ExitStatus>>>;

impl Process {
    pub(super) fn watch(mut child: Child, group: Group) -> Self {
        let stop = CancellationToken::new();
        let (said, ended) = (Said::default(), Ended::default());
        let listening = child.stderr.take().map(|stderr| tokio::spawn(listen(stderr, Arc::clone(&said))));
        let watch = tokio::spawn(supervise(child, group, stop.clone(), Arc::clone(&ended), listening));
        let _stop_when_dropped = stop.clone().drop_guard();
        Self { stop, said, ended, watch: Mutex::new(Some(watch)), _stop_when_dropped }
    }

    /// Ends it, if it does not end by itself, and waits for that.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watch) = watch {
            let _ = watch.await;
        }
    }

    /// How it ended and what it said last. Waits a moment for one that is about to end.
    pub(super) async fn last_words(&self) -> String {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut watch) = watch
            && tokio::time::timeout(LAST_WORDS, &mut watch).await.is_err()
        {
            *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        }
        let status = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        let status = status.map(|status| format!("; it {}", ended(status))).unwrap_or_default();
        let said = if said.is_empty() { said } else { format!("; it said last: {said}") };
        format!("{status}{said}")
    }
}

async fn supervise(
    mut child: Child,
    mut group: Group,
    stop: CancellationToken,
    ended: Ended,
    listening: Option<JoinHandle<()>>,
) {
    let status = tokio::select! {
        status = child.wait() => status,
        // Whoever stops it has closed its input before.
        () = stop.cancelled() => match tokio::time::timeout(GRACE, child.wait()).await {
            Ok(status) => status,
            Err(_) => terminate(&mut child, &mut group).await,
        },
        // Somebody killed the guard: a server without one is none.
        () = group.guard_ended() => terminate(&mut child, &mut group).await,
    };
    group.end(&mut child).await;
    if let Some(listening) = listening {
        let _ = tokio::time::timeout(LAST_WORDS / 2, listening).await;
    }
    *ended.lock().unwrap_or_else(PoisonError::into_inner) = status.ok();
}

/// Asks the processes to end, and ends them after a moment.
async fn terminate(child: &mut Child, group: &mut Group) -> std::io::Result<ExitStatus> {
    group.terminate();
    if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
        return status;
    }
    group.end(child).await;
    child.wait().await
}

/// Keeps the last lines of what the server says.
async fn listen(stderr: ChildStderr, said: Said) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    // A line that is too long goes on as the next one.
    while let Ok(1..) = (&mut stderr).take(LINE_BYTES).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_back(text);
        if said.len() > LINES {
            said.pop_front();
        }
    }
}
