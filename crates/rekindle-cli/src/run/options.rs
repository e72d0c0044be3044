//! What can be said when a run is started or resumed.

use clap::{Args, ValueEnum};
use rekindle::record::Durability;
use rekindle::{Budget, Error, OnWait, Result, ResumeOptions, RunOptions, SecretRef};

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
    /// Says where a secret is: NAME=@env:VARIABLE, @file:path, @keychain:service/account
    #[arg(long, value_name = "NAME=@REFERENCE", help_heading = "What it is told")]
    pub secret: Vec<String>,
    /// Raises a budget: iterations, tool_calls, tokens, cost (e.g. 1.50) or active_seconds
    #[arg(long, value_name = "BUDGET=LIMIT", help_heading = "What it is told")]
    pub raise: Vec<String>,
    /// Goes on although the file, a tool or the model changed since; recorded
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "accepted on the command line", help_heading = "What it is told")]
    pub accept_drift: Option<String>,
}

impl RunArguments {
    /// Where secrets are. What is wrong with one is said without repeating it: it may be a secret.
    pub fn secrets(&self) -> Result<Vec<(String, SecretRef)>> {
        let named = self.secret.iter().map(|assignment| {
            let (name, reference) = assigned(assignment, "")
                .map_err(|_| Error::invalid("a secret needs a name").hint("write --secret NAME=@env:VARIABLE"))?;
            Ok((name.to_owned(), reference.parse()?))
        });
        named.collect()
    }

    /// Adds what was said.
    pub fn add_to(&self, mut options: ResumeOptions) -> Result<ResumeOptions> {
        for assignment in &self.set {
            let (key, value) = assigned(assignment, "--set KEY=VALUE")?;
            options = options.set(key, value);
        }
        for (name, reference) in self.secrets()? {
            options = options.secret(name, reference.as_str())?;
        }
        for assignment in &self.raise {
            let (name, limit) = assigned(assignment, "--raise tokens=200000")?;
            let (budget, limit) = raised(name, limit)?;
            options = options.raise(budget, limit);
        }
        if let Some(reason) = &self.accept_drift {
            options = options.accept_drift(reason);
        }
        Ok(options)
    }
}

/// The two sides of `name=value`.
pub fn assigned<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => Err(Error::invalid(format!("`{text}` sets nothing")).hint(format!("write {form}"))),
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
