//! The writer of one branch: ordered commits in one of three durability modes.
//!
//! A writer owns the head of its branch (under a lease), so it can number, chain and encode a
//! batch before the batch is on disk. What is not written yet stands in a bounded queue; the
//! durable watermark says how far the disk has come; [`BranchWriter::flush`] is the barrier.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rekindle_core::codec::Frame;
use rekindle_core::record::Durability;
use rekindle_core::{Append, Condition, Error, ErrorKind, Head, Journal, Record, Result, Retry, Seq, Target};
use tokio::sync::{Notify, watch};

/// The time after which a write that failed is not tried again here.
const AGAIN_WITHIN: Duration = Duration::from_secs(2);

/// How a writer behaves.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    durability: Durability,
    queue_bytes: usize,
    queue_batches: usize,
    attempts: u32,
}

impl WriterOptions {
    /// In that mode, with a queue of 8 MiB or 1,000 batches, and three attempts at each write.
    pub fn new(durability: Durability) -> Self {
        Self { durability, queue_bytes: 8 << 20, queue_batches: 1_000, attempts: 3 }
    }

    /// A queue of at most so many bytes and batches. A commit that finds it full waits.
    #[must_use]
    pub fn with_queue(mut self, bytes: usize, batches: usize) -> Self {
        (self.queue_bytes, self.queue_batches) = (bytes.max(1), batches.max(1));
        self
    }

    /// How often a write is tried when the store says that trying again may help.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }
}

/// Commits batches to one branch.
///
/// * `sync`: a commit returns after it is on disk.
/// * `async`: a commit returns at once; the queue is written in order, batches that wait
///   together in one append.
/// * `exit`: nothing is written before [`BranchWriter::flush`], unless the queue is full.
///
/// An error stops the writer: nothing behind the failed batch is written, and every later
/// commit and flush returns that error. What was acknowledged by a flush stays acknowledged.
#[derive(Debug)]
pub struct BranchWriter {
    shared: Arc<Shared>,
    options: WriterOptions,
    task: Option<tokio::task::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    journal: Journal,
    queue: Mutex<Queue>,
    /// There is something to write, or the writer closes.
    work: Notify,
    durable: watch::Sender<Progress>,
    recent: Arc<Mutex<Recent>>,
    /// The error that stopped the writer.
    failure: Mutex<Option<Error>>,
    attempts: u32,
}

#[derive(Debug)]
struct Queue {
    target: Target,
    waiting: VecDeque<Append>,
    bytes: usize,
    /// Everything up to here is to be written; the rest waits for a flush.
    wanted: Seq,
    closing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    head: Head,
    failed: bool,
}

impl BranchWriter {
    /// A writer at `target`, which the caller has the lease of. Must be called inside a Tokio
    /// runtime.
    pub fn new(journal: Journal, target: Target, options: WriterOptions) -> Self {
        let (durable, _) = watch::channel(Progress { head: target.expected, failed: false });
        let queue = Queue { wanted: target.expected.seq, target, waiting: VecDeque::new(), bytes: 0, closing: false };
        let shared = Arc::new(Shared {
            journal,
            queue: Mutex::new(queue),
            work: Notify::new(),
            durable,
            recent: Arc::default(),
            failure: Mutex::new(None),
            attempts: options.attempts,
        });
        let task = (options.durability != Durability::Sync).then(|| tokio::spawn(Arc::clone(&shared).run()));
        Self { shared, options, task }
    }

    /// Commits a batch and returns where it ends. When that is on disk depends on the mode.
    pub async fn commit(&mut self, records: &[Record]) -> Result<Head> {
        self.make_room().await?;
        let head = self.push(records)?;
        match self.options.durability {
            Durability::Sync => self.shared.write_wanted(1).await,
            Durability::Async => self.shared.work.notify_one(),
            Durability::Exit => {}
        }
        self.shared.check()?;
        Ok(head)
    }

