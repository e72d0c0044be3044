//! `rekindle replay`: walks through a session again as it was. Nothing is executed.

use std::ops::ControlFlow;

use clap::{Args, ValueEnum};
use rekindle::Engine;
use rekindle::core::Record;
use rekindle::operations::{self, By, Comparison, Deed, ReplayStep, StepEnd};
use serde_json::{Value, json};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::reference::{self, Moment};
use crate::ui::spans::Spans;
use crate::ui::{style, time};
use crate::words::{name_of, next, number, record, value};

/// What to walk through, and how.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle replay @\n  rekindle replay trip-42@step:3 --by record\n  rekindle replay trip-42 --against trip-43"
)]
pub struct Arguments {
    /// The session, up to its end or to a moment of it
    #[arg(value_name = "SESSION")]
    session: String,
    /// How large the steps are
    #[arg(long, value_enum, default_value_t = Size::Step, value_name = "SIZE")]
    by: Size,
    /// The step to begin with, from 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
    /// How many steps at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 200)]
    limit: u64,
    /// Compares with what led to this moment instead, and ends with 1 if it differs
    #[arg(long, value_name = "MOMENT", conflicts_with_all = ["by", "from", "limit"])]
    against: Option<String>,
}

/// How large the steps of a replay are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Size {
    /// One record at a time
    Record,
    /// One answer, round of calls, checkpoint or end of a run at a time
    Step,
}

impl Arguments {
    /// Walks through it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let moment = app.moment(&engine, &self.session).await?;
        match &self.against {
            Some(other) => {
                let other = reference::moment(&engine, other, Some(&moment.session)).await?;
                compare(app, &engine, &moment, &other).await
            }
            None => self.walk(app, &engine, &moment).await,
        }
    }

    async fn walk(&self, app: &App, engine: &Engine, moment: &Moment) -> Outcome {
        let through = reference::position_of(engine, moment).await?;
        let by = if self.by == Size::Record { By::Records } else { By::Steps };
        let (mut shown, mut steps, mut more, mut closed) = (0, Vec::new(), None, None);
        let columns = app.ui.table_width();
        let mut observe = |step: &ReplayStep<'_>| {
            if step.number < self.from && step.end != StepEnd::Base {
                return ControlFlow::Continue(());
            }
            if shown == self.limit.max(1) {
                more = Some(step.number);
                return ControlFlow::Break(());
            }
            shown += u64::from(step.end != StepEnd::Base);
            if app.ui.is_json() {
                steps.push(as_json(step));
                return ControlFlow::Continue(());
            }
            match lines(step, columns).iter().try_for_each(|line| app.ui.line(line)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    closed = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let replayed = operations::replay(engine, &moment.session, Some(&through), by, &mut observe).await?;
        if let Some(error) = closed {
            return Err(Failure::from(error));
        }
        if app.ui.is_json() {
            app.ui.json(&json!({"session": replayed.session, "through": through, "steps": steps, "next": more}))?;
        } else if let Some(more) = more {
            self.tell_more(app, more);
        }
        Ok(Exit::Ok)
    }

    fn tell_more(&self, app: &App, more: u64) {
        let more = more.to_string();
        let mut words = vec!["replay", self.session.as_str(), "--from", &more];
        if self.by == Size::Record {
            words.extend(["--by", "record"]);
        }
        app.ui.remark(format!("{}more: {}{}", style::DIM, next::line(app, words), style::RESET));
    }
}

fn as_json(step: &ReplayStep<'_>) -> Value {
    json!({
        "number": step.number,
        "position": step.position,
        "at": step.at,
        "end": step.end,
        "records": step.records,
    })
}

/// A step: one line about it, one for each of its records.
fn lines(step: &ReplayStep<'_>, columns: usize) -> Vec<String> {
    let header =
        Spans::new().styled(format!("{:>4}  ", step.number), style::DIM).styled(step.position.to_string(), style::NAME);
    if let ([only], StepEnd::Record) = (step.records, step.end) {
        return vec![said(header.plain("  "), only).line(columns)];
    }
    let mut lines = vec![
        header
            .styled(format!("  {}", ends(step.end)), style::BOLD)
            .styled(format!("  {}", time::short(step.at)), style::DIM)
            .line(columns),
    ];
    let body = |record: &Record| said(Spans::new().plain("      "), record).line(columns);
    lines.extend(step.records.iter().map(body));
    lines
}

fn said(before: Spans, record: &Record) -> Spans {
    before.plain(format!("{}  ", record.kind())).styled(record::summary(record), style::DIM)
}

fn ends(end: StepEnd) -> &'static str {
    match end {
        StepEnd::Base => "what was before is compacted",
        StepEnd::Record => "record",
        StepEnd::Answer => "the model answered",
        StepEnd::Results => "calls returned",
        StepEnd::Step => "a step ended",
        StepEnd::Checkpoint => "checkpoint",
        StepEnd::RunEnd => "the run ended",
        StepEnd::End => "the end",
    }
}

async fn compare(app: &App, engine: &Engine, a: &Moment, b: &Moment) -> Outcome {
    let compared = operations::compare(engine, (&a.session, &a.at), (&b.session, &b.at)).await?;
    let exit = if compared.same { Exit::Ok } else { Exit::Failed };
    if app.ui.is_json() {
        app.ui.json(&compared)?;
        return Ok(exit);
    }
    let columns = app.ui.table_width();
    differences(a, b, &compared, columns).iter().try_for_each(|line| app.ui.line(line))?;
    if compared.messages_only {
        app.ui.remark("only what was said could be compared: the calls of one were compacted away");
    }
    Ok(exit)
}

fn differences(a: &Moment, b: &Moment, compared: &Comparison, columns: usize) -> Vec<String> {
    let Some(first) = &compared.difference else {
        let same = format!("the same: {}, in the same order", number(compared.deeds.0, "deed"));
        return vec![Spans::new().styled(same, style::GOOD).line(columns)];
    };
    let head = format!("they differ after {} in common", number(first.index, "deed"));
    let mut lines = vec![Spans::new().styled(head, style::BAD).line(columns)];
    let sides = [
        ("-", style::BAD, a, &compared.a, &first.a, compared.deeds.0),
        ("+", style::GOOD, b, &compared.b, &first.b, compared.deeds.1),
    ];
    for (sign, colour, moment, position, deed, deeds) in sides {
        let side = format!("{sign} {} at {position}, {}", moment.session.id, number(deeds, "deed"));
        lines.push(Spans::new().styled(side, colour).line(columns));
        let told = deed.as_ref().map_or_else(|| vec!["had come to its end".to_owned()], deed_lines);
        lines.extend(told.iter().map(|line| Spans::new().plain(format!("    {line}")).line(columns)));
    }
    lines
}

/// What somebody did.
fn deed_lines(deed: &Deed) -> Vec<String> {
    let (head, body) = match deed {
        Deed::Said { log, item } => (format!("said in {log}:"), item.clone()),
        Deed::Called { kind, name, arguments, status, value, error } => {
            let arguments = arguments.map(|hash| format!(" with arguments {}", hash.short())).unwrap_or_default();
            let status = status.map_or("did not end".to_owned(), |status| name_of(&status));
            let error = error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
            (format!("called {} {name}{arguments}, {status}{error}", name_of(kind)), value.clone())
        }
        Deed::Edited { log, index, removed, items } => {
            (format!("{log} edited by hand at {index}, {removed} removed:"), Value::Array(items.clone()))
        }
    };
    let (shown, _) = value::lines(&body, false);
    std::iter::once(head).chain(shown.into_iter().take(24)).collect()
}
