//! Events: one typed stream of everything a run does. What is stored has a position and comes
//! from the journal alone, so a late or reconnecting reader misses and repeats nothing; what is
//! not stored (pieces of an answer, progress) is told to whoever listens.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use rekindle_core::{
    BranchId, Entry, Error, Position, Record, Result, Retry, RunId, Seq, SessionInfo, SessionKey, Timestamp,
};
use rekindle_store::Watermark;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, Live};
use crate::engine::Engine;

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
    /// Kept, so that a run that begins later is heard too.
    alive: Arc<Live>,
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
            alive,
        }
    }

    /// The next event. Nothing once the run it reads has ended.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            self.listen();
            if let Some(event) = self.take() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            let over = self.over.as_ref().is_some_and(CancellationToken::is_cancelled);
            let more = match self.read_more().await {
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
            if !more {
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

    /// Reads what the journal has more of; whether it had any.
    async fn read_more(&mut self) -> Result<bool> {
        let Some(stretch) = self.stretches.front_mut() else { return Ok(false) };
        let entries = self.engine.journal().read(&self.session, &stretch.branch, stretch.next, PAGE).await?;
        let mut any = false;
        for entry in entries {
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
        if !any {
            // Nothing is there: not yet, or not any more.
            let info = self.engine.journal().open(&self.session).await?;
            if let Some(base) = info.branch(&stretch.branch)?.base.filter(|base| base.seq >= stretch.next) {
                let message = format!("records {} to {} were pruned", stretch.next, base.seq);
                let gone = Position::new(stretch.branch.clone(), stretch.next);
                stretch.next = base.seq.next();
                return Err(Error::not_found(message).on(&self.session).at(gone).hint("read on, or look at the state"));
            }
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
        let moved = async {
            match &mut self.watermark {
                Some(watermark) if watermark.head().seq >= next => {}
                Some(watermark) => {
                    if watermark.moved().await.is_none() {
                        self.watermark = None;
                        tokio::time::sleep(self.engine.poll()).await;
                    }
                }
                None => tokio::time::sleep(self.engine.poll()).await,
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
            () = tokio::time::sleep(self.engine.poll()) => None,
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
