//! The thread that writes marks to one place, after the commits they are about and without making
//! them wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rekindle_core::values::Values;
use rekindle_core::{BranchId, Error, ErrorKind, Head, Result, Retry, SessionInfo, SessionKey, Store};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::place::{MarksIn, Stored, Trouble, look, note, replace};

/// The most sessions that may wait for their marks. More are left behind, which is harmless.
const MOST_PENDING: usize = 50_000;
/// The most marks that are remembered as they were written.
const MOST_KNOWN: usize = 2_000;
/// The thread rests this many times as long as it worked, so that it takes a twentieth of one core at most.
const REST: u32 = 19;
/// The shortest rest: commits that follow each other faster share a mark. The first one after a rest is
/// marked at once.
const SHORTEST_REST: Duration = Duration::from_millis(2);
/// How long it rests after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long an anchor may take to answer once the store was closed.
const AT_END: Duration = Duration::from_secs(3);
/// How long it waits for a store that only answers on the runtime of its callers.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is to be in the mark of a session.
#[derive(Debug, Default)]
struct Pending {
    heads: BTreeMap<BranchId, Head>,
    created: bool,
}

impl Pending {
    fn raise(&mut self, branch: &BranchId, head: Head) {
        match self.heads.get_mut(branch) {
            Some(known) if head.seq > known.seq => *known = head,
            Some(_) => {}
            None => {
                self.heads.insert(branch.clone(), head);
            }
        }
    }

    fn add(&mut self, later: &Self) {
        later.heads.iter().for_each(|(branch, head)| self.raise(branch, *head));
        self.created |= later.created;
    }
}

#[derive(Default)]
struct Queue {
    pending: HashMap<SessionKey, Pending>,
    flushes: Vec<oneshot::Sender<()>>,
    closing: bool,
    /// The thread waits for work and has to be woken. While it rests or writes it finds what was added by itself.
    idle: bool,
    /// Where calls of stores have to be made that are bound to a runtime.
    runtime: Option<Handle>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    woken: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands marks over to the thread; dropping it waits until they are written.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    task: Mutex<Option<Task>>,
    /// Whether the store can only be called on the runtime of its callers.
    bound: bool,
}

impl Keeper {
    pub fn new(store: Arc<dyn Store>, marks: &MarksIn, trouble: Trouble, bound: bool) -> Self {
        let (values, lag) = (marks.writing.clone(), marks.lag);
        let task = Task { store, values, lag, trouble, known: HashMap::new() };
        Self { shared: Arc::default(), thread: Mutex::default(), task: Mutex::new(Some(task)), bound }
    }

    /// Asks for the head of a branch to be marked: it was committed just now.
    pub fn raise(&self, session: &SessionKey, branch: &BranchId, head: Head) {
        self.hand_over(session, |pending| pending.raise(branch, head));
    }

    /// Asks for the heads of a session to be marked that was created just now.
    pub fn create(&self, session: &SessionKey, heads: BTreeMap<BranchId, Head>) {
        let created = Pending { heads, created: true };
        self.hand_over(session, |pending| pending.add(&created));
    }

    fn hand_over(&self, session: &SessionKey, add: impl FnOnce(&mut Pending)) {
        let mut queue = self.shared.lock();
        if self.bound {
            queue.runtime = Handle::try_current().ok().or(queue.runtime.take());
        }
        let full = queue.pending.len() >= MOST_PENDING;
        match queue.pending.get_mut(session) {
            Some(pending) => add(pending),
            None if full => return,
            None => add(queue.pending.entry(session.clone()).or_default()),
        }
        let wake = std::mem::take(&mut queue.idle);
        drop(queue);
        self.start();
        if wake {
            self.shared.woken.notify_one();
        }
    }

    /// Waits until everything handed over was tried once.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        {
            let mut queue = self.shared.lock();
            if queue.pending.is_empty() && self.is_idle() {
                return;
            }
            queue.flushes.push(done);
        }
        self.shared.woken.notify_one();
        let _ = wait.await;
    }

    /// Nothing was ever handed over.
    fn is_idle(&self) -> bool {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The thread begins with the first mark: commands that only read have none.
    fn start(&self) {
        let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let shared = self.shared.clone();
        // Without a thread there are no marks, and nothing else is amiss.
        let thread = std::thread::Builder::new().name("rekindle-marks".into()).spawn(move || task.serve(&shared)).ok();
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.woken.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic of that thread is no reason for another here.
        let _ = thread.map(JoinHandle::join);
    }
}

