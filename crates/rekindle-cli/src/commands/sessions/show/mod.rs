//! `rekindle sessions show`: a session on one page, with what can be done next.

pub mod page;
mod tree;

use clap::Args;
use rekindle::core::record::EffectKind;
use rekindle::operations::{self, Resumable, Shown};
use rekindle::{Engine, SessionKey, Status, Timestamp};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::owner;
use crate::ui::{fit, printable, style};
use crate::words::{self, author_of, name_of, next, value};

/// Which session.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle sessions show @\n  rekindle sessions show trip-42 --json")]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
}

impl Arguments {
    /// Shows it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let shown = as_seen_here(operations::show(&engine, &session).await?);
        if app.ui.is_json() {
            app.ui.json(&shown)?;
            return Ok(Exit::Ok);
        }
        tell(app, &engine, &shown).await?;
        tips(app, &session, &shown);
        Ok(Exit::Ok)
    }
}

/// A session whose process has died is interrupted, although its lease may last a little longer.
fn as_seen_here(mut shown: Shown) -> Shown {
    let dead = shown.owner.as_ref().is_some_and(|owner| owner::has_ended(owner.owner.as_str()));
    if dead && shown.status == Status::Running {
        shown.status = Status::Interrupted;
        shown.resumable = Resumable { resumable: true, why: "its process has died".to_owned() };
    }
    shown
}

async fn tell(app: &App, engine: &Engine, shown: &Shown) -> Result<(), Failure> {
    let now = engine.journal().clock().now();
    let columns = app.ui.table_width();
    let mut lines = page::lines(shown, now, columns);
    lines.extend(waits(app, shown, now, columns));
    lines.extend(effects(app, shown, columns));
    if !shown.children.is_empty() {
        lines.push(heading("children"));
        lines.extend(tree::lines(engine, &shown.header.key, columns).await?);
    }
    lines.iter().try_for_each(|line| app.ui.line(line))?;
    Ok(())
}

fn heading(text: &str) -> String {
    format!("\n{}{text}{}", style::BOLD, style::RESET)
}

/// What it waits for, each with the lines that answer it.
fn waits(app: &App, shown: &Shown, now: Timestamp, columns: usize) -> Vec<String> {
    let (name, dim, reset) = (style::NAME, style::DIM, style::RESET);
    let mut lines = Vec::new();
    for wait in &shown.waits {
        let opened = &wait.opened;
        let kind = name_of(&opened.kind);
        lines.push(format!("  {name}{}{reset} {kind}", printable(opened.wait.as_str())));
        let prompt = crate::ui::text::one_line(&opened.prompt);
        lines.extend(
            crate::ui::page::wrapped(&prompt, columns.saturating_sub(4)).iter().map(|line| format!("    {line}")),
        );
        if let Some(arguments) = &opened.arguments {
            lines.push(format!("    {dim}arguments{reset} {}", fit(arguments.as_str(), columns.clamp(24, 400) - 14)));
        }
        if let Some(at) = opened.expires_at {
            let what = if wait.expired { "expired" } else { "expires" };
            lines.push(format!("    {dim}{what}{reset} {}", words::when(at, now)));
        }
        for decision in &wait.decisions {
            let said = format!("{} by {} {}", name_of(&decision.decision), author_of(decision), decision.reason);
            lines.push(format!("    {dim}decided{reset} {}", fit(&said, columns.clamp(24, 400) - 12)));
        }
        lines.extend(next::answers(app, &shown.header.key, wait).iter().map(|line| format!("    {}", printable(line))));
    }
    if !lines.is_empty() {
        lines.insert(0, heading("waits"));
    }
    lines
}

/// Calls that were begun and have not ended.
fn effects(app: &App, shown: &Shown, columns: usize) -> Vec<String> {
    let (name, reset) = (style::NAME, style::RESET);
    let mut lines = Vec::new();
    // What waits for an answer is listed with the waits.
    for effect in shown.effects.iter().filter(|effect| effect.waits_for.is_none()) {
        let kind = name_of(&effect.kind);
        let what = fit(&format!("{kind} {}, attempt {}", effect.name, effect.attempt), columns.clamp(24, 400));
        lines.push(format!("  {name}{}{reset} {what}", printable(effect.effect.as_str())));
        if let Some(arguments) = &effect.arguments {
            lines.push(format!("    {}", value::short(arguments, columns.clamp(24, 400) - 4)));
        }
        if let Some(error) = &effect.error {
            lines.push(format!("    {}", fit(error, columns.clamp(24, 400) - 4)));
        }
        if shown.owner.is_none() {
            let settle = next::settle(app, &shown.header.key, effect);
            let again = effect.kind == EffectKind::Model || settle.is_empty();
            let otherwise =
                if again { "    a resume makes the call again" } else { "    find out whether it happened, then:" };
            lines.push(otherwise.to_owned());
            lines.extend(settle.iter().map(|line| format!("    {}", printable(line))));
        }
    }
    if !lines.is_empty() {
        lines.insert(0, heading(if shown.owner.is_some() { "calls under way" } else { "calls in doubt" }));
    }
    lines
}

/// What can be done next, where there is something to do.
fn tips(app: &App, session: &SessionKey, shown: &Shown) {
    let id = session.id.as_str();
    if !shown.damage.is_empty() || shown.unreadable.is_some() {
        tip(app, &next::line(app, ["verify", id]), "says what is damaged");
    }
    match &shown.owner {
        Some(owner) if owner::has_ended(owner.owner.as_str()) => {
            tip(app, &next::resume(app, session), "takes it over and goes on");
        }
        Some(_) => tip(app, &next::line(app, ["pause", id]), "has it stop at a safe point"),
        None => {}
    }
    if shown.status == Status::Waiting && shown.waits.iter().any(|wait| wait.decisions.is_empty()) {
        tip(app, &next::line(app, ["answer", id]), "answers what it waits for");
    }
    if shown.resumable.resumable {
        tip(app, &next::resume(app, session), "goes on with it");
    }
    if shown.status == Status::Failed {
        tip(app, &next::line(app, ["log", id]), "shows how it came to this");
    }
}

fn tip(app: &App, line: &str, why: &str) {
    let (hint, dim, reset) = (style::HINT, style::DIM, style::RESET);
    app.ui.remark(format!("{hint}[tip]{reset} {}  {dim}# {why}{reset}", printable(line)));
}
