//! `rekindle worker`: runs what is in the queues, until it is told to stop.

mod files;
mod log;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rekindle::Error;
use rekindle::core::QueueName;
use rekindle::worker::{CancellationToken, Worker, WorkerBuilder, WorkerReport};
use rekindle_definitions::Built;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::run::{self, BuildArguments, Chosen, Signals};
use crate::ui::duration;
pub use files::Files;
pub use log::Log;

/// What to run, and how much of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rekindle worker                              each session with the file it remembers
  rekindle worker agent.yaml plan.yaml         the jobs of these alone
  rekindle worker --queue nightly --concurrency 8 --agent-limit reviewer=2
  rekindle worker --until-idle                 for scripts: ends when there is nothing left

Ctrl-C or SIGTERM drains: no more jobs are taken, runs pause, and other workers go on with them at
once. A second one does not wait for calls under way.")]
pub struct Arguments {
    /// The files whose jobs it takes; without any, each session says its own
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Takes the jobs of this queue; may be said more than once
    #[arg(long, short = 'Q', value_name = "QUEUE")]
    queue: Vec<String>,
    /// How many jobs it runs at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    concurrency: u32,
    /// How many jobs of an agent, plan or graph may run at once, over all workers
    #[arg(long, value_name = "NAME=N")]
    agent_limit: Vec<String>,
    /// How often a session that does not get on is tried before it is given up
    #[arg(long, value_name = "N", default_value_t = 5)]
    attempts: u32,
    /// Drains by itself after this time, e.g. 12h
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    drain_after: Option<Duration>,
    /// Ends when no job is ready, under way or about to be ready
    #[arg(long)]
    until_idle: bool,
    /// Goes on with sessions although their file changed since; recorded in each
    #[arg(long, value_name = "REASON")]
    accept_drift: Option<String>,
}

impl Arguments {
    /// Works.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.queueing_engine()?;
        let mut builder = self.configured(Worker::builder(engine.clone()))?;
        let mut built: Vec<Built> = Vec::new();
        for file in &self.files {
            let work = self.load(app, file).await?;
            built.push(work.clone());
            builder = builder.work(work);
        }
        if self.files.is_empty() {
            builder = builder.resolver(Files::new(app.clone(), engine, self.accept_drift.is_some()));
        }
        let log = Log::new(app);
        let heard = log.clone();
        let worker = builder.observer(move |event| heard.tell(event)).build()?;
        let worked = self.work(&log, worker).await;
        for built in built {
            built.shutdown().await;
        }
        log.end(&worked?)?;
        Ok(Exit::Ok)
    }

    fn configured(&self, mut builder: WorkerBuilder) -> Result<WorkerBuilder, Failure> {
        builder = builder.concurrency(self.concurrency).attempts(self.attempts);
        for queue in &self.queue {
            builder = builder.queue(QueueName::new(queue)?);
        }
        for limit in &self.agent_limit {
            let (name, most) = run::assigned(limit, "--agent-limit NAME=N")?;
            let most: NonZeroU32 = most.parse().map_err(|_| {
                Error::invalid(format!("`{most}` is no limit")).hint("write --agent-limit NAME=N with N of at least 1")
            })?;
            builder = builder.agent_limit(name, most);
        }
        if let Some(reason) = &self.accept_drift {
            builder = builder.accept_drift(reason);
        }
        Ok(if self.until_idle { builder.until_idle() } else { builder })
    }

    async fn load(&self, app: &App, file: &std::path::Path) -> Result<Built, Failure> {
        let definition = run::named(app, file)?;
        let model = app.settings.model().map(str::to_owned);
        let chosen = Chosen::new(app, definition, model, &BTreeMap::new())?;
        run::built(app, &chosen, &BuildArguments::default(), None).await
    }

    /// Works until a signal, the time or the queue says that it is enough.
    async fn work(&self, log: &Log, worker: Worker) -> Result<WorkerReport, Failure> {
        let grace = worker.longest_grace();
        let mut signals = Signals::listen(log.ui(), move || grace.get())?;
        let (drain, at_once) = (CancellationToken::new(), CancellationToken::new());
        let work = worker.run_until(drain.clone(), at_once.clone());
        let time_is_up = async {
            match self.drain_after {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(work, time_is_up);
        loop {
            tokio::select! {
                report = &mut work => return Ok(report?),
                name = signals.next() => {
                    log.stopping(name, drain.is_cancelled());
                    if drain.is_cancelled() {
                        at_once.cancel();
                    }
                    drain.cancel();
                }
                () = &mut time_is_up, if !drain.is_cancelled() => drain.cancel(),
            }
        }
    }
}
