//! `rekindle import`: sessions from exported files, and from what other programs stored.

mod foreign;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::Args;
use rekindle::core::ImportOptions;
use rekindle::operations::{self, Moved};
use rekindle::{Engine, Error, ErrorKind};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::files::unreadable;
use crate::settings::parse_size;
use crate::ui::{printable, style};

/// What to import.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle import trip.rekindle.jsonl --as trip-43\n  gunzip < trip.gz | rekindle import -\n  rekindle import --from json-sessions ./old --dry-run\n\nAn import that was stopped can be repeated."
)]
pub struct Arguments {
    /// Exported files, - for standard input; with --from the path of the other store
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Another id for the session
    #[arg(long = "as", value_name = "ID", conflicts_with = "from")]
    rename: Option<String>,
    /// Into the namespace the file names, not the one that is set here
    #[arg(long, conflicts_with = "from")]
    keep_namespace: bool,
    /// Take also what is not signed with a key that is known here, and put that on record
    #[arg(long, conflicts_with = "from")]
    accept_unverified: bool,
    /// Why that is accepted, for the record
    #[arg(long, value_name = "TEXT", requires = "accept_unverified")]
    reason: Option<String>,
    /// The most bytes a file may decompress to, e.g. 4GiB; 1GiB
    #[arg(long, value_name = "SIZE", conflicts_with = "from", value_parser = parse_size)]
    max_size: Option<u64>,
    #[command(flatten)]
    foreign: foreign::Foreign,
}

impl Arguments {
    /// Imports.
    pub async fn run(self, app: &App) -> Outcome {
        if let Some(form) = self.foreign.from {
            return self.foreign.run(app, form, &self.files).await;
        }
        let engine = app.engine(Access::Create)?;
        let options = self.options(app, &engine)?;
        let mut done = Vec::new();
        for path in &self.files {
            let moved = import(&engine, path, &options).await?;
            if !app.ui.is_json() {
                tell(app, &moved)?;
            }
            done.push(moved);
        }
        if app.ui.is_json() {
            app.ui.json(&done)?;
        }
        Ok(Exit::Ok)
    }

    fn options(&self, app: &App, engine: &Engine) -> Result<ImportOptions, Error> {
        if self.rename.is_some() && self.files.len() > 1 {
            return Err(
                Error::invalid("--as names one session, and there are several files").hint("import them one by one")
            );
        }
        let rename = self.rename.as_deref().map(|id| engine.key(id)).transpose()?;
        let namespace = (!self.keep_namespace).then(|| engine.namespace().clone());
        Ok(ImportOptions {
            max_decompressed: self.max_size,
            rename,
            namespace,
            accept_unverified: self.accept_unverified,
            author: Some(app.author()),
            reason: self.reason.clone().unwrap_or_default(),
        })
    }
}

async fn import(engine: &Engine, path: &Path, options: &ImportOptions) -> Result<Moved, Error> {
    let mut reader: Box<dyn BufRead + Send> = match path == Path::new("-") {
        true => Box::new(BufReader::new(std::io::stdin())),
        false => {
            Box::new(BufReader::with_capacity(256 << 10, File::open(path).map_err(|error| unreadable(path, error))?))
        }
    };
    let imported = operations::import(engine, &mut *reader, options).await;
    imported.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => error.hint("import it under another id: --as ID"),
        ErrorKind::Corrupt if error.session().is_none() => {
            let message = format!("{} is no complete export: {}", path.display(), error.message());
            Error::corrupt(message).during("import").hint("export the session again: rekindle export SESSION -o FILE")
        }
        _ => error,
    })
}

fn tell(app: &App, moved: &Moved) -> std::io::Result<()> {
    let session = printable(moved.session.id.as_str());
    let frames = crate::ui::time::counted(moved.frames, "frame");
    app.ui.line(format!("imported {}{session}{}, {frames}", style::NAME, style::RESET))?;
    if !moved.same_hashes {
        app.ui.remark("the chain was made anew: the keys or the name differ from those of the file");
    }
    Ok(())
}