/// What the thread works with.
struct Task {
    store: Arc<dyn Store>,
    values: Arc<dyn Values>,
    lag: Duration,
    trouble: Trouble,
    /// Marks as this thread wrote them last.
    known: HashMap<SessionKey, Stored>,
}

impl Task {
    fn serve(mut self, shared: &Shared) {
        // Anchors may need timers and sockets.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        loop {
            let (work, flushes, closing, callers) = {
                let mut queue = shared.lock();
                while queue.pending.is_empty() && queue.flushes.is_empty() && !queue.closing {
                    queue.idle = true;
                    queue = shared.woken.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                queue.idle = false;
                let taken = std::mem::take(&mut queue.pending);
                (taken, std::mem::take(&mut queue.flushes), queue.closing, queue.runtime.clone())
            };
            let begun = Instant::now();
            let failed = runtime.block_on(async {
                tokio::select! {
                    failed = self.write_all(work, callers.as_ref()) => failed,
                    () = given_up(shared) => Vec::new(),
                }
            });
            if closing {
                return;
            }
            let rest =
                if failed.is_empty() { self.lag.max(SHORTEST_REST).max(begun.elapsed() * REST) } else { AFTER_FAILURE };
            put_back(shared, failed);
            drop(flushes);
            self.rest(shared, rest);
        }
    }

    /// Waits, unless somebody cannot.
    fn rest(&self, shared: &Shared, time: Duration) {
        let urgent = |queue: &mut Queue| queue.closing || !queue.flushes.is_empty();
        let queue = shared.lock();
        drop(shared.woken.wait_timeout_while(queue, time, |queue| !urgent(queue)));
    }

    /// Writes marks; those that could not be written, to be tried again.
    async fn write_all(
        &mut self,
        work: HashMap<SessionKey, Pending>,
        callers: Option<&Handle>,
    ) -> Vec<(SessionKey, Pending)> {
        let mut failed = Vec::new();
        let mut reachable = true;
        for (session, pending) in work {
            if !reachable {
                failed.push((session, pending));
                continue;
            }
            let written = self.write(&session, &pending, callers).await;
            note(&self.trouble, &written);
            if let Err(error) = written {
                // What cannot be opened, or is refused for good, is not marked.
                if error.retry() == Retry::Later {
                    reachable = false;
                    failed.push((session, pending));
                }
            }
        }
        failed
    }

    async fn write(&mut self, session: &SessionKey, pending: &Pending, callers: Option<&Handle>) -> Result<()> {
        let known = self.known.remove(session).filter(|_| !pending.created);
        let raised = known.and_then(|known| Some((known.mark.as_ref()?.raised(&pending.heads)?, known)));
        if let Some((next, known)) = raised {
            let (stored, done) = replace(&*self.values, session, &known, Some(next)).await?;
            if done {
                self.remember(session, stored);
                return Ok(());
            }
        }
        let open = || open(&self.store, session, callers);
        let looked = look(&*self.values, session, pending.created, open).await?;
        if let Some(stored) = looked {
            self.remember(session, stored);
        }
        Ok(())
    }

    fn remember(&mut self, session: &SessionKey, stored: Stored) {
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(session.clone(), stored);
    }
}

/// Ends a while after the store was closed: a place out of reach must not keep a process from ending.
async fn given_up(shared: &Shared) {
    while !shared.lock().closing {
        tokio::time::sleep(AT_END / 10).await;
    }
    tokio::time::sleep(AT_END).await;
}

fn put_back(shared: &Shared, failed: Vec<(SessionKey, Pending)>) {
    let mut queue = shared.lock();
    for (session, pending) in failed {
        // Nothing depends on the order: heads only go up.
        queue.pending.entry(session).or_default().add(&pending);
    }
}

async fn open(store: &Arc<dyn Store>, session: &SessionKey, callers: Option<&Handle>) -> Result<SessionInfo> {
    let Some(callers) = callers else { return store.open(session).await };
    let (store, key) = (store.clone(), session.clone());
    let opening = callers.spawn(async move { store.open(&key).await });
    // The runtime may be gone, or be the one that waits for this thread.
    match tokio::time::timeout(PATIENCE, opening).await {
        Ok(Ok(opened)) => opened,
        _ => Err(Error::new(ErrorKind::StoreUnavailable, "the store did not answer").on(session)),
    }
}
