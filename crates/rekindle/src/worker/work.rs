//! What a worker can run, and finding it for a session.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rekindle_core::{Json, Result, SessionInfo};

use crate::driver::{ResumeOptions, RunHandle, RunOptions};
use crate::executor::agent::Agent;
use crate::executor::flow::Flow;
use crate::executor::graph::Graph;
use crate::executor::plan::Plan;
use crate::executor::{Executor, Input};
use crate::operations;
use crate::session::Session;

/// How many works that were made for sessions are kept for the next ones.
const KEPT: usize = 32;

/// Something a worker can run: an agent, a plan, a graph, a flow, or your own.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// The name by which sessions and jobs know it.
    fn name(&self) -> &str;

    /// Starts a run with `input`. `options` must be passed on as they are.
    async fn start(&self, session: &Session, input: Json, options: ResumeOptions) -> Result<RunHandle>;

    /// Goes on with what is unfinished or, if it reads messages and one waits, takes it as a new turn.
    /// `options` must be passed on as they are.
    async fn resume(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle>;
}

/// Finds what runs a session that no work of the worker is named for.
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// Under what its work is kept for the next session: everything it depends on. Nothing if the
    /// session does not say what runs it.
    fn key(&self, session: &SessionInfo) -> Option<String>;

    /// Makes it.
    async fn make(&self, session: &SessionInfo) -> Result<Arc<dyn Work>>;
}

/// The works that were made last, the latest first.
#[derive(Default)]
pub(super) struct Kept(Mutex<Vec<(String, Arc<dyn Work>)>>);

impl Kept {
    /// The work of a session, made if it is not there.
    pub(super) async fn find(&self, by: &dyn Resolver, session: &SessionInfo) -> Result<Option<Arc<dyn Work>>> {
        let Some(key) = by.key(session) else { return Ok(None) };
        if let Some(found) = self.take_up(&key, None) {
            return Ok(Some(found));
        }
        let made = by.make(session).await?;
        Ok(self.take_up(&key, Some(made)))
    }

    /// The work under a key, moved to the front; the one that is there wins over a new one.
    fn take_up(&self, key: &str, new: Option<Arc<dyn Work>>) -> Option<Arc<dyn Work>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == key);
        let entry = at.map(|at| kept.remove(at)).or_else(|| Some((key.to_owned(), new?)))?;
        let work = Arc::clone(&entry.1);
        kept.insert(0, entry);
        kept.truncate(KEPT);
        Some(work)
    }
}

/// Makes work for workers of an executor, under the name by which sessions and jobs know it.
///
/// ```
/// use rekindle::worker::{Work as _, work};
/// # fn demo(executor: std::sync::Arc<dyn rekindle::Executor>) {
/// let work = work("counter", executor, rekindle::RunOptions::default());
/// assert_eq!(work.name(), "counter");
/// # }
/// ```
pub fn work(name: impl Into<String>, executor: Arc<dyn Executor>, options: RunOptions) -> impl Work {
    Driven { name: name.into(), executor, options }
}

/// An executor as work.
struct Driven {
    name: String,
    executor: Arc<dyn Executor>,
    options: RunOptions,
}

#[async_trait]
impl Work for Driven {
    fn name(&self) -> &str {
        &self.name
    }

    async fn start(&self, session: &Session, input: Json, options: ResumeOptions) -> Result<RunHandle> {
        let (executor, input) = (Arc::clone(&self.executor), Input::Value(input));
        operations::start(session.engine(), session.key(), executor, input, self.options.clone(), options).await
    }

    async fn resume(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
        let executor = Arc::clone(&self.executor);
        operations::resume(session.engine(), session.key(), executor, self.options.clone(), options).await
    }
}

/// Work by the executor of what it is implemented for.
macro_rules! driven {
    ($($what:ty),*) => {$(
        #[async_trait]
        impl Work for $what {
            fn name(&self) -> &str {
                <$what>::name(self)
            }

            async fn start(&self, session: &Session, input: Json, options: ResumeOptions) -> Result<RunHandle> {
                work(self.name(), self.executor(), self.options().clone()).start(session, input, options).await
            }

            async fn resume(&self, session: &Session, options: ResumeOptions) -> Result<RunHandle> {
                work(self.name(), self.executor(), self.options().clone()).resume(session, options).await
            }
        }
    )*};
}

driven!(Agent, Flow, Graph, Plan);
