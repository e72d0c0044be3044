//! The command line: what is said for every command, and which commands there are.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::commands;

/// How the help looks.
const STYLES: clap::builder::Styles = clap::builder::Styles::styled()
    .header(crate::ui::style::BOLD)
    .usage(crate::ui::style::BOLD)
    .literal(crate::ui::style::NAME)
    .placeholder(crate::ui::style::DIM);

const AFTER: &str = "\
First steps:
  rekindle demo                      see it die and go on, offline, in seconds
  rekindle init                      write a first agent file
  rekindle run agent.yaml \"hello\"    run it
  rekindle resume @                  go on after a crash or a pause

A SESSION is an id, the beginning of one, or @ for the latest (@-1 for the one before).
A MOMENT is SESSION, or SESSION@WHERE with WHERE a checkpoint, a branch, branch:seq, step:N or ~N.";

/// Durable AI agent work: it dies at any instant and goes on exactly where it was.
#[derive(Debug, Parser)]
#[command(name = "rekindle", version, about, after_help = AFTER, styles = STYLES, max_term_width = 100)]
#[command(propagate_version = true, disable_help_subcommand = true, subcommand_required = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What can be said for every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// Where sessions are: sqlite:./rekindle.db, file:./dir, postgres://…, redis://…, s3://…
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Whose sessions are meant
    #[arg(long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The configuration file, instead of the nearest rekindle.toml
    #[arg(long, global = true, value_name = "FILE", env = "REKINDLE_CONFIG", hide_env = true)]
    pub config: Option<PathBuf>,
    /// Sets a key of the configuration, e.g. run.durability=sync
    #[arg(short = 'c', long = "configure", global = true, value_name = "KEY=VALUE")]
    pub configure: Vec<String>,
    /// Writes JSON: one document on standard output, errors on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub color: Colour,
    /// Says only what was asked for
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Never asks anything
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Use what is found here without asking, this time; also REKINDLE_TRUST=1. For CI
    #[arg(long, global = true, env = "REKINDLE_TRUST", hide_env = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub trust: bool,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

macro_rules! commands {
    ($($(#[$about:meta])* $name:ident => $module:ident;)*) => {
        /// The commands.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[$about])* $name(commands::$module::Arguments),)*
        }

        impl Command {
            /// Does what was asked for.
            pub async fn run(self, app: &crate::app::App) -> crate::failure::Outcome {
                match self {
                    $(Self::$name(arguments) => arguments.run(app).await,)*
                }
            }
        }
    };
}

commands! {
    /// Shows it all offline: an agent is killed again and again, and goes on
    Demo => demo;
    /// Runs an agent, a plan or a graph from a file
    Run => run;
    /// Goes on with a session after a crash, a pause, a failure or an answer
    Resume => resume;
    /// Has workers run a file, or go on with a session
    Enqueue => enqueue;
    /// Takes the job of a session out of its queue
    Dequeue => dequeue;
    /// Runs what is in the queues, until it is told to stop
    Worker => worker;
    /// Serves durable work to other agents, over the Model Context Protocol
    Mcp => mcp;
    /// Lists the workers that live
    Workers => workers;
    /// Says what is in the queues, and lists jobs
    Queues => queues;
    /// Finds, shows and removes sessions
    #[command(visible_alias = "ls")]
    Sessions => sessions;
    /// Draws the history of a session, its branches side by side
    Log => log;
    /// Draw a graph from a file, or with the path of a session
    Graph => graph;
    /// Shows what changed between two moments
    Diff => diff;
    /// Walks through a session again as it was, or compares it with another
    Replay => replay;
    /// Lists everything that waits for somebody
    #[command(visible_alias = "inbox")]
    Waits => waits;
    /// Answers what a session waits for
    Answer => answer;
    /// Gives a session the signal it waits for
    Signal => signal;
    /// Sends a session a message, whoever runs it, now or later
    Send => send;
    /// Has a run stop, to be resumed
    Pause => pause;
    /// Ends a run for good
    Cancel => cancel;
    /// Marks where a session is; pins and tags checkpoints
    Checkpoint => checkpoint;
    /// Says what became of a call of which nobody knows whether it happened
    Settle => settle;
    /// Starts another line of history at any moment, with changes if need be
    Fork => fork;
    /// Changes the state of a session, on the record
    Edit => edit;
    /// Removes checkpoints and sessions nobody needs any more
    Prune => prune;
    /// Find and clear what processes left over that died
    Gc => gc;
    /// Reads and checks every byte of sessions
    Verify => verify;
    /// Looks after the keys of encrypted sessions
    Keys => keys;
    /// Writes a session as one portable file
    Export => export;
    /// Reads exported files, and what other programs stored
    Import => import;
    /// Copies sessions to another store
    Copy => copy;
    /// Puts sessions away in object storage, and brings them back
    Archive => archive;
    /// Writes a first agent, plan or graph to try
    Init => init;
    /// Trust configuration and agents that are found, after looking at what they may do
    Trust => trust;
    /// Checks that everything is in order
    Doctor => doctor;
    /// Shows the effective configuration and where it comes from
    Config => config;
    /// Prints the JSON Schemas of the files you write
    Schema => schema;
    /// Explains an error code, or lists them all
    Explain => explain;
    /// Shows help on a command or a topic
    Help => help;
    /// Prints what makes a shell complete commands and sessions
    Completions => completions;
    /// Writes the manual pages
    Man => man;
    /// Says which version this is, and what is in it
    Version => version;
}

impl Command {
    /// Returns whether it works although the configuration that was found is refused.
    pub fn needs_no_configuration(&self) -> bool {
        matches!(
            self,
            Self::Trust(_)
                | Self::Doctor(_)
                | Self::Init(_)
                | Self::Help(_)
                | Self::Explain(_)
                | Self::Schema(_)
                | Self::Completions(_)
                | Self::Man(_)
                | Self::Version(_)
        )
    }
}

/// Reads the command line. Ends the program for help, a version or a mistake.
pub fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|mistake| {
        let json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
        if json && mistake.use_stderr() {
            let _ = writeln!(std::io::stderr(), "{}", crate::failure::describe_usage(&mistake));
            std::process::exit(crate::exit::Exit::Usage.code().into());
        }
        mistake.exit()
    })
}

