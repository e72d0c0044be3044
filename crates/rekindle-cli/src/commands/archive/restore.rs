//! `rekindle archive restore`: a session back from its archive.

use clap::Args;
use rekindle::operations::{self, RestoreOptions, Restored};
use rekindle::{Error, ErrorKind};
use rekindle_store::Bucket;

use super::place;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{printable, style};

/// How alike a name must be to be offered.
const ALIKE: f64 = 0.7;

/// Which session, and from where.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle archive restore trip-42 --from s3://bucket/agents\n  rekindle archive restore trip-42 --from objects:./archive --as trip-42-again\n\nThe archive stays unless --remove is said."
)]
pub struct Arguments {
    /// The session, by its whole id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Where archives are; the key `archive` without this
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Another id for it
    #[arg(long = "as", value_name = "ID")]
    rename: Option<String>,
    /// Removes the archive afterwards
    #[arg(long)]
    remove: bool,
    /// Only checks the archive and says what would be done
    #[arg(long)]
    dry_run: bool,
    /// Take also an archive that is not signed or encrypted with a key that is known here, and put that on record
    #[arg(long)]
    accept_unverified: bool,
    /// Why that is accepted, for the record
    #[arg(long, value_name = "TEXT", requires = "accept_unverified")]
    reason: Option<String>,
}

impl Arguments {
    /// Restores it.
    pub async fn run(self, app: &App) -> Outcome {
        let place = place(app, self.from.as_deref(), "--from", Access::Existing)?;
        let engine = match self.dry_run {
            true => app.engine(Access::Existing).or_else(|error| match error.kind() {
                ErrorKind::NotFound => app.engine_at("memory:", Access::Create),
                _ => Err(error),
            })?,
            false => app.engine(Access::Create)?,
        };
        let session = engine.key(&self.session)?;
        let rename = self.rename.as_deref().map(|id| engine.key(id)).transpose()?;
        let options = RestoreOptions {
            rename,
            remove: self.remove,
            dry_run: self.dry_run,
            accept_unverified: self.accept_unverified,
            author: Some(app.author()),
            reason: self.reason.clone().unwrap_or_default(),
        };
        let restored = match operations::restore(&engine, &place, &session, &options).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                return Err(self.with_nearest(app, &place, error).await.into());
            }
            Err(error) if *error.kind() == ErrorKind::AlreadyExists => {
                return Err(error
                    .hint("restore it under another id with --as ID, or remove what is there first")
                    .into());
            }
            other => other?,
        };
        match app.ui.is_json() {
            true => app.ui.json(&restored)?,
            false => tell(app, &restored)?,
        }
        Ok(Exit::Ok)
    }

    /// The error with the names that were perhaps meant.
    async fn with_nearest(&self, app: &App, place: &Bucket, error: Error) -> Error {
        let Ok(namespace) = app.namespace() else { return error };
        let Ok(found) = operations::archives(place, &namespace).await else { return error };
        let alike = |id: &str| strsim::jaro_winkler(id, &self.session);
        let mut names: Vec<String> = found.archives.into_iter().map(|archive| archive.session.id.to_string()).collect();
        names.retain(|id| alike(id) > ALIKE);
        names.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
        names.dedup();
        match names.is_empty() {
            true => error.hint("`rekindle archive list` shows what is archived"),
            false => error.hint(format!("did you mean {}?", names[..names.len().min(3)].join(", "))),
        }
    }
}

fn tell(app: &App, restored: &Restored) -> std::io::Result<()> {
    let (name, reset, id) = (style::NAME, style::RESET, printable(restored.session.id.as_str()));
    app.ui.line(match (restored.dry_run, restored.there) {
        (_, true) => format!("{name}{id}{reset} is in the store already, as it was archived"),
        (true, false) => format!("would restore {name}{id}{reset}; its archive is sound"),
        (false, false) => format!("restored {name}{id}{reset}"),
    })?;
    if restored.removed {
        app.ui.remark("the archive was removed");
    }
    Ok(())
}
