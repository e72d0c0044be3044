//! `rekindle archive list`: what is archived.

use clap::Args;
use rekindle::operations::{self, Archives};

use super::place;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::table::{Cell, Table};
use crate::ui::{printable, style, time};

/// Where to look.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rekindle archive list --from s3://bucket/agents")]
pub struct Arguments {
    /// Where archives are; the key `archive` without this
    #[arg(long, value_name = "URL")]
    from: Option<String>,
}

impl Arguments {
    /// Lists them.
    pub async fn run(self, app: &App) -> Outcome {
        let place = place(app, self.from.as_deref(), "--from", Access::Existing)?;
        let found = operations::archives(&place, &app.namespace()?).await?;
        match app.ui.is_json() {
            true => app.ui.json(&found)?,
            false => tell(app, &found)?,
        }
        Ok(if found.damaged.is_empty() { Exit::Ok } else { Exit::Integrity })
    }
}

fn tell(app: &App, found: &Archives) -> std::io::Result<()> {
    let mut table = Table::new(&["SESSION", "STATUS", "CHANGED", "ARCHIVED", "SIZE", "TITLE"]).elastic(5);
    for archive in &found.archives {
        table.row([
            Cell::styled(archive.session.id.as_str(), style::NAME),
            Cell::new(archive.status.to_string()),
            Cell::new(time::short(archive.updated_at)),
            Cell::new(time::short(archive.archived_at)),
            Cell::new(time::bytes(archive.bytes)),
            Cell::new(archive.title.clone().unwrap_or_default()),
        ]);
    }
    match found.archives.is_empty() {
        true => app.ui.remark("nothing is archived there in this namespace"),
        false => table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?,
    }
    for (_, why) in &found.damaged {
        app.ui.note(format!("{}damaged:{} {}", style::BAD, style::RESET, printable(why)));
    }
    Ok(())
}
