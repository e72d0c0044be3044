//! The clients: where each keeps its configuration, and in which form.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rekindle::{Error, Result};
use serde_json::{Value, json};

use super::{Launch, NAME, json as json_file, toml as toml_file};

/// A client whose configuration is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Claude Code, this project.
    ClaudeCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Cursor.
    Cursor,
    /// VS Code, this folder.
    Vscode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Windsurf.
    Windsurf,
    /// Zed.
    Zed,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ClaudeCode,
        Self::ClaudeDesktop,
        Self::Cursor,
        Self::Vscode,
        Self::Codex,
        Self::Gemini,
        Self::Windsurf,
        Self::Zed,
    ];

    /// As it is said on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Windsurf => "windsurf",
            Self::Zed => "zed",
        }
    }

    /// As people call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
        }
    }

    /// Where its configuration is: in this folder, or under the user's home.
    pub fn path(self, home: Option<&Path>) -> Result<PathBuf> {
        let under_home = match self {
            Self::ClaudeCode => return Ok(".mcp.json".into()),
            Self::Vscode => return Ok(".vscode/mcp.json".into()),
            Self::ClaudeDesktop if cfg!(target_os = "macos") => {
                "Library/Application Support/Claude/claude_desktop_config.json"
            }
            Self::ClaudeDesktop => ".config/Claude/claude_desktop_config.json",
            Self::Cursor => ".cursor/mcp.json",
            Self::Codex => ".codex/config.toml",
            Self::Gemini => ".gemini/settings.json",
            Self::Windsurf => ".codeium/windsurf/mcp_config.json",
            Self::Zed => ".config/zed/settings.json",
        };
        home.map(|home| home.join(under_home))
            .ok_or_else(|| Error::not_found("the user's home is not known").hint("set HOME"))
    }

    /// The entry, as it stands in a file that holds nothing else.
    pub fn entry(self, launch: &Launch) -> Result<String> {
        self.merged("", launch).map(|text| text.trim_end().to_owned())
    }

    /// A configuration with the entry; everything else stays as it is.
    pub fn merged(self, text: &str, launch: &Launch) -> Result<String> {
        match self {
            Self::Codex => toml_file::merged(text, "mcp_servers", NAME, launch),
            _ => json_file::merged(text, self.table(), NAME, &self.value(launch)),
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            _ => "mcpServers",
        }
    }

    fn value(self, launch: &Launch) -> Value {
        let Launch { command, arguments } = launch;
        match self {
            Self::ClaudeCode | Self::Vscode => json!({ "type": "stdio", "command": command, "args": arguments }),
            _ => json!({ "command": command, "args": arguments }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_command_line() {
        for client in Client::ALL {
            let said = client.to_possible_value().unwrap();
            assert_eq!(said.get_name(), client.name());
        }
        assert_eq!(Client::ALL.len(), Client::value_variants().len());
    }

    #[test]
    fn every_entry_can_be_put_twice() {
        let launch = Launch { command: "/bin/rekindle".to_owned(), arguments: vec!["mcp".to_owned()] };
        for client in Client::ALL {
            let once = client.merged("", &launch).unwrap();
            assert!(once.contains("/bin/rekindle"), "{once}");
            assert_eq!(client.merged(&once, &launch).unwrap(), once, "{client:?}");
        }
    }
}
