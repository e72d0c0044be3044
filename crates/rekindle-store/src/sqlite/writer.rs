//! The writer: one thread, one connection, group commit. Whatever arrives before a transaction
//! has done its work goes into it, and nobody is answered before it is durable.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rekindle_core::{Clock, Error, Moment, Result, SessionKey};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::append::BranchCache;
use super::failure::{Failure, Outcome, database_error, is_busy};
use super::schema::{Settings, patiently};
use super::watch::Watch;

/// The most work one transaction takes in.
const GROUP_JOBS: usize = 512;
const GROUP_BYTES: usize = 16 << 20;

/// Pages given back to the file system between two groups.
const VACUUM_PAGES: i64 = 512;
/// How long the log may wait for readers when space is given back.
const CHECKPOINT_PATIENCE: Duration = Duration::from_millis(100);

/// What work inside a transaction has at hand.
pub(super) struct Scope {
    pub(super) connection: Connection,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) path: PathBuf,
    pub(super) branches: BranchCache,
    /// The number of the next frame, once the transaction has looked.
    pub(super) next_frame: Option<i64>,
}

impl Scope {
    /// Reads both clocks.
    pub(super) fn now(&self) -> Moment {
        Moment::of(&*self.clock)
    }
}

/// Something to do in a transaction. It may be run again if the transaction was lost.
pub(super) trait Job: Send {
    /// The bytes it brings along.
    fn bytes(&self) -> usize;
    /// Does it and keeps the outcome; only failures of the database come back.
    fn run(&mut self, scope: &mut Scope) -> rusqlite::Result<()>;
    /// Whether it was carried out and left pages that nobody needs.
    fn freed_space(&self) -> bool;
    /// Answers with the outcome. The transaction is durable.
    fn finish(self: Box<Self>);
    /// Answers that the transaction was lost.
    fn fail(self: Box<Self>, error: Error);
}

type Work<T> = Box<dyn FnMut(&mut Scope) -> Outcome<T> + Send>;

/// A job with a caller who waits for its outcome.
pub(super) struct Call<T> {
    pub(super) operation: &'static str,
    pub(super) session: Option<SessionKey>,
    bytes: usize,
    guarded: bool,
    frees_space: bool,
    work: Work<T>,
    outcome: Option<Result<T>>,
    reply: Option<oneshot::Sender<Result<T>>>,
}

impl<T> Call<T> {
    /// Work on a session that brings along so many bytes.
    pub(super) fn new(
        operation: &'static str,
        session: &SessionKey,
        bytes: usize,
        work: impl FnMut(&mut Scope) -> Outcome<T> + Send + 'static,
    ) -> Self {
        Self { session: Some(session.clone()), bytes, ..Self::on_jobs(operation, work) }
    }

    /// Work on jobs and workers.
    pub(super) fn on_jobs(
        operation: &'static str,
        work: impl FnMut(&mut Scope) -> Outcome<T> + Send + 'static,
    ) -> Self {
        Self {
            operation,
            session: None,
            bytes: 0,
            guarded: true,
            frees_space: false,
            work: Box::new(work),
            outcome: None,
            reply: None,
        }
    }

    /// It writes only once it can no longer be refused, so nothing need be undone.
    pub(super) fn unguarded(mut self) -> Self {
        self.guarded = false;
        self
    }

    /// It leaves pages that nobody needs.
    pub(super) fn freeing_space(mut self) -> Self {
        self.frees_space = true;
        self
    }

    /// Where the outcome will arrive.
    pub(super) fn answer(&mut self) -> oneshot::Receiver<Result<T>> {
        let (reply, answer) = oneshot::channel();
        self.reply = Some(reply);
        answer
    }

    fn reply(&mut self, outcome: Result<T>) {
        if let Some(reply) = self.reply.take() {
            // A caller that no longer waits is none of the writer's business.
            let _ = reply.send(outcome.map_err(|error| context(error, self.operation, self.session.as_ref())));
        }
    }
}

/// Adds what was being done and where.
pub(super) fn context(error: Error, operation: &'static str, session: Option<&SessionKey>) -> Error {
    match session {
        Some(session) => error.during(operation).on(session),
        None => error.during(operation),
    }
}

impl<T: Send> Job for Call<T> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn run(&mut self, scope: &mut Scope) -> rusqlite::Result<()> {
        if self.guarded {
            scope.execute("SAVEPOINT job")?;
        }
        let outcome = match (self.work)(scope) {
            Ok(value) => Ok(value),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Database(error)) => return Err(error),
        };
        if self.guarded {
            if outcome.is_err() {
                scope.execute("ROLLBACK TO job")?;
            }
            scope.execute("RELEASE job")?;
        }
        self.outcome = Some(outcome);
        Ok(())
    }

    fn freed_space(&self) -> bool {
        self.frees_space && self.outcome.as_ref().is_some_and(Result::is_ok)
    }

    fn finish(mut self: Box<Self>) {
        if let Some(outcome) = self.outcome.take() {
            self.reply(outcome);
        }
    }

    fn fail(mut self: Box<Self>, error: Error) {
        self.reply(Err(error));
    }
}