    /// Commits a batch that depends on another branch of the session: on disk when it returns, in every
    /// mode. `Overtaken` if the condition does not hold: then nothing was committed, and the writer goes
    /// on as before.
    pub async fn commit_if(&mut self, records: &[Record], condition: Condition) -> Result<Head> {
        let before = self.flush().await?;
        let append = {
            let mut queue = self.shared.queue();
            let append = self.shared.journal.prepare(&queue.target, records)?;
            let append = Append { condition: Some(condition), ..append };
            queue.target.expected = append.head();
            queue.bytes += append.frames.iter().map(|frame| frame.stored_len()).sum::<usize>();
            // Not wanted yet, so that nothing but this writes it. If this is cancelled it is still there:
            // the next flush repeats it, which the store recognises.
            queue.waiting.push_back(append.clone());
            append
        };
        match self.shared.append_with_retries(&append).await {
            Ok(()) => self.shared.written(1, append.head()),
            Err(error) if matches!(error.kind(), ErrorKind::Overtaken { .. }) => {
                self.shared.withdraw(before);
                return Err(error);
            }
            Err(error) => self.shared.fail(error),
        }
        self.shared.check()?;
        Ok(append.head())
    }

    /// The barrier: returns once everything committed so far is on disk.
    pub async fn flush(&mut self) -> Result<Head> {
        let target = {
            let mut queue = self.shared.queue();
            queue.wanted = queue.target.expected.seq;
            queue.wanted
        };
        self.write_through(target).await
    }

    /// The durable watermark: everything up to here is on disk.
    pub fn durable(&self) -> Head {
        self.shared.durable.borrow().head
    }

    /// The durable watermark as something that can be waited for.
    pub fn watermark(&self) -> Watermark {
        Watermark { progress: self.shared.durable.subscribe(), recent: Arc::clone(&self.shared.recent) }
    }

    /// The end of what was committed, on disk or not.
    pub fn head(&self) -> Head {
        self.shared.queue().target.expected
    }

    /// How many batches and bytes are not on disk yet.
    pub fn backlog(&self) -> (usize, usize) {
        let queue = self.shared.queue();
        (queue.waiting.len(), queue.bytes)
    }

    /// After a failure: looks how far the store really came, and goes on from there. What stands
    /// in the queue is kept over failures, so nothing committed is lost if the cause has passed.
    pub async fn retry(&mut self) -> Result<()> {
        if !self.shared.durable.borrow().failed {
            return Ok(());
        }
        if let Some(task) = self.task.take() {
            // A failed writer's task ends by itself; until it has, its end would fail us again.
            let _ = task.await;
        }
        let (session, branch) = {
            let queue = self.shared.queue();
            (queue.target.session.clone(), queue.target.branch.clone())
        };
        let info = self.shared.journal.store().open(&session).await?;
        self.shared.resume_behind(info.branch(&branch)?.head)?;
        self.task = self.options.durability.ne(&Durability::Sync).then(|| tokio::spawn(Arc::clone(&self.shared).run()));
        Ok(())
    }

    /// Flushes and ends the writer. Dropping it instead ends it without waiting: what was not
    /// flushed may be lost, as after a crash.
    pub async fn close(mut self) -> Result<Head> {
        let head = self.flush().await?;
        self.shared.queue().closing = true;
        self.shared.work.notify_one();
        if let Some(task) = self.task.take() {
            // The task ends by itself now; whether it was cancelled does not matter any more.
            let _ = task.await;
        }
        Ok(head)
    }

    /// Commits a batch to the queue alone, whether or not there is room and even after a failure.
    /// Never waits, so nothing can be lost on the way; [`BranchWriter::settle`] does the rest.
    pub fn enqueue(&mut self, records: &[Record]) -> Result<Head> {
        self.push(records)
    }

    /// Brings what is in the queue as far as the mode says: to disk (`sync`), on its way (`async`),
    /// or nowhere yet (`exit`); and waits until the queue has room again.
    pub async fn settle(&mut self) -> Result<()> {
        match self.options.durability {
            Durability::Sync => self.shared.write_wanted(1).await,
            Durability::Async => self.shared.work.notify_one(),
            Durability::Exit => {}
        }
        self.make_room().await
    }

    /// Starts writing everything committed so far, in every mode, without waiting for it.
    pub fn write_soon(&self) {
        let mut queue = self.shared.queue();
        queue.wanted = queue.target.expected.seq;
        drop(queue);
        self.shared.work.notify_one();
    }

    /// Whether it stopped after a failure.
    pub fn has_failed(&self) -> bool {
        self.shared.durable.borrow().failed
    }

