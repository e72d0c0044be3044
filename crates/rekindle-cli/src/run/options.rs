//! What can be said when a run is started or resumed.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use rekindle::Durability;
use rekindle::core::codec::Redaction;
use rekindle::{Budget, DamagedInbox, Error, Json, OnWait, Result, ResumeOptions, RunOptions, Secret};
use rekindle_definitions::RunInput;
use serde_json::Value;

use crate::ui::Ui;

/// How the run behaves.
#[derive(Clone, Debug, Default, Args)]
pub struct BuildArguments {
    /// When commits are on disk
    #[arg(long, value_enum, value_name = "MODE", help_heading = "How it runs")]
    pub durability: Option<DurabilityName>,
    /// Stays when everything waits for somebody, instead of ending
    #[arg(long, help_heading = "How it runs")]
    pub hold: bool,
    /// Writes every event as a line of JSON to standard output
    #[arg(long, help_heading = "How it runs")]
    pub events: bool,
}

/// When commits are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurabilityName {
    /// Each before the run goes on.
    Sync,
    /// In order, and each before the next side effect.
    Async,
    /// Only at the end.
    Exit,
}

impl BuildArguments {
    /// What they change about a run.
    pub fn adjustment(&self) -> impl FnOnce(&mut RunOptions) + Send + 'static {
        let (durability, hold) = (self.durability, self.hold);
        move |options| {
            match durability {
                Some(DurabilityName::Sync) => options.durability = Durability::Sync,
                Some(DurabilityName::Async) => options.durability = Durability::Async,
                Some(DurabilityName::Exit) => options.durability = Durability::Exit,
                None => {}
            }
            if hold {
                options.on_wait = OnWait::Hold;
            }
        }
    }
}

/// What the run is told beside its input.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArguments {
    /// Sets a key of the session's memory; JSON, or else text
    #[arg(long, value_name = "KEY=VALUE", help_heading = "What it is told")]
    pub set: Vec<String>,
    /// Says where a secret is: NAME=@env:VARIABLE, @file:path, @keychain:service/account; NAME alone asks for it
    #[arg(long, value_name = "NAME[=@REFERENCE]", help_heading = "What it is told")]
    pub secret: Vec<String>,
    /// Raises a budget: iterations, tool_calls, tokens, cost (e.g. 1.50) or active_seconds
    #[arg(long, value_name = "BUDGET=LIMIT", help_heading = "What it is told")]
    pub raise: Vec<String>,
    /// Goes on although the file, a tool or the model changed since; recorded
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "accepted on the command line", help_heading = "What it is told")]
    pub accept_drift: Option<String>,
    /// Go on without records of the inbox that cannot be read; recorded
    #[arg(long, help_heading = "What it is told")]
    pub ignore_damaged_inbox: bool,
}

impl RunArguments {
    /// Where secrets are, as it was said. [`Self::add_to`] says what is wrong with it.
    pub fn secrets(&self) -> BTreeMap<String, String> {
        let said = self.secret.iter().filter_map(|assignment| assignment.split_once('='));
        said.map(|(name, reference)| (name.to_owned(), reference.to_owned())).collect()
    }

    /// Adds what was said. Values of keys that are never stored are refused: they would stand in the list of
    /// processes and in the history of the shell.
    pub fn add_to(&self, mut options: ResumeOptions, redaction: &Redaction, ui: &Ui) -> Result<ResumeOptions> {
        for assignment in &self.set {
            let (key, value) =
                assigned(assignment, "--set KEY=VALUE").map_err(|error| match redaction.excludes(assignment) {
                    true => by_value(assignment),
                    false => error,
                })?;
            let json = Json::parse(value).unwrap_or_else(|_| Json::from(value));
            let inside = redaction.excluded_values(&json);
            if let Some(key) =
                Some(key).filter(|key| redaction.excludes(key)).or(inside.first().map(|(key, _)| key.as_str()))
            {
                return Err(by_value(key));
            }
            options = options.set_json(key, json);
        }
        for assignment in &self.secret {
            if ui.can_ask() && is_name(assignment) {
                options = options.secret_value(assignment, asked_for(ui, assignment)?);
                continue;
            }
            let (name, reference) = assigned(assignment, "--secret NAME=@env:VARIABLE")
                .map_err(|_| Error::invalid("a secret needs a name").hint("write --secret NAME=@env:VARIABLE"))?;
            // One that nobody can resolve would be found out by the call that needs it.
            crate::secrets::check(&reference.parse()?)?;
            options = options.secret(name, reference)?;
        }
        for assignment in &self.raise {
            let (name, limit) = assigned(assignment, "--raise tokens=200000")?;
            let (budget, limit) = raised(name, limit)?;
            options = options.raise(budget, limit);
        }
        if let Some(reason) = &self.accept_drift {
            options = options.accept_drift(reason);
        }
        if self.ignore_damaged_inbox {
            options = options.on_damaged_inbox(DamagedInbox::Continue);
        }
        Ok(options)
    }
}

