//! `rekindle checkpoint`: marks where a session is; pins and tags marks.

use clap::{Args, Subcommand};
use rekindle::core::CheckpointInfo;
use rekindle::operations::{self, Marked};
use rekindle::{CheckpointId, Engine, SessionKey};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::owner;
use crate::reference;
use crate::ui::{printable, style};

/// What to mark.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Examples:\n  rekindle checkpoint trip-42 'before the big change'\n  rekindle checkpoint pin trip-42@~1\n  rekindle checkpoint tag trip-42 good"
)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// The session
    #[arg(value_name = "SESSION", required = true)]
    session: Option<String>,
    /// Why it is worth coming back to
    #[arg(value_name = "DESCRIPTION", default_value = "", hide_default_value = true)]
    description: String,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Keeps a checkpoint from being pruned
    #[command(after_help = "Example:\n  rekindle checkpoint pin trip-42@~1")]
    Pin(Which),
    /// Lets it be pruned again
    #[command(after_help = "Example:\n  rekindle checkpoint unpin trip-42@~1")]
    Unpin(Which),
    /// Gives a checkpoint tags
    #[command(after_help = "Example:\n  rekindle checkpoint tag trip-42@~2 good --remove")]
    Tag(Tag),
}

/// Which checkpoint.
#[derive(Debug, Args)]
struct Which {
    /// The checkpoint, or a moment: the last one before it
    #[arg(value_name = "MOMENT")]
    moment: String,
}

/// Which checkpoint and which tags.
#[derive(Debug, Args)]
struct Tag {
    /// The checkpoint, or a moment: the last one before it
    #[arg(value_name = "MOMENT")]
    moment: String,
    /// The tags
    #[arg(value_name = "TAG", required = true)]
    tags: Vec<String>,
    /// Takes these away instead
    #[arg(long)]
    remove: bool,
}

impl Arguments {
    /// Marks it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        match self.what {
            None => {
                let session = app.session(&engine, &self.session.unwrap_or_default()).await?;
                let marked = operations::checkpoint(&engine, &session, &self.description, &app.author()).await?;
                tell_marked(app, &session, &marked)?;
            }
            Some(What::Pin(which)) => pin(app, &engine, &which, true).await?,
            Some(What::Unpin(which)) => pin(app, &engine, &which, false).await?,
            Some(What::Tag(tag)) => give_tags(app, &engine, tag).await?,
        }
        Ok(Exit::Ok)
    }
}

fn tell_marked(app: &App, session: &SessionKey, marked: &Marked) -> std::io::Result<()> {
    if app.ui.is_json() {
        return app.ui.json(marked);
    }
    let (name, reset) = (style::NAME, style::RESET);
    match marked {
        Marked::Done { checkpoint, position } => {
            app.ui.line(format!("{name}{}{reset} at {position}", printable(checkpoint.as_str())))
        }
        Marked::Sent { owner, .. } => {
            let (owner, id) = (owner::named(owner.as_str()), printable(session.id.as_str()));
            app.ui.line(format!("asked for: {owner} runs {name}{id}{reset} and marks its next step"))
        }
    }
}

async fn pin(app: &App, engine: &Engine, which: &Which, pinned: bool) -> Result<(), Failure> {
    let (session, id) = found(app, engine, &which.moment).await?;
    let now = operations::pin(engine, &session, &id, pinned).await?;
    tell_changed(app, &now, if pinned { "pinned" } else { "not pinned" })
}

async fn give_tags(app: &App, engine: &Engine, tag: Tag) -> Result<(), Failure> {
    let (session, id) = found(app, engine, &tag.moment).await?;
    let mut tags = engine.journal().checkpoint(&session, &id).await?.checkpoint.tags;
    match tag.remove {
        true => tags.retain(|known| !tag.tags.contains(known)),
        false => {
            for new in tag.tags {
                if !tags.contains(&new) {
                    tags.push(new);
                }
            }
        }
    }
    let now = operations::tag(engine, &session, &id, tags).await?;
    let told = match now.checkpoint.tags.as_slice() {
        [] => "no tags".to_owned(),
        tags => format!("tagged {}", tags.join(", ")),
    };
    tell_changed(app, &now, &told)
}

async fn found(app: &App, engine: &Engine, text: &str) -> Result<(SessionKey, CheckpointId), Failure> {
    let moment = app.moment(engine, text).await?;
    let id = reference::checkpoint_of(engine, &moment).await?;
    Ok((moment.session, id))
}

fn tell_changed(app: &App, now: &CheckpointInfo, what: &str) -> Result<(), Failure> {
    if app.ui.is_json() {
        return Ok(app.ui.json(now)?);
    }
    let id = printable(now.checkpoint.id.as_str());
    Ok(app.ui.line(format!("{}{id}{}: {}", style::NAME, style::RESET, printable(what)))?)
}
