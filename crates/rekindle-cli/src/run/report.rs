//! What came of a run: the answer on standard output, the rest beside it, and the line that goes
//! on from here.

use rekindle::core::record::WaitKind;
use rekindle::{ErrorKind, RunOutcome, RunReport};
use serde_json::json;

use super::Watched;
use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{style, time};
use crate::words::next;

/// Says what came of a run.
pub fn tell(app: &App, watched: &Watched, events: bool) -> Outcome {
    let report = &watched.report;
    let exit = Exit::of_run(report.outcome, report.cause.as_ref(), watched.interrupted);
    let said = match (app.ui.is_json(), events) {
        (_, true) => app.ui.json_line(&json!({"event": "report", "report": as_json(report)})),
        (true, false) => app.ui.json(&as_json(report)),
        (false, false) => match answer(report).filter(|_| is_done(report)) {
            Some(answer) => app.ui.line(crate::ui::printable(answer.trim_end())),
            None => Ok(()),
        },
    };
    match said {
        // How it ended counts, whether or not anybody reads on.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        said => said?,
    }
    if !app.ui.is_json() && !events {
        ending(app, report);
        next_steps(app, report);
    }
    Ok(exit)
}

/// Whether it came to its end.
fn is_done(report: &RunReport) -> bool {
    matches!(report.outcome, RunOutcome::Idle | RunOutcome::Succeeded)
}

/// What was asked for: what the agent said, or what the plan or graph gave back.
fn answer(report: &RunReport) -> Option<String> {
    if let Some(message) = &report.answer {
        return Some(message.text()).filter(|text| !text.is_empty());
    }
    let value = report.value.as_ref()?.to_value().ok()?;
    serde_json::to_string_pretty(&value).ok()
}

/// How it ended and what it used, on one line.
fn ending(app: &App, report: &RunReport) {
    let word = match report.outcome {
        RunOutcome::Idle => "succeeded".to_owned(),
        outcome => format!("{outcome:?}").to_lowercase(),
    };
    let spent = &report.spent;
    let mut parts = vec![format!("{} {word}", style::sign_of_status(&word)), report.session.id.to_string()];
    if spent.input_tokens > 0 || spent.output_tokens > 0 {
        parts.push(format!("{} → {} tokens", time::count(spent.input_tokens), time::count(spent.output_tokens)));
    }
    if spent.cost_micros > 0 {
        parts.push(time::cost(spent.cost_micros));
    }
    parts.push(time::span(std::time::Duration::from_micros(spent.active_micros)));
    let colour = style::of_status(&word);
    app.ui.remark(format!("{colour}{}{}", crate::ui::printable(&parts.join(" · ")), style::RESET));
    // What it waits for was said when it began to.
    if !is_done(report) && report.outcome != RunOutcome::Waiting && !report.reason.is_empty() {
        app.ui.note(format!("  {}", crate::ui::printable(&report.reason)));
    }
    if report.degraded {
        app.ui.note(format!(
            "{}! the store was away at the end: what happened since is not stored{}",
            style::WARN,
            style::RESET
        ));
    }
}

/// The command that goes on from here.
fn next_steps(app: &App, report: &RunReport) {
    let (id, resume) = (report.session.id.as_str(), next::resume(app, &report.session));
    match report.outcome {
        RunOutcome::Paused => app.ui.hint(match &report.cause {
            Some(ErrorKind::BudgetSpent { budget, used, .. }) => {
                format!("go on with more of it: {resume} --raise {}", super::options::more_of(budget, *used))
            }
            _ => format!("go on with: {resume}"),
        }),
        RunOutcome::Failed => {
            app.ui.hint(format!("look: {}; go on with: {resume}", next::line(app, ["sessions", "show", id])));
        }
        RunOutcome::Waiting => {
            for wait in &report.waits {
                // With one wait its id may be left out.
                let name = Some(wait.wait.as_str()).filter(|_| report.waits.len() > 1);
                let answer = |last: &[&str]| {
                    let words = ["answer", id].into_iter().chain(name).chain(last.iter().copied());
                    next::line(app, words.collect::<Vec<_>>())
                };
                if let Some(schema) = wait.schema.as_ref().filter(|_| wait.kind == WaitKind::Question) {
                    let schema = crate::ui::fit(schema.as_str(), 200);
                    app.ui.remark(format!("  {}an answer fits {schema}{}", style::DIM, style::RESET));
                }
                app.ui.hint(match wait.kind {
                    WaitKind::Approval => format!("{}   (or --reject REASON)", answer(&["--approve"])),
                    WaitKind::Question => answer(&[&next::example_of(wait, "VALUE")]),
                    WaitKind::Signal => next::line(app, ["signal", id, &wait.prompt, &next::example_of(wait, "VALUE")]),
                    WaitKind::Timer => "wait for its time".to_owned(),
                });
            }
            app.ui.hint(format!("then: {resume}"));
        }
        _ => {}
    }
}

/// The same for programs.
fn as_json(report: &RunReport) -> serde_json::Value {
    json!({
        "session": report.session.id,
        "namespace": report.session.namespace,
        "branch": report.branch,
        "run": report.run,
        "outcome": report.outcome,
        "reason": report.reason,
        "answer": report.answer.as_ref().map(|message| message.text()),
        "value": report.value,
        "position": report.position().to_string(),
        "spent": report.spent,
        "waits": report.waits,
        "degraded": report.degraded,
    })
}
