//! What is alive in this process around a session: wake-ups for its run, and what its run says
//! that is not stored.

use std::sync::{Mutex, PoisonError};

use rekindle_core::BranchId;
use rekindle_store::Watermark;
use tokio::sync::{Notify, broadcast};

use crate::event::LiveEvent;

/// The events nobody took yet; a reader that falls further behind reads the journal instead.
const CAPACITY: usize = 1_024;

/// What is alive in this process around a session.
#[derive(Debug)]
pub(crate) struct Live {
    inbox: Notify,
    events: broadcast::Sender<LiveEvent>,
    watermark: Mutex<Option<(BranchId, Watermark)>>,
}

impl Default for Live {
    fn default() -> Self {
        let (events, _) = broadcast::channel(CAPACITY);
        Self { inbox: Notify::new(), events, watermark: Mutex::default() }
    }
}

impl Live {
    /// Something was put into the session's inbox.
    pub(crate) fn wake_inbox(&self) {
        self.inbox.notify_one();
    }

    pub(crate) async fn inbox_changed(&self) {
        self.inbox.notified().await;
    }

    /// Says something that is not stored; nobody may be listening.
    pub(crate) fn say(&self, event: impl FnOnce() -> LiveEvent) {
        if self.events.receiver_count() > 0 {
            let _ = self.events.send(event());
        }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<LiveEvent> {
        self.events.subscribe()
    }

    /// A run writes: how far it has come can be watched.
    pub(crate) fn begin(&self, branch: BranchId, watermark: Watermark) {
        *self.watermark.lock().unwrap_or_else(PoisonError::into_inner) = Some((branch, watermark));
    }

    /// How far the run of `branch` has come, if there is one.
    pub(crate) fn watermark(&self, branch: &BranchId) -> Option<Watermark> {
        let watermark = self.watermark.lock().unwrap_or_else(PoisonError::into_inner);
        watermark.as_ref().filter(|(of, _)| of == branch).map(|(_, watermark)| watermark.clone())
    }
}
