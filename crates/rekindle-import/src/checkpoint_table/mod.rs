//! A checkpoint table: SQLite, one row for each checkpoint, the whole state of a plan in each.

mod state;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rekindle::core::record::{CheckpointTrigger, CheckpointType, RunOutcome, Usage};
use rekindle::plan::StepStatus;
use rekindle::{Engine, Json, Result};

use self::state::{Before, PlanState};
use self::table::{Key, Stored, Table, place};
use super::read::{self, Read};
use super::write::{Mark, Origin, Point, Writer};
use super::{Admitted, Import, ImportOptions, ImportReport};

/// Imports the sessions of a checkpoint table: the table `checkpoints` of an SQLite database, which
/// is opened for reading alone. A session's id is its `session_id`; `project_id` becomes the label
/// `project`. Rows are taken in the order of `created_at`, `step_number` and row. See
/// [`crate`] for what holds for every import.
///
/// ```no_run
/// # async fn example() -> rekindle::Result<()> {
/// use rekindle_import::ImportOptions;
/// use rekindle::Engine;
/// use rekindle::plan::PlanSpec;
///
/// let engine = Engine::open("sqlite:./rekindle.db")?;
/// let report = rekindle_import::checkpoint_table(&engine, "./old.db".as_ref(), ImportOptions::new()).await?;
/// let seen = engine.journal().load(&report.sessions[0].session, None).await?;
/// // What to resume it with.
/// let plan: Option<PlanSpec> = seen.state.register("imported/plan").map(|plan| plan.decode()).transpose()?;
/// # let _ = plan;
/// # Ok(()) }
/// ```
pub async fn checkpoint_table(engine: &Engine, path: &Path, options: ImportOptions) -> Result<ImportReport> {
    let mut import = Import::new(engine, options.clone());
    let place = path.display().to_string();
    let path = path.to_owned();
    let (mut table, found) = read::blocking(move || Table::open(&path, &options).and_then(Table::survey))
        .await?
        .map_err(|error| error.during("import"))?;
    let found = found.into_iter().map(|(id, rows)| (id, place.clone(), rows)).collect();
    import.pass_over(std::mem::take(&mut table.skipped));
    for admitted in import.admit(found).await? {
        table = session(&mut import, table, admitted).await?;
    }
    Ok(import.report)
}

async fn session(import: &mut Import<'_>, mut table: Table, mut admitted: Admitted<Vec<Key>>) -> Result<Table> {
    let mut keys = std::mem::take(&mut admitted.source);
    order(import, &table.place, &admitted.key.to_string(), &mut keys);
    let projects: BTreeSet<&String> = keys.iter().filter_map(|key| key.project.as_ref()).collect();
    if projects.len() > 1 {
        import.warn(&table.place, format!("session `{}` belongs to several projects; the last counts", admitted.key));
    }
    let project = keys.iter().rev().find_map(|key| key.project.clone());
    let origin = Origin {
        executor: "plan",
        form: "checkpoint_table",
        place: table.place.clone(),
        times: BTreeMap::new(),
        agent: None,
        labels: project.iter().map(|project| ("project".to_owned(), project.clone())).collect(),
        metadata: project.iter().map(|project| ("project_id".to_owned(), Json::from(project.as_str()))).collect(),
    };
    let mut writer = Writer::new(&admitted, origin);
    let mut before = Before::default();
    for key in keys {
        let number = key.row;
        let (back, stored) = read::blocking(move || {
            let stored = table.row(number);
            (table, stored)
        })
        .await?;
        table = back;
        let place = place(&table.place, number);
        match stored.and_then(|stored| point(import, &place, stored, &mut before)) {
            Ok(point) => writer.push(import, point).await?,
            Err(why) => import.skip(place, why),
        }
    }
    writer.finish(import).await?;
    Ok(table)
}

/// By time, then step, then row; by row alone where a time is missing.
fn order(import: &mut Import<'_>, place: &str, session: &str, keys: &mut [Key]) {
    if keys.iter().any(|key| key.time.is_none()) {
        if keys.len() > 1 {
            import.warn(place, format!("session `{session}` has rows without a time; the order is that of the rows"));
        }
        return;
    }
    keys.sort_by_key(|key| (key.time, key.step, key.row));
    if keys.windows(2).any(|pair| pair[0].row > pair[1].row) {
        import.warn(place, format!("in session `{session}` times and rows disagree; the order is that of the times"));
    }
}

fn point(import: &mut Import<'_>, place: &str, stored: Stored, before: &mut Before) -> Read<Point> {
    let state = PlanState::read(&stored.state)?;
    if state.steps.is_empty() {
        import.warn(place, "its plan has no steps");
    }
    for (step, _) in state.steps.iter().filter(|(_, status)| *status == StepStatus::Running) {
        import.warn(place, format!("step `{}` was under way: a resume carries it out again", step.id));
    }
    let after = before.next(&state, stored.trigger == "error")?;
    if after.went_back {
        import.warn(place, "it does not go on from the row before: it is another run of the plan");
    }
    let failed = after.end.as_ref().is_some_and(|(outcome, _)| *outcome == RunOutcome::Failed);
    Ok(Point {
        place: place.to_owned(),
        id: stored.id.clone(),
        at: stored.created_at.clone(),
        mark: mark(stored, failed),
        logs: after.logs,
        registers: after.registers,
        effects: Vec::new(),
        fresh: after.fresh,
        end: after.end,
    })
}

/// What a row says about its checkpoint.
fn mark(stored: Stored, failed: bool) -> Mark {
    let (trigger, kind) = match stored.trigger.as_str() {
        "manual" => (CheckpointTrigger::Manual, CheckpointType::UserCheckpoint),
        "error" => (CheckpointTrigger::Error, CheckpointType::Step),
        _ => (CheckpointTrigger::Auto, CheckpointType::Step),
    };
    let project = stored.project.map(|project| ("imported_project".to_owned(), project.into()));
    Mark {
        trigger,
        kind,
        step: stored.step,
        description: stored.description,
        active_micros: stored.duration_ms.saturating_mul(1_000),
        // The table does not tell tokens sent from tokens received.
        usage: Usage { input_tokens: stored.tokens, ..Usage::default() },
        unclean: trigger == CheckpointTrigger::Error || failed,
        extra: project.into_iter().collect(),
        ..Mark::default()
    }
}
