//! `rekindle completions`: what makes a shell complete commands, flags and sessions.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use clap_complete::env::Shells;
use rekindle::{Error, ErrorKind};
use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;

/// Which shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  echo 'source <(rekindle completions bash)' >> ~/.bashrc\n  echo 'source <(rekindle completions zsh)' >> ~/.zshrc\n  rekindle completions fish > ~/.config/fish/completions/rekindle.fish\n\nSessions are completed too: the latest of the store that the line, the environment or rekindle.toml names."
)]
pub struct Arguments {
    /// The shell: bash, zsh, fish, elvish or powershell
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
            Self::Elvish => "elvish",
            Self::Powershell => "powershell",
        }
    }

    /// The line that turns completion on for good, and where it goes.
    fn line(self) -> (&'static str, &'static str) {
        match self {
            Self::Bash => ("source <(rekindle completions bash)", "~/.bashrc"),
            Self::Zsh => ("source <(rekindle completions zsh)", "~/.zshrc"),
            Self::Fish => ("rekindle completions fish | source", "~/.config/fish/config.fish"),
            Self::Elvish => ("eval (rekindle completions elvish | slurp)", "~/.config/elvish/rc.elv"),
            Self::Powershell => ("rekindle completions powershell | Out-String | Invoke-Expression", "$PROFILE"),
        }
    }
}

impl Arguments {
    /// Prints it.
    pub async fn run(self, app: &App) -> Outcome {
        let (line, file) = self.shell.line();
        let script = script(self.shell.name())?;
        if app.ui.is_json() {
            app.ui.json(&json!({"shell": self.shell.name(), "line": line, "file": file, "script": script}))?;
            return Ok(Exit::Ok);
        }
        app.ui.line(script.trim_end())?;
        if std::io::stdout().is_terminal() {
            app.ui.remark(format!("to turn completion on, put this line into {file}:\n  {line}"));
        }
        Ok(Exit::Ok)
    }
}

/// What the shell runs. It asks this program at every Tab, by the variable `COMPLETE`.
fn script(shell: &str) -> Result<String, Error> {
    let failed = || Error::new(ErrorKind::Unsupported, format!("there is no completion for {shell}"));
    let mut bytes = Vec::new();
    let completer = Shells::builtins();
    let completer = completer.completer(shell).ok_or_else(failed)?;
    completer.write_registration("COMPLETE", "rekindle", "rekindle", "rekindle", &mut bytes).map_err(|_| failed())?;
    String::from_utf8(bytes).map_err(|_| failed())
}