/// The whole command line, for completions, manual pages and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Answers a shell that asks what may come next, if one does.
pub fn answer_completions() {
    clap_complete::CompleteEnv::with_factory(|| crate::complete::offering(command())).complete();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    /// `docs/commands.md` is the help of every command; `UPDATE_GOLDEN=1` writes it.
    #[test]
    fn the_reference_is_what_help_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
        let mut text = "# Commands\n\nWhat `rekindle help COMMAND` says, all of it.\n".to_owned();
        describe(&mut text, command().bin_name("rekindle").term_width(100), "rekindle");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let agreed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(agreed == text, "docs/commands.md differs; UPDATE_GOLDEN=1 accepts it");
    }

    fn describe(text: &mut String, mut command: clap::Command, name: &str) {
        command.build();
        let help = command.render_help().to_string();
        // What can be said everywhere is said once.
        let own = if name == "rekindle" {
            help
        } else {
            help.split("\nEverywhere:").next().unwrap_or_default().to_owned() + behind(&help)
        };
        text.push_str(&format!(
            "\n## {name}\n\n```text\n{}\n```\n",
            own.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
        ));
        let subcommands: Vec<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
        for subcommand in subcommands {
            let name = format!("{name} {}", subcommand.get_name());
            describe(text, subcommand.bin_name(name.clone()).term_width(100), &name);
        }
    }

    /// What stands behind the options that can be said everywhere.
    fn behind(help: &str) -> &str {
        let rest = help.split_once("\nEverywhere:").map_or("", |(_, rest)| rest);
        rest.find("\nExample").map_or("", |start| &rest[start..])
    }

    /// Arguments are separated by blanks.
    #[test]
    fn fuzzed_arguments() {
        let seeds = [
            "sessions list --limit 5",
            "run agent.yaml hello --json",
            "fork ses_1@main:4 --name x",
            "-c store=memory: config",
            "worker --queue a --for 5s",
        ];
        let words = ["--", "-", "--json ", "--limit ", "-c ", " @ ", "--store ", "=", "--help"];
        rekindle_fuzz::fuzz!("cli-arguments").seeds(seeds).words(words).costly(8).memory(64 << 20, 1_000).text(
            |text| {
                let arguments = std::iter::once("rekindle").chain(text.split_ascii_whitespace());
                let _ = <Cli as clap::Parser>::try_parse_from(arguments);
            },
        );
    }
}
