//! Events: one typed stream of everything a run does. What is stored has a position and comes
//! from the journal alone, so a late or reconnecting reader misses and repeats nothing; what is
//! not stored (pieces of an answer, progress) is told to whoever listens.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use rekindle_core::{
    BranchId, Entry, Error, Head, Position, Record, Result, Retry, RunId, Seq, SessionInfo, SessionKey, Timestamp,
};
use rekindle_store::Watermark;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, Live};
use crate::engine::Engine;
use crate::pace::Pace;

/// How many batches are read at once.
const PAGE: usize = 64;

/// Something a run did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
// Most events are records, so a box would only cost.
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// A record that is on disk.
    Recorded {
        /// Where it stands: how a reader that was cut off goes on.
        position: Position,
        /// When it was committed.
        at: Timestamp,
        /// What it says.
        record: Record,
    },
    /// Something that is not stored.
    Live(LiveEvent),
}

/// Something that is not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEvent {
    /// The run that says it.
    pub run: RunId,
    /// The last record that was committed before it was said.
    pub after: Seq,
    /// What it says.
    pub kind: LiveKind,
}

/// What a run says without storing it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LiveKind {
    /// More text of the answer under way.
    Text(String),
    /// More thought of the answer under way.
    Reasoning(String),
    /// What the model had said when the run before this one was cut off.
    PartialFound(String),
    /// A tool reports how far it is.
    Progress {
        /// The call.
        effect: String,
        /// How far.
        value: rekindle_core::Json,
    },
    /// The store failed and the run goes on without it.
    Degraded {
        /// What failed.
        error: String,
    },
    /// The store failed, and the run stands still and tries again until it is back.
    StoreAway {
        /// What failed.
        error: String,
    },
    /// The store is back, and has everything.
    StoreBack,
    /// Something worth knowing.
    Notice(String),
}

/// Reads the events of a session, from any position on.
pub struct Events {
    engine: Engine,
    session: SessionKey,
    /// What is left to read of the branches this one was forked from, oldest first, and of it.
    stretches: VecDeque<Stretch>,
    buffer: VecDeque<Event>,
    said: VecDeque<LiveEvent>,
    live: Receiver<LiveEvent>,
    watermark: Option<Watermark>,
    until: Option<RunId>,
    /// Fires when the run's task is over, even if it could not say so any more.
    over: Option<CancellationToken>,
    ended: bool,
    pace: Pace,
    /// The read under way. A caller that gives up leaves it here, and the next one goes on with it.
    reading: Option<Reading>,
    /// Kept, so that a run that begins later is heard too.
    alive: Arc<Live>,
}

/// A read of the journal under way.
struct Reading {
    /// Never locked by two: it makes the reader `Sync`, which the future alone is not.
    found: Mutex<BoxFuture<'static, Result<Found>>>,
    /// Whether the run was over when it began: then there is nothing behind what it finds.
    over: bool,
}

/// What a read found.
struct Found {
    entries: Vec<Entry>,
    /// The base of the branch, if there was nothing new.
    base: Option<Head>,
}

struct Stretch {
    branch: BranchId,
    next: Seq,
    /// The last record of it, unless it still grows.
    through: Option<Seq>,
}

impl Events {
    /// The events of a run that is about to begin.
    pub(crate) fn of_run(driver: &Driver, behind: Seq, over: CancellationToken) -> Self {
        let stretch = Stretch { branch: driver.branch().clone(), next: behind.next(), through: None };
        let events =
            Self::new(driver.engine(), driver.session(), VecDeque::from([stretch]), Some(driver.run().clone()));
        Self { over: Some(over), ..events }
    }

    /// Everything that happens behind `position`: first what is stored, then what is done. Ends
    /// never; drop it when enough was seen.
    pub async fn follow(engine: &Engine, session: &SessionKey, behind: &Position) -> Result<Self> {
        let info = engine.journal().open(session).await?;
        let stretches = stretches(&info, behind)?;
        Ok(Self::new(engine, session, stretches, None))
    }

    fn new(engine: &Engine, session: &SessionKey, stretches: VecDeque<Stretch>, until: Option<RunId>) -> Self {
        let alive = engine.live(session);
        Self {
            engine: engine.clone(),
            session: session.clone(),
            stretches,
            buffer: VecDeque::new(),
            said: VecDeque::new(),
            live: alive.listen(),
            watermark: None,
            until,
            over: None,
            ended: false,
            pace: engine.pace(),
            reading: None,
            alive,
        }
    }