/// Returns whether a text is surely a name, and not a secret that was given by mistake.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A secret that somebody types in, without being shown.
fn asked_for(ui: &Ui, name: &str) -> Result<Secret> {
    let given = ui.ask_hidden(&format!("{name}:")).filter(|given| !given.is_empty());
    let secret = given.map(Secret::new).ok_or_else(|| {
        Error::invalid(format!("nothing was typed in for the secret `{name}`"))
            .hint(format!("type it in, or say where it is: --secret {name}=@env:VARIABLE"))
    })?;
    crate::secrets::masks().learn(name, &secret);
    Ok(secret)
}

/// An error if what a run is given holds a value that is never stored: it would be lost on the way.
pub fn check_input(input: &RunInput, redaction: &Redaction) -> Result<()> {
    let text = input.text.as_deref().map(Json::from);
    let values = Json::from(Value::Object(input.values.clone()));
    let excluded = text.iter().chain([&values]).flat_map(|json| redaction.excluded_values(json)).next();
    excluded.map_or(Ok(()), |(key, _)| Err(by_value(&key)))
}

/// The error for a secret on the command line. The value is not repeated.
fn by_value(key: &str) -> Error {
    Error::invalid(format!("`{key}` is never stored, so it cannot be given by value")).hint(format!(
        "say where it is: --secret {key}=@env:VARIABLE (or @file:path); --secret {key} alone asks for it"
    ))
}

/// The two sides of `name=value`.
pub fn assigned<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => Err(Error::invalid(format!("`{text}` sets nothing")).hint(format!("write {form}"))),
    }
}

/// What `--raise` can say for a budget of which `used` was used: twice as much.
pub fn more_of(budget: &str, used: u64) -> String {
    let twice = used.max(1).saturating_mul(2);
    match budget {
        "cost_micros" => format!("cost={:.2}", (twice as f64 / 1e6).max(0.01)),
        "active_millis" => format!("active_seconds={}", twice.div_ceil(1_000)),
        name => format!("{name}={twice}"),
    }
}

fn raised(name: &str, limit: &str) -> Result<(Budget, u64)> {
    let wrong =
        || Error::invalid(format!("`{limit}` is no limit for {name}")).hint("write a number, e.g. tokens=200000");
    let number = || limit.parse::<u64>().map_err(|_| wrong());
    match name {
        "iterations" => Ok((Budget::Iterations, number()?)),
        "tool_calls" => Ok((Budget::ToolCalls, number()?)),
        "tokens" => Ok((Budget::Tokens, number()?)),
        "active_seconds" => Ok((Budget::ActiveMillis, number()?.saturating_mul(1_000))),
        "cost" => {
            let cost: f64 = limit.parse().map_err(|_| wrong())?;
            if !(0.0..=1e9).contains(&cost) {
                return Err(wrong());
            }
            // Exact to a millionth, which is what budgets count in.
            Ok((Budget::CostMicros, (cost * 1e6).round() as u64))
        }
        _ => Err(Error::invalid(format!("there is no budget `{name}`"))
            .hint("budgets are iterations, tool_calls, tokens, cost and active_seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_to_raise_a_budget_raises_it() {
        let check = |name: &str, used: u64, told: &str, expected: (Budget, u64)| {
            assert_eq!(more_of(name, used), told);
            let (name, limit) = told.split_once('=').unwrap();
            assert_eq!(raised(name, limit).unwrap(), expected);
        };
        check("iterations", 2, "iterations=4", (Budget::Iterations, 4));
        check("cost_micros", 750_000, "cost=1.50", (Budget::CostMicros, 1_500_000));
        check("cost_micros", 3, "cost=0.01", (Budget::CostMicros, 10_000));
        check("active_millis", 900, "active_seconds=2", (Budget::ActiveMillis, 2_000));
    }

    #[test]
    fn fuzzed_budgets() {
        let seeds = ["tokens=200000", "cost=1.5", "active_seconds=60", "iterations=3", "tool_calls=9"];
        rekindle_fuzz::fuzz!("cli-budget").seeds(seeds).text(|text| {
            let (name, limit) = text.split_once('=')?;
            raised(name, limit).ok()
        });
    }
}
