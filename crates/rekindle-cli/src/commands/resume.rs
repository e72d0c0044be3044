//! `rekindle resume`: goes on with a session after a crash, a pause, a failure or an answer.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rekindle::core::record::EffectKind;
use rekindle::operations::{self, At, EffectView, Shown};
use rekindle::{BranchId, Engine, Error, ErrorKind, ResumeOptions, RunHandle, SessionKey};
use rekindle_definitions::Built;

use crate::app::{Access, App};
use crate::failure::{Failure, Outcome};
use crate::owner;
use crate::reference;
use crate::run::{self, Before, BuildArguments, Chosen, Remembered, RunArguments};
use crate::ui::{duration, style, time};
use crate::words::next;

/// What to go on with.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rekindle resume @
  rekindle resume ses_01 --set region=eu --secret token=@env:TOKEN
  rekindle resume ses_01 --secret api_key          # asked for, and not shown
  rekindle resume ses_01 --checkpoint ckpt_02     # on a new branch, from there

Finished calls are never made again; a call that was under way follows its tool's policy.")]
#[group(skip)]
pub struct Arguments {
    /// The session: an id, the beginning of one, or @ for the latest
    #[arg(value_name = "SESSION")]
    session: String,
    /// The file it runs, if not the one it remembers
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Another model for every agent in the file; a change is drift
    #[arg(long)]
    model: Option<String>,
    /// Goes on from this checkpoint, on a new branch
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "branch")]
    checkpoint: Option<String>,
    /// Goes on with this branch
    #[arg(long)]
    branch: Option<String>,
    /// If history is damaged, goes on from the nearest checkpoint that is whole
    #[arg(long)]
    fallback: bool,
    /// Evict the process that runs the session, dead or alive. A dead one of this machine needs no flag
    #[arg(long)]
    take_over: bool,
    /// Wait this long for the process that runs the session to end, e.g. 30s
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    build: BuildArguments,
}

impl Arguments {
    /// Goes on.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let key = app.session(&engine, &self.session).await?;
        let options = self.options(app, &engine, &key).await?;
        let built = self.built(app, &engine, &key).await?;
        let session = engine.open_session(key.id.as_str()).await?;
        let shown = operations::show(&engine, &key).await?;
        let left = run::Calls::left_in(&engine, &key).await;
        let started = built.resume(&session, options).await;
        let handle = started.map_err(|error| next::explained(app, error))?;
        tell_evicted(app, &handle);
        told(app, &shown);
        let watched = run::follow(app, handle, left, self.build.events).await;
        built.shutdown().await;
        run::tell(app, &watched.map_err(|error| next::cut_off(app, error))?, self.build.events)
    }

    async fn built(&self, app: &App, engine: &Engine, key: &SessionKey) -> Result<Built, Failure> {
        let remembered = match (&self.file, Remembered::of(engine, key).await) {
            (Some(_), remembered) => remembered.ok(),
            // The configuration may name what runs the agent.
            (None, Err(error)) if *error.kind() != ErrorKind::NotFound => return Err(error.into()),
            (None, Err(error)) => {
                let info = engine.journal().open(key).await?;
                let known = info.header.agent.as_deref().and_then(|name| app.settings.agent(name));
                known.ok_or(error)?;
                None
            }
            (None, Ok(remembered)) => Some(remembered),
        };
        let definition = match &self.file {
            Some(file) if !file.exists() => {
                let message = format!("there is no file {}", file.display());
                return Err(Error::not_found(message).on(key).hint("check the path").into());
            }
            Some(file) => run::named(app, file)?,
            None => run::recorded(app, &engine.journal().open(key).await?, remembered.as_ref())?,
        };
        let remembered = remembered.unwrap_or_default();
        let chosen = Chosen::again(app, definition, &remembered, self.model.clone(), &self.run.secrets());
        let chosen = chosen.map_err(|error| error.on(key))?;
        let accept_drift = self.run.accept_drift.is_some();
        let before = Before { engine, session: key, resumes_failed: true, accept_drift };
        let built = run::built(app, &chosen, &self.build, Some(before)).await;
        built.map_err(|failure| match failure {
            Failure::Error(error) => next::explained(app, error).into(),
            failure => failure,
        })
    }

    async fn options(&self, app: &App, engine: &Engine, key: &SessionKey) -> Result<ResumeOptions, Failure> {
        let mut options = self.run.add_to(ResumeOptions::new(app.author()), &app.settings.excluded(), &app.ui)?;
        if let Some(text) = &self.checkpoint {
            options = match reference::at(engine, key, text).await? {
                At::Checkpoint(id) => options.from_checkpoint(id),
                _ => {
                    return Err(Error::invalid(format!("`{text}` is no checkpoint"))
                        .hint(format!("list them: {}", next::line(app, ["sessions", "checkpoints", key.id.as_str()])))
                        .into());
                }
            };
        }
        if let Some(branch) = &self.branch {
            options = options.on_branch(BranchId::new(branch)?);
        }
        if self.fallback {
            options = options.fallback();
        }
        if self.take_over {
            options = options.take_over();
        }
        if let Some(patience) = self.wait {
            options = options.patience(patience);
        }
        Ok(options)
    }
}

/// Says whose lease was ended for this run.
pub fn tell_evicted(app: &App, handle: &RunHandle) {
    let (dim, reset) = (style::DIM, style::RESET);
    match handle.evicted() {
        Some(evicted) if evicted.dead => app.ui.remark(format!("{dim}its process has died; taking over{reset}")),
        Some(evicted) => {
            let owner = owner::named(evicted.owner.as_str());
            app.ui.remark(format!("evicted {owner}: whatever it still does, it can record nothing more"));
        }
        None => {}
    }
}

/// What the run finds: what is done and stays done, and what is in doubt.
fn told(app: &App, shown: &Shown) {
    let spent = &shown.spent.turn;
    let under_way = || shown.effects.iter().filter(|effect| !effect.settled);
    let calls = under_way().filter(|effect| effect.kind == EffectKind::Tool).count();
    let mut parts = Vec::new();
    if spent.iterations > 0 {
        parts.push(time::counted(spent.iterations, "step"));
    }
    // Calls count when they begin.
    let ended = spent.tool_calls.saturating_sub(calls as u64);
    if ended > 0 {
        parts.push(time::counted(ended, "call"));
    }
    let kept =
        if parts.is_empty() { "nothing was finished yet".to_owned() } else { format!("kept: {}", parts.join(" and ")) };
    // What waits for somebody was not cut off.
    let waits =
        |effect: &&EffectView| shown.waits.iter().any(|wait| wait.opened.effect.as_ref() == Some(&effect.effect));
    let open = under_way().filter(|effect| !waits(effect)).count() as u64;
    let doubt = match open {
        0 => String::new(),
        1 => "; 1 call was under way".to_owned(),
        _ => format!("; {} were under way", time::counted(open, "call")),
    };
    let name = shown.header.agent.as_deref().unwrap_or("session");
    let (bold, dim, reset) = (style::BOLD, style::DIM, style::RESET);
    let id = &shown.header.key.id;
    app.ui.remark(format!("{bold}{}{reset} {dim}resumed · {id} · {kept}{doubt}{reset}", crate::ui::printable(name)));
}
