//! `rekindle sessions checkpoints`: the marks of a session, newest first.

use clap::Args;
use rekindle::core::CheckpointInfo;
use rekindle::operations::{self, At, HistoryOptions};
use rekindle::{BranchId, Timestamp};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::reference;
use crate::ui::table::{Cell, Table};
use crate::ui::{style, time};
use crate::words::{ids, name_of, next};

/// Which checkpoints.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle sessions checkpoints @\n  rekindle sessions checkpoints trip-42 --branch retry -n 5"
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// Those that lead to the end of this branch, instead of the current one
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
    /// How many at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Only those before this one
    #[arg(long, value_name = "CHECKPOINT")]
    before: Option<String>,
}

impl Arguments {
    /// Lists them.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let at = self.branch.map(BranchId::new).transpose()?.map_or(At::Latest, At::Head);
        let before = match &self.before {
            Some(text) => Some(reference::checkpoint_at(&engine, &session, text).await?),
            None => None,
        };
        let options = HistoryOptions { at, before, limit: self.limit.max(1) };
        let page = operations::history(&engine, &session, &options).await?;
        if app.ui.is_json() {
            app.ui.json(&page)?;
            return Ok(Exit::Ok);
        }
        if page.checkpoints.is_empty() {
            app.ui.remark("no checkpoints");
            return Ok(Exit::Ok);
        }
        let now = engine.journal().clock().now();
        table(&page.checkpoints, now, app.ui.table_width()).iter().try_for_each(|line| app.ui.line(line))?;
        if let Some(before) = page.next {
            let words = ["sessions", "checkpoints", session.id.as_str(), "--before", before.as_str()];
            app.ui.remark(format!("{}more: {}{}", style::DIM, next::line(app, words), style::RESET));
        }
        Ok(Exit::Ok)
    }
}

/// The table; columns that say nothing are left out, and the less important where there is no room.
fn table(checkpoints: &[CheckpointInfo], now: Timestamp, columns: usize) -> Vec<String> {
    let short = ids::short(checkpoints.iter().map(|found| found.checkpoint.id.as_str()));
    let any = |says: &dyn Fn(&CheckpointInfo) -> bool| checkpoints.iter().any(says);
    let (wide, roomy) = (columns >= 100, columns >= 70);
    let shown = [
        ("CHECKPOINT", true),
        ("TYPE", roomy),
        ("TRIGGER", wide),
        ("STEP", true),
        ("NODE", roomy && any(&|found| found.checkpoint.node.is_some())),
        ("CLEAN", roomy && any(&|found| !found.checkpoint.clean)),
        ("TOKENS", wide && any(&|found| tokens(found) > 0)),
        ("COST", wide && any(&|found| found.checkpoint.usage.cost_micros > 0)),
        ("WHEN", true),
        ("DESCRIPTION", true),
    ];
    let header: Vec<&'static str> = shown.iter().filter(|(_, shown)| *shown).map(|(name, _)| *name).collect();
    let mut table = Table::new(&header);
    for (found, short) in checkpoints.iter().zip(short) {
        let id = if columns >= 120 { found.checkpoint.id.to_string() } else { short };
        let cells = cells(found, id, now).into_iter().zip(shown).filter(|(_, (_, shown))| *shown).map(|(cell, _)| cell);
        table.row(cells);
    }
    table.lines(columns)
}

fn cells(found: &CheckpointInfo, id: String, now: Timestamp) -> [Cell; 10] {
    let mark = &found.checkpoint;
    let pinned = if mark.pinned { " [pinned]" } else { "" };
    let tags: String = mark.tags.iter().map(|tag| format!(" [{tag}]")).collect();
    [
        Cell::styled(id, style::NAME),
        Cell::new(name_of(&mark.kind)),
        Cell::new(name_of(&mark.trigger)),
        Cell::new(mark.step.to_string()),
        Cell::new(mark.node.as_deref().unwrap_or("–")),
        Cell::styled(if mark.clean { "yes" } else { "no" }, if mark.clean { style::GOOD } else { style::WARN }),
        Cell::new(time::count(tokens(found))),
        Cell::new(time::cost(mark.usage.cost_micros)),
        Cell::new(time::ago(found.created_at, now)),
        Cell::new(format!("{}{pinned}{tags}", mark.description)),
    ]
}

fn tokens(found: &CheckpointInfo) -> u64 {
    found.checkpoint.usage.input_tokens.saturating_add(found.checkpoint.usage.output_tokens)
}

#[cfg(test)]
mod tests {
    use rekindle::core::Seq;
    use rekindle::core::record::Checkpoint;
    use rekindle::{CheckpointId, Position};

    use super::*;

    #[test]
    fn a_table_fits_forty_columns() {
        let found = |id: &str, step| CheckpointInfo {
            checkpoint: Checkpoint {
                step,
                description: "a rather long description of it".into(),
                ..Checkpoint::new(CheckpointId::new(id).unwrap())
            },
            position: Position::new(BranchId::main(), Seq(step)),
            created_at: Timestamp(1_794_740_400_000_000),
        };
        let all = [found("ckpt_01kaaaaaaaaaaaaa1", 12), found("ckpt_01kaaaaaaaaaaaab2", 11)];
        let now = Timestamp(1_794_740_500_000_000);
        let plain: Vec<_> =
            table(&all, now, 40).iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        assert_eq!(
            plain,
            [
                "CHECKPOINT        STEP  WHEN    DESCRIP…",
                "01kaaaaaaaaaaaaa  12    1m ago  a rathe…",
                "01kaaaaaaaaaaaab  11    1m ago  a rathe…",
            ]
        );
        assert!(table(&all, now, 200)[0].contains("TRIGGER"));
    }
}
