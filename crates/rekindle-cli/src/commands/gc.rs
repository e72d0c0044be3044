//! `rekindle gc`: finds what dead processes left over, and clears it with `--apply`.

use std::time::Duration;

use clap::Args;
use rekindle::core::orphans::{Orphan, OrphanKind};
use rekindle::operations::{self, Garbage, GcOptions, OLD_ENOUGH};

use super::keys::{as_places, known_places};
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::table::{Cell, Table};
use crate::ui::{duration, printable, style, time};

/// Arguments of `rekindle gc`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle gc\n  rekindle gc --apply\n  rekindle gc --archive s3://bucket/agents --older-than 7d --apply\n\nFinds, by listing, what processes left over that died while they removed, created or archived a session: objects of\nremoved sessions, entries without a session, large values that no record refers to, objects of archives without an\nentry, data keys of no session and no archive. What no removal has on record stays until it is a day old, so that\nnothing goes that an operation under way may need. Large values are looked at if the key `large_values` is set,\narchives if the key `archive` is, or --archive."
)]
pub struct Arguments {
    /// Look at archives in this place too, besides the key `archive`; may be given more than once
    #[arg(long, value_name = "URL")]
    archive: Vec<String>,
    /// Leave what is younger than this and not on record, e.g. 7d; 1d without this
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    older_than: Option<Duration>,
    /// Does it; without this only says what would go
    #[arg(long)]
    apply: bool,
}

impl Arguments {
    /// Collects garbage, or says what would go.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let places = known_places(app, &self.archive)?;
        let options = GcOptions { older_than: self.older_than.unwrap_or(OLD_ENOUGH), dry_run: !self.apply };
        let garbage = operations::gc(&engine, engine.namespace(), &as_places(&places), &options).await?;
        match app.ui.is_json() {
            true => app.ui.json(&garbage)?,
            false => tell(app, &garbage)?,
        }
        Ok(Exit::Ok)
    }
}

fn tell(app: &App, garbage: &Garbage) -> std::io::Result<()> {
    for session in &garbage.unreadable {
        app.ui.note(unreadable(session));
    }
    let (kept, found): (Vec<_>, Vec<_>) = garbage.found.iter().cloned().partition(|orphan| orphan.kept.is_some());
    for orphan in &kept {
        app.ui.note(kept_because(orphan));
    }
    if found.is_empty() {
        return app.ui.line(if kept.is_empty() { "nothing was left over" } else { "nothing that can be cleared" });
    }
    table(app, &found)?;
    match garbage.dry_run {
        true => app.ui.remark(format!("{}nothing was changed; --apply does it{}", style::WARN, style::RESET)),
        false => app.ui.remark(format!(
            "{} cleared, {}",
            time::counted(garbage.cleared.objects, "object"),
            time::bytes(garbage.cleared.bytes)
        )),
    }
    for place in &garbage.cleared.elsewhere {
        app.ui.note(format!("large values stay in {}: set the key `large_values` to it", printable(place)));
    }
    Ok(())
}

/// Says why data keys of no known session stay.
pub(super) fn unreadable(session: &str) -> String {
    let session = printable(session);
    format!("no data key is destroyed while a session cannot be read, which may need it: {session}")
}

/// Says why something stays that nothing seems to need.
fn kept_because(orphan: &Orphan) -> String {
    let session = orphan.session.as_ref().map_or("", |session| session.id.as_str());
    let objects = time::counted(orphan.names.len() as u64, "object");
    let why = orphan.kept.as_deref().unwrap_or_default();
    format!("{} of {} stay ({objects}): {}", name_of(orphan.kind), printable(session), printable(why))
}

/// Shows orphans.
pub fn table(app: &App, found: &[Orphan]) -> std::io::Result<()> {
    let mut table = Table::new(&["WHAT", "SESSION", "OBJECTS", "SIZE", "PLACE"]).elastic(4);
    for orphan in found {
        let session = orphan.session.as_ref().map_or("", |session| session.id.as_str());
        table.row([
            Cell::new(name_of(orphan.kind)),
            Cell::styled(session, style::NAME),
            Cell::new(time::count(orphan.names.len().max(1) as u64)),
            Cell::new(time::bytes(orphan.bytes)),
            Cell::new(orphan.place.clone()),
        ]);
    }
    table.lines(app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))
}

fn name_of(kind: OrphanKind) -> &'static str {
    match kind {
        OrphanKind::RemovedSession => "removed session",
        OrphanKind::CatalogEntry => "entry without session",
        OrphanKind::LargeValues => "large values",
        OrphanKind::Temporary => "temporary objects",
        OrphanKind::Archive => "archive without entry",
        OrphanKind::DataKey => "data key",
        _ => "other",
    }
}