impl Scope {
    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

/// Gives the next job that has arrived, if there is one.
type Arriving<'a> = &'a mut dyn FnMut() -> Option<Box<dyn Job>>;

/// The thread's state.
pub(super) struct Writer {
    scope: Scope,
    settings: Settings,
    watch: Watch,
}

impl Writer {
    /// A writer over a connection that was opened for it.
    pub(super) fn new(connection: Connection, path: PathBuf, clock: Arc<dyn Clock>, settings: Settings) -> Self {
        let watch = Watch::new(&path);
        let scope = Scope { connection, clock, path, branches: BranchCache::default(), next_frame: None };
        Self { scope, settings, watch }
    }

    /// Works until all senders are gone and everything they sent is done.
    pub(super) fn serve(mut self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        // Removals are answered once their space was given back, which is done in small steps
        // so that others need not wait for it.
        let mut removals: Vec<Box<dyn Job>> = Vec::new();
        loop {
            let next = if removals.is_empty() { jobs.blocking_recv() } else { jobs.try_recv().ok() };
            match next {
                Some(first) => removals.extend(self.commit(vec![first], &mut || jobs.try_recv().ok())),
                None if removals.is_empty() => return,
                None => {}
            }
            if !removals.is_empty() && self.give_space_back() {
                removals.drain(..).for_each(Job::finish);
            }
        }
    }

    /// Commits a group, with what else arrives, and answers; the removals in it come back
    /// unanswered. If the transaction is lost, each job gets one of its own, so that none fails for
    /// another's sake.
    pub(super) fn commit(&mut self, mut group: Vec<Box<dyn Job>>, arriving: Arriving<'_>) -> Vec<Box<dyn Job>> {
        let Err(error) = self.attempt(&mut group, arriving) else {
            if let Err(error) = self.watch.check() {
                group.into_iter().for_each(|job| job.fail(error.duplicate()));
                return Vec::new();
            }
            let (removals, others): (Vec<_>, Vec<_>) = group.into_iter().partition(|job| job.freed_space());
            others.into_iter().for_each(Job::finish);
            return removals;
        };
        // A lock that was not to be had for the group is not to be had for its parts.
        if group.len() == 1 || is_busy(&error) {
            // That the files are gone says more than what SQLite makes of it, and does not pass.
            let error = self.watch.check().err().unwrap_or_else(|| database_error(&self.scope.path, error));
            group.into_iter().for_each(|job| job.fail(error.duplicate()));
            return Vec::new();
        }
        group.into_iter().flat_map(|job| self.commit(vec![job], &mut || None)).collect()
    }

    fn attempt(&mut self, group: &mut Vec<Box<dyn Job>>, arriving: Arriving<'_>) -> rusqlite::Result<()> {
        patiently(self.settings.patience, || self.scope.execute("BEGIN IMMEDIATE"))?;
        // Between two transactions other processes may have added frames.
        self.scope.next_frame = None;
        let outcome = self.run(group, arriving).and_then(|()| self.scope.execute("COMMIT"));
        if outcome.is_err() {
            // SQLite may have rolled back by itself, and then refuses to do it again.
            let _ = self.scope.execute("ROLLBACK");
            // Rows it made are gone, and their ids will be given to others.
            self.scope.branches.clear();
        }
        outcome
    }

    /// Does the work of a group, and of what arrives meanwhile: others prepare theirs while this
    /// thread writes, and find room in the same transaction.
    fn run(&mut self, group: &mut Vec<Box<dyn Job>>, arriving: Arriving<'_>) -> rusqlite::Result<()> {
        let (mut done, mut bytes) = (0, 0);
        while let Some(job) = group.get_mut(done) {
            job.run(&mut self.scope)?;
            done += 1;
            bytes += group[done - 1].bytes();
            if done == group.len() && done < GROUP_JOBS && bytes < GROUP_BYTES {
                group.extend(arriving());
            }
        }
        Ok(())
    }

    /// Takes one step; whether it was the last. That space stays in the file is no failure.
    fn give_space_back(&self) -> bool {
        if self.vacuum_step().unwrap_or(false) {
            return false;
        }
        let connection = &self.scope.connection;
        let _ = connection.busy_timeout(CHECKPOINT_PATIENCE);
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = connection.busy_timeout(self.settings.patience);
        true
    }

    /// Cuts off some free pages; whether there are more.
    fn vacuum_step(&self) -> rusqlite::Result<bool> {
        let free = || self.scope.connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
        let before = free()?;
        if before == 0 {
            return Ok(false);
        }
        // Each row that is stepped over is one page.
        let sql = format!("PRAGMA incremental_vacuum({VACUUM_PAGES})");
        let mut statement = self.scope.connection.prepare_cached(&sql)?;
        let mut pages = statement.query([])?;
        while pages.next()?.is_some() {}
        drop(pages);
        let after = free()?;
        Ok(after > 0 && after < before)
    }
}