    /// The next event. Nothing once the run it reads has ended.
    ///
    /// # Cancellation
    ///
    /// May be dropped at any time: no event is lost, and a read under way goes on where it was when this is called
    /// again. So it can stand in a `select!` beside a timer, however long the store takes to answer.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            self.listen();
            if let Some(event) = self.take() {
                return Ok(Some(event));
            }
            if self.ended {
                // Its last words may come behind the record of its end.
                let Some(over) = self.over.clone().filter(|over| !over.is_cancelled()) else { return Ok(None) };
                let said = tokio::select! {
                    biased;
                    said = self.live.recv() => said.ok(),
                    () = over.cancelled() => None,
                };
                self.said.extend(said.filter(|event| self.is_ours(event)));
                continue;
            }
            match self.take_written() {
                Some(true) => continue,
                Some(false) => {
                    let said = self.wait().await;
                    self.said.extend(said);
                    continue;
                }
                None => {}
            }
            let (over, found) = self.read().await;
            let more = match found.and_then(|found| self.take_in(found)) {
                // Whether the store is away for too long is for the run to say: its report does.
                Err(error) if self.over.is_some() && error.retry() == Retry::Later => {
                    if !over {
                        tokio::time::sleep(self.engine.poll()).await;
                        continue;
                    }
                    false
                }
                more => more?,
            };
            if more {
                self.pace.quicken();
            } else {
                // Over before the last look: there is no more.
                self.ended |= over;
                let said = if over { None } else { self.wait().await };
                self.said.extend(said);
            }
        }
    }

    /// Takes in what was said since.
    fn listen(&mut self) {
        loop {
            match self.live.try_recv() {
                Ok(event) if self.is_ours(&event) => self.said.push_back(event),
                // Who falls behind misses what is not stored, and nothing else.
                Ok(_) | Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn is_ours(&self, event: &LiveEvent) -> bool {
        self.until.as_ref().is_none_or(|run| *run == event.run)
    }

    /// What comes next of what is there: what was said stands behind the record it was said after.
    fn take(&mut self) -> Option<Event> {
        let said_first = match (self.said.front(), self.buffer.front()) {
            (Some(said), Some(Event::Recorded { position, .. })) => said.after < position.seq,
            (said, _) => said.is_some(),
        };
        if said_first {
            return self.said.pop_front().map(Event::Live);
        }
        let event = self.buffer.pop_front()?;
        self.note_end(&event);
        Some(event)
    }

    fn note_end(&mut self, event: &Event) {
        if let (Event::Recorded { record: Record::RunEnded(end), .. }, Some(run)) = (event, &self.until) {
            self.ended |= end.run == *run;
        }
    }

    /// Takes what the run of this process wrote from its writer's hands. Nothing if there is no such run, or it
    /// wrote too much since: then the journal is read. Whether there was any otherwise.
    fn take_written(&mut self) -> Option<bool> {
        let stretch = self.stretches.front_mut().filter(|_| self.reading.is_none())?;
        if stretch.through.is_some() {
            return None;
        }
        if self.watermark.is_none() {
            self.watermark = self.alive.watermark(&stretch.branch);
        }
        // What an ended run wrote may have been pruned since; whoever reads that run alone has it at hand all the same.
        let watermark = self.watermark.as_ref().filter(|writer| self.until.is_some() || !writer.is_closed())?;
        if watermark.head().seq < stretch.next {
            // The owner of the branch has written no more. Whether somebody else has, its end or a look tells.
            let runs = self.over.as_ref().is_some_and(|over| !over.is_cancelled());
            return runs.then_some(false);
        }
        for frame in watermark.frames(stretch.next)? {
            let batch = self.engine.journal().decode(&self.session, &stretch.branch, &frame).ok()?;
            for (seq, record) in batch.numbered().filter(|(seq, _)| *seq >= stretch.next) {
                let position = Position::new(stretch.branch.clone(), seq);
                self.buffer.push_back(Event::Recorded { position, at: batch.at, record: record.clone() });
            }
            stretch.next = batch.last.next();
        }
        Some(true)
    }

    /// Goes on with the read under way, or begins one; whether the run was over when it began, and what it found.
    async fn read(&mut self) -> (bool, Result<Found>) {
        let Some(stretch) = self.stretches.front() else {
            let over = self.over.as_ref().is_some_and(CancellationToken::is_cancelled);
            return (over, Ok(Found { entries: Vec::new(), base: None }));
        };
        let reading = self.reading.get_or_insert_with(|| Reading {
            over: self.over.as_ref().is_some_and(CancellationToken::is_cancelled),
            found: Mutex::new(Box::pin(stretch.read(self.engine.clone(), self.session.clone()))),
        });
        let found = reading.found.get_mut().unwrap_or_else(PoisonError::into_inner).await;
        let over = reading.over;
        self.reading = None;
        (over, found)
    }

    /// Takes in what a read found; whether it was anything.
    fn take_in(&mut self, found: Found) -> Result<bool> {
        let Some(stretch) = self.stretches.front_mut() else { return Ok(false) };
        let mut any = false;
        for entry in found.entries {
            let batch = match entry {
                Entry::Batch(batch) => batch,
                // What was read before the damage comes first.
                Entry::Damaged(_) if any => return Ok(true),
                Entry::Damaged(damage) => {
                    stretch.next = damage.last.next();
                    let message =
                        format!("records {} to {} cannot be read: {}", damage.first, damage.last, damage.detail);
                    return Err(Error::corrupt(message).on(&self.session).at(damage.position()));
                }
            };
            if batch.first > stretch.next && any {
                return Ok(true);
            }
            if batch.first > stretch.next {
                let message = format!("records {} to {} were pruned", stretch.next, batch.first.previous());
                let gone = Position::new(stretch.branch.clone(), stretch.next);
                stretch.next = batch.first;
                return Err(Error::not_found(message).on(&self.session).at(gone).hint("read on, or look at the state"));
            }
            for (seq, record) in batch.numbered() {
                if seq < stretch.next || stretch.through.is_some_and(|through| seq > through) {
                    continue;
                }
                let position = Position::new(stretch.branch.clone(), seq);
                self.buffer.push_back(Event::Recorded { position, at: batch.at, record: record.clone() });
                any = true;
            }
            stretch.next = batch.last.next();
        }
        // Nothing is there: not yet, or not any more.
        if let Some(base) = found.base.filter(|base| !any && base.seq >= stretch.next) {
            let message = format!("records {} to {} were pruned", stretch.next, base.seq);
            let gone = Position::new(stretch.branch.clone(), stretch.next);
            stretch.next = base.seq.next();
            return Err(Error::not_found(message).on(&self.session).at(gone).hint("read on, or look at the state"));
        }
        let done = stretch.through.is_some_and(|through| stretch.next > through);
        if done || (!any && stretch.through.is_some()) {
            self.stretches.pop_front();
            return Ok(true);
        }
        Ok(any)
    }

    /// Waits until there may be more to read, or something is said.
    async fn wait(&mut self) -> Option<LiveEvent> {
        let stretch = self.stretches.front()?;
        let next = stretch.next;
        if self.watermark.is_none() {
            self.watermark = self.alive.watermark(&stretch.branch);
        }
        let over = self.over.clone();
        let pause = self.pace.next();
        let moved = async {
            match &mut self.watermark {
                Some(watermark) if watermark.head().seq >= next => {}
                Some(watermark) => {
                    if watermark.moved().await.is_none() {
                        self.watermark = None;
                        tokio::time::sleep(pause).await;
                    }
                }
                None => tokio::time::sleep(pause).await,
            }
        };
        tokio::select! {
            biased;
            said = self.live.recv() => match said {
                Ok(event) if self.until.as_ref().is_none_or(|run| *run == event.run) => Some(event),
                Ok(_) | Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => {
                    tokio::time::sleep(self.engine.poll()).await;
                    None
                }
            },
            () = moved => None,
            () = async { match &over { Some(over) => over.cancelled().await, None => std::future::pending().await } } => None,
            // Another process may write, of which nobody tells us.
            () = tokio::time::sleep(pause) => {
                self.pace.slow_down();
                None
            }
        }
    }
}

impl Stretch {
    /// Reads the next page of it.
    fn read(&self, engine: Engine, session: SessionKey) -> impl Future<Output = Result<Found>> + Send + 'static {
        let (branch, next, through) = (self.branch.clone(), self.next, self.through);
        async move {
            let entries = engine.journal().read(&session, &branch, next, PAGE).await?;
            let new = |entry: &Entry| match entry {
                Entry::Batch(batch) => batch.last >= next && through.is_none_or(|through| batch.first <= through),
                Entry::Damaged(_) => true,
            };
            let base = match entries.iter().any(new) {
                true => None,
                false => engine.journal().open(&session).await?.branch(&branch)?.base,
            };
            Ok(Found { entries, base })
        }
    }
}

/// The stretches of history behind `position`, on the line that leads to the end of its branch.
fn stretches(info: &SessionInfo, position: &Position) -> Result<VecDeque<Stretch>> {
    let mut branch = info.branch(&position.branch)?;
    let mut stretches = VecDeque::from([Stretch {
        branch: branch.branch.clone(),
        next: position.seq.next().max(branch.first_own()),
        through: None,
    }]);
    let mut oldest = branch.base;
    while let Some(parent) = branch.parent.as_ref().filter(|parent| parent.seq > position.seq && oldest.is_none()) {
        branch = info.branch(&parent.branch)?;
        oldest = branch.base;
        let next = position.seq.next().max(branch.first_own());
        stretches.push_front(Stretch { branch: branch.branch.clone(), next, through: Some(parent.seq) });
    }
    match oldest {
        Some(base) if base.seq > position.seq => {
            let message = format!("history up to record {} was pruned", base.seq);
            Err(Error::not_found(message)
                .on(&info.header.key)
                .at(position.clone())
                .hint(format!("start behind {}:{}, with the state there", branch.branch, base.seq)))
        }
        _ => Ok(stretches),
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("session", &self.session).finish_non_exhaustive()
    }
}
