//! The command line, parsed by hand: four flags and the names of groups.

use std::path::PathBuf;

use crate::groups::Group;

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Measure.
    Run(Options),
    /// Tell how to use this.
    Help,
}

/// What to measure, and how to tell it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    groups: Vec<String>,
    /// Less than 45 seconds per group.
    pub quick: bool,
    /// One JSON object per figure and line, instead of a table.
    pub json: bool,
    /// Fail if a bar is missed.
    pub check: bool,
    /// Where to put the data.
    pub directory: Option<PathBuf>,
}

impl Options {
    /// Whether a group is to be measured: all are if none was named.
    pub fn wants(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|name| name == group)
    }
}

/// Parses the arguments behind the program's name, given the names of the groups.
pub fn parse(arguments: impl IntoIterator<Item = String>, groups: &[&str]) -> Result<Command, String> {
    let mut options = Options::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--quick" => options.quick = true,
            "--json" => options.json = true,
            "--check" => options.check = true,
            "--dir" => options.directory = Some(path(arguments.next())?),
            flag if flag.starts_with("--dir=") => options.directory = Some(path(flag.get(6..).map(str::to_owned))?),
            flag if flag.starts_with('-') => return Err(format!("there is no flag `{flag}`")),
            group if groups.contains(&group) => options.groups.push(argument),
            group => return Err(format!("there is no group `{group}`; the groups are: {}", groups.join(", "))),
        }
    }
    Ok(Command::Run(options))
}

fn path(value: Option<String>) -> Result<PathBuf, String> {
    value.filter(|value| !value.is_empty()).map(PathBuf::from).ok_or_else(|| "--dir needs a path".to_owned())
}

/// How to use this.
pub fn help(groups: &[Group]) -> String {
    let mut text = String::from(
        "Measures Rekindle against the floor of this machine. See docs/performance.md.

Usage: rekindle-bench [GROUP…] [--quick] [--json] [--check] [--dir PATH]

Groups (all if none is named):
",
    );
    for group in groups {
        text.push_str(&format!("  {:<12} {}\n", group.name, group.about));
    }
    text.push_str(
        "
Flags:
  --quick      smaller samples: less than 45 seconds per group
  --json       one JSON object per figure and line instead of a table
  --check      exit with 1 if a bar is missed
  --dir PATH   put the data in a new directory under PATH, on the disk to measure
               (default: under ./target); it is removed afterwards
  -h, --help   this text

Exit codes: 0 done, 1 a bar was missed (with --check), 2 wrong call or failed measurement.
",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str], expected: Result<Command, &str>) {
        let parsed = parse(arguments.iter().map(|&argument| argument.to_owned()), &["journal", "engine"]);
        assert_eq!(parsed, expected.map_err(str::to_owned), "{arguments:?}");
    }

    #[test]
    fn flags_and_groups_come_in_any_order() {
        check(&[], Ok(Command::Run(Options::default())));
        check(&["journal", "--help", "--nonsense"], Ok(Command::Help));
        let options = Options {
            groups: vec!["journal".into()],
            quick: true,
            json: true,
            check: true,
            directory: Some("/data".into()),
        };
        check(&["--quick", "journal", "--json", "--check", "--dir", "/data"], Ok(Command::Run(options)));
        let options = Options { directory: Some("x".into()), ..Options::default() };
        check(&["--dir=x"], Ok(Command::Run(options)));
    }

    #[test]
    fn what_is_unknown_is_named() {
        check(&["--fast"], Err("there is no flag `--fast`"));
        check(&["jornal"], Err("there is no group `jornal`; the groups are: journal, engine"));
        check(&["--dir"], Err("--dir needs a path"));
        check(&["--dir="], Err("--dir needs a path"));
    }

    #[test]
    fn every_call_in_the_documentation_is_understood() {
        let document = include_str!("../../../docs/performance.md");
        let names: Vec<_> = crate::groups::GROUPS.iter().map(|group| group.name).collect();
        let calls = document.lines().filter_map(|line| line.strip_prefix("cargo run --release -p rekindle-bench"));
        let mut seen = 0;
        for call in calls {
            let call = call.split('#').next().unwrap_or_default();
            let arguments = call.split_whitespace().skip_while(|word| *word == "--").map(str::to_owned);
            assert!(matches!(parse(arguments, &names), Ok(Command::Run(_))), "{call}");
            seen += 1;
        }
        assert!(seen >= 5, "only {seen} calls were found");
        for name in names {
            assert!(document.contains(&format!("## Group `{name}`")), "the group {name} is not described");
        }
    }

    #[test]
    fn no_group_means_all() {
        assert!(Options::default().wants("journal"));
        let options = Options { groups: vec!["engine".into()], ..Options::default() };
        assert!(options.wants("engine") && !options.wants("journal"));
    }
}