    /// Whether more waits in the queue than it is meant to hold.
    pub fn is_full(&self) -> bool {
        let (batches, bytes) = self.backlog();
        bytes >= self.options.queue_bytes || batches >= self.options.queue_batches
    }

    fn push(&self, records: &[Record]) -> Result<Head> {
        let mut queue = self.shared.queue();
        let append = self.shared.journal.prepare(&queue.target, records)?;
        queue.target.expected = append.head();
        queue.bytes += append.frames.iter().map(|frame| frame.stored_len()).sum::<usize>();
        queue.waiting.push_back(append);
        if self.options.durability != Durability::Exit {
            queue.wanted = queue.target.expected.seq;
        }
        Ok(queue.target.expected)
    }

    /// Waits until the queue has room for another batch.
    async fn make_room(&self) -> Result<()> {
        loop {
            self.shared.check()?;
            let oldest = {
                let mut queue = self.shared.queue();
                if queue.bytes < self.options.queue_bytes && queue.waiting.len() < self.options.queue_batches {
                    return Ok(());
                }
                queue.wanted = queue.target.expected.seq;
                queue.waiting.front().map_or(Seq::ZERO, |append| append.head().seq)
            };
            self.write_through(oldest).await?;
        }
    }

    /// Has what is wanted written, by the task or, where there is none, here, and waits until
    /// the disk has come to `seq`.
    async fn write_through(&self, seq: Seq) -> Result<Head> {
        match self.task {
            Some(_) => self.shared.work.notify_one(),
            None => self.shared.write_wanted(1).await,
        }
        self.reach(seq).await
    }

    async fn reach(&self, seq: Seq) -> Result<Head> {
        let mut progress = self.shared.durable.subscribe();
        let reached = progress.wait_for(|progress| progress.failed || progress.head.seq >= seq).await;
        let reached = reached.map(|progress| *progress);
        self.shared.check()?;
        reached.map(|progress| progress.head).map_err(|_| Error::new(ErrorKind::Closed, "the writer is closed"))
    }
}

/// The durable watermark of a writer, as something that can be waited for.
#[derive(Clone, Debug)]
pub struct Watermark {
    progress: watch::Receiver<Progress>,
    recent: Arc<Mutex<Recent>>,
}

impl Watermark {
    /// How far the disk has come.
    pub fn head(&self) -> Head {
        self.progress.borrow().head
    }

    /// Waits until the disk has come further; nothing if the writer is gone.
    pub async fn moved(&mut self) -> Option<Head> {
        self.progress.changed().await.ok()?;
        Some(self.progress.borrow_and_update().head)
    }

    /// Returns true if the writer has ended.
    pub fn is_closed(&self) -> bool {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// The frames on disk from record `from` on, as they were written, so that nobody has to read them back;
    /// nothing if they are not all at hand.
    pub fn frames(&self, from: Seq) -> Option<Vec<Frame>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).from(from)
    }
}

/// The number and bytes of frames that a writer keeps at hand.
const RECENT_FRAMES: usize = 64;
const RECENT_BYTES: usize = 64 << 10;

/// The last frames that were written, without gaps.
#[derive(Debug, Default)]
struct Recent {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// The writer has ended.
    closed: bool,
}

impl Recent {
    fn push(&mut self, frame: Frame) {
        if self.frames.back().is_some_and(|last| last.last.next() != frame.first) {
            *self = Self::default();
        }
        self.bytes += frame.stored_len();
        self.frames.push_back(frame);
        while self.bytes > RECENT_BYTES || self.frames.len() > RECENT_FRAMES {
            let Some(oldest) = self.frames.pop_front() else { return };
            self.bytes -= oldest.stored_len();
        }
    }

    fn from(&self, from: Seq) -> Option<Vec<Frame>> {
        self.frames.front().filter(|oldest| oldest.first <= from)?;
        Some(self.frames.iter().filter(|frame| frame.last >= from).cloned().collect())
    }
}

