//! Appends that wait together travel together. A few are under way at any time; what comes in the
//! meantime is collected and goes in one statement, with one commit for all.
//!
//! It is a shortcut and nothing else: an append that was not carried out this way, for whatever
//! reason, is carried out alone, and there it is found out what stands against it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rekindle_core::{Append, SessionKey};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Inner;
use super::append::{self, Move};
use super::failure::unanswered;
use super::frames::FrameRows;

/// How many statements with appends are under way at once.
const UNDER_WAY: usize = 2;
/// The most appends and bytes of one statement.
const MOST_APPENDS: usize = 256;
const MOST_BYTES: usize = 16 << 20;
/// What is larger travels alone: nobody should wait for it.
const LARGE: usize = 1 << 20;

/// The appends of a store that are under way or wait.
#[derive(Debug, Default)]
pub(super) struct Group(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    waiting: VecDeque<Waiting>,
}

/// An append that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) moves: Move,
    pub(super) rows: Arc<FrameRows>,
    session: SessionKey,
    /// Whether it was carried out.
    reply: oneshot::Sender<bool>,
}

/// What an append is to do.
pub(super) enum Turn {
    /// It travels alone, and holds this until it has arrived.
    Alone(Option<UnderWay>),
    /// It was carried out together with others.
    Done,
}

/// An append that travels alone. When it has ended, what waits is sent.
pub(super) struct UnderWay(Arc<Inner>);

/// Sends what waits. If it is stopped, or never begins, those who wait are told to travel alone.
struct Sender(Option<Arc<Inner>>);

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a statement, if not too many are under way; otherwise the append waits.
    fn begin(&self, append: &Append, moves: Move, rows: &Arc<FrameRows>) -> Option<oneshot::Receiver<bool>> {
        let mut state = self.state();
        if state.under_way < UNDER_WAY {
            state.under_way += 1;
            return None;
        }
        let (reply, answer) = oneshot::channel();
        state.waiting.push_back(Waiting { moves, rows: Arc::clone(rows), session: append.session.clone(), reply });
        Some(answer)
    }

    /// What goes next, one append of each session; if nothing waits, there is a statement less.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut state = self.state();
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        let (mut sessions, mut bytes) = (HashSet::new(), 0);
        while let Some(waiting) = state.waiting.pop_front() {
            if waiting.reply.is_closed() {
                continue;
            }
            bytes += waiting.rows.bytes();
            if batch.len() >= MOST_APPENDS || (bytes > MOST_BYTES && !batch.is_empty()) {
                later.push_back(waiting);
                break;
            }
            match sessions.insert(waiting.session.clone()) {
                true => batch.push(waiting),
                false => later.push_back(waiting),
            }
        }
        later.append(&mut state.waiting);
        state.waiting = later;
        if batch.is_empty() {
            state.under_way -= 1;
            return None;
        }
        // Rows are locked in this order, so that two statements do not wait for each other.
        batch.sort_unstable_by_key(|waiting| waiting.moves.branch);
        Some(batch)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.group.state();
        match state.waiting.is_empty() {
            true => state.under_way -= 1,
            false => {
                drop(state);
                Sender(Some(Arc::clone(&self.0))).start();
            }
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Some(store) = self.0.take() else { return };
        let mut state = store.group.state();
        state.under_way -= 1;
        let given_up = std::mem::take(&mut state.waiting);
        drop(state);
        // Whoever waits finds that nobody answers.
        drop(given_up);
    }
}

impl Sender {
    fn start(self) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.send_what_waits());
        }
    }

    async fn send_what_waits(mut self) {
        while let Some(store) = &self.0 {
            // Those who were just answered may have something to send at once.
            tokio::task::yield_now().await;
            match store.group.next() {
                Some(batch) => send(store, batch).await,
                None => self.0 = None,
            }
        }
    }
}

/// What an append is to do: it may have to wait, and then may have been carried out.
pub(super) async fn take_turn(
    store: &Arc<Inner>,
    append: &Append,
    rows: &Arc<FrameRows>,
) -> rekindle_core::Result<Turn> {
    let known = store.branches.find(append);
    let Some(branch) = known.filter(|_| append::is_plain(append) && rows.bytes() <= LARGE) else {
        return Ok(Turn::Alone(None));
    };
    let Some(answer) = store.group.begin(append, Move::of(append, branch), rows) else {
        return Ok(Turn::Alone(Some(UnderWay(Arc::clone(store)))));
    };
    match tokio::time::timeout(store.settings.timeout, answer).await {
        Ok(Ok(true)) => Ok(Turn::Done),
        Ok(_) => Ok(Turn::Alone(None)),
        Err(_) => Err(unanswered(&store.settings.shown)),
    }
}

/// Sends a batch, and tells everybody whether theirs was carried out.
async fn send(store: &Arc<Inner>, batch: Vec<Waiting>) {
    let entries = &batch;
    let sent = store.run(store.settings.timeout, |connection| async move {
        append::move_heads(&store.scope(&connection), entries).await
    });
    // Why it failed is found out by each alone.
    let moved = sent.await.unwrap_or_default();
    for Waiting { moves, reply, .. } in batch {
        // A caller that no longer waits is nobody's business.
        let _ = reply.send(moved.contains(&moves.branch));
    }
}
