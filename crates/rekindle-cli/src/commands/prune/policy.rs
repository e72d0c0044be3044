//! What to keep, as people say it.

use std::time::Duration;

use clap::Args;
use rekindle::core::retention::{Policy, Rule};
use rekindle::{Error, Result, RunOptions};

use crate::app::App;
use crate::ui::duration;

/// What to keep.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Keep {
    /// Keeps the newest N of each branch
    #[arg(long, value_name = "N")]
    keep_last: Option<usize>,
    /// Keeps those made within this time, e.g. 30d
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    max_age: Option<Duration>,
    /// Keeps the newest whose history fits this size, e.g. 10MB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_bytes: Option<u64>,
    /// Keeps those with this tag; may be said more than once
    #[arg(long, value_name = "TAG")]
    tagged: Vec<String>,
    /// Keeps only the newest of each branch, and what always stays
    #[arg(long)]
    latest_only: bool,
    /// The rules count only checkpoints after which nothing had failed
    #[arg(long)]
    clean_only: bool,
}

impl Keep {
    /// The policy: what was said, or else what the configuration says.
    pub fn policy(&self, app: &App) -> Result<Policy> {
        let mut rules: Vec<Rule> = self.tagged.iter().cloned().map(Rule::Tagged).collect();
        rules.extend(self.keep_last.map(Rule::LastN));
        rules.extend(self.max_age.map(Rule::MaxAge));
        rules.extend(self.max_bytes.map(Rule::MaxBytes));
        rules.extend(self.latest_only.then_some(Rule::LatestOnly));
        if !rules.is_empty() {
            return Ok(Policy::new(rules).with_clean_only(self.clean_only));
        }
        let mut options = RunOptions::default();
        app.settings.adjustment()(&mut options);
        let configured = options.retention.map(|policy| policy.with_clean_only(self.clean_only));
        configured.ok_or_else(|| {
            Error::invalid("nothing says what to keep")
                .hint("say --keep-last N, --max-age TIME, --max-bytes SIZE, --tagged TAG or --latest-only")
        })
    }
}

/// A size: `500`, `64kB`, `10MB`, `1GB`.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write for example 500kB, 10MB or 1GB");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read() {
        assert_eq!(
            [size("500"), size("64kB"), size("10 MB"), size("1g")],
            [Ok(500), Ok(64_000), Ok(10_000_000), Ok(1_000_000_000)]
        );
        for wrong in ["", "MB", "-1", "1.5MB", "5 apples", "99999999999999999999", "99999999999999GB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