impl Drop for BranchWriter {
    fn drop(&mut self) {
        self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// At most so many batches, and about so many bytes, are joined to one append.
const JOINED_BATCHES: usize = 256;
const JOINED_BYTES: usize = 4 << 20;

impl Shared {
    /// Writes what is wanted until the writer closes or fails.
    async fn run(self: Arc<Self>) {
        let _ended = Ended(&self);
        loop {
            self.write_wanted(JOINED_BATCHES).await;
            if self.queue().closing || self.durable.borrow().failed {
                return;
            }
            self.work.notified().await;
        }
    }

    /// Writes what is wanted, in order, joining at most `joined` batches to one append. A batch
    /// leaves the queue only when it is on disk: if this is cancelled, the next call repeats the
    /// write under way, which the store recognises, as long as nothing is joined to it.
    async fn write_wanted(&self, joined: usize) {
        while let Some((append, batches)) = self.next_append(joined) {
            if let Err(error) = self.append_with_retries(&append).await {
                self.fail(error);
                return;
            }
            self.written(batches, append.head());
        }
    }

    /// The first so many batches are on disk, up to `head`.
    fn written(&self, batches: usize, head: Head) {
        let mut queue = self.queue();
        self.take_written(&mut queue, batches);
        drop(queue);
        self.durable.send_modify(|progress| progress.head = head);
    }

    /// Takes the first batches, which are on disk, out of the queue, and keeps their frames at hand.
    fn take_written(&self, queue: &mut Queue, batches: usize) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let Queue { waiting, bytes, .. } = queue;
        for frame in waiting.drain(..batches).flat_map(|append| append.frames) {
            *bytes -= frame.stored_len();
            recent.push(frame);
        }
    }

    /// Takes the only batch of the queue back: it was refused, and the branch ends at `head`.
    fn withdraw(&self, head: Head) {
        let mut queue = self.queue();
        queue.waiting.clear();
        (queue.bytes, queue.target.expected) = (0, head);
    }

    /// The next append, and how many batches it holds.
    fn next_append(&self, joined: usize) -> Option<(Append, usize)> {
        let queue = self.queue();
        let wanted = queue.wanted;
        if self.durable.borrow().failed {
            return None;
        }
        let mut waiting = queue.waiting.iter().take_while(|append| append.head().seq <= wanted).take(joined);
        let mut append = waiting.next()?.clone();
        let (mut batches, mut bytes) = (1, 0);
        for next in waiting {
            bytes += next.frames.iter().map(|frame| frame.stored_len()).sum::<usize>();
            if bytes > JOINED_BYTES {
                break;
            }
            append.frames.extend(next.frames.iter().cloned());
            append.status = next.status.or(append.status);
            batches += 1;
        }
        Some((append, batches))
    }

    async fn append_with_retries(&self, append: &Append) -> Result<()> {
        let (began, mut attempt) = (Instant::now(), 1);
        loop {
            match self.journal.store().append(append).await {
                Ok(_) => return Ok(()),
                // A store that was asked for long has repeated its requests itself.
                Err(error) if attempt < self.attempts && may_pass(&error) && began.elapsed() < AGAIN_WITHIN => {
                    tokio::time::sleep(Duration::from_millis(5 << attempt.min(8))).await;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Clears the failure and drops what the store already has: the reply to it was lost.
    fn resume_behind(&self, head: Head) -> Result<()> {
        let mut queue = self.queue();
        let durable = self.durable.borrow().head;
        let written = match queue.waiting.iter().position(|append| append.head() == head) {
            Some(index) => index + 1,
            None if head == durable => 0,
            None => {
                let kind = ErrorKind::Conflict { expected: durable.seq, actual: head.seq };
                return Err(Error::new(kind, "somebody else wrote to the branch").on(&queue.target.session));
            }
        };
        self.take_written(&mut queue, written);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.durable.send_modify(|progress| *progress = Progress { head, failed: false });
        Ok(())
    }

    /// Stops the writer; the first error is the one that counts.
    fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.durable.send_modify(|progress| progress.failed = true);
    }

    /// The error that stopped the writer, if one did.
    fn check(&self) -> Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    // Every change under the lock is complete before anything can fail.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whatever ends the task, a panic in the store or the end of its runtime: whoever waits for it
/// must not wait for ever.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fail(Error::new(ErrorKind::Closed, "the writer's task has ended"));
    }
}

/// Whether the same write may succeed soon. Somebody else's lease will not go away soon enough.
fn may_pass(error: &Error) -> bool {
    error.retry() == Retry::Later && !matches!(error.kind(), ErrorKind::AlreadyRunning { .. })
}
