//! The few styles there are. `anstream` takes them out where they cannot be shown.

use anstyle::{AnsiColor, Color, Reset, Style};

const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

/// Something went wrong.
pub const ERROR: Style = colour(AnsiColor::Red).bold();
/// What helps.
pub const HINT: Style = colour(AnsiColor::Cyan).bold();
/// It went well.
pub const GOOD: Style = colour(AnsiColor::Green);
/// It failed.
pub const BAD: Style = colour(AnsiColor::Red);
/// Somebody should look.
pub const WARN: Style = colour(AnsiColor::Yellow);
/// Names of things.
pub const NAME: Style = colour(AnsiColor::Cyan);
/// What can be looked past.
pub const DIM: Style = Style::new().dimmed();
/// What must be seen.
pub const BOLD: Style = Style::new().bold();
/// Back to plain.
pub const RESET: Reset = Reset;

/// The style of a status, by its name.
pub fn of_status(status: &str) -> Style {
    match status {
        "running" => colour(AnsiColor::Blue),
        "waiting" | "paused" | "interrupted" => WARN,
        "succeeded" | "idle" => GOOD,
        "failed" => BAD,
        _ => DIM,
    }
}

/// A sign for a status, so that colour is never needed.
pub fn sign_of_status(status: &str) -> &'static str {
    match status {
        "running" => "▶",
        "waiting" => "?",
        "paused" => "‖",
        "interrupted" => "↯",
        "succeeded" | "idle" => "✓",
        "failed" => "✗",
        "cancelled" => "⊘",
        _ => "·",
    }
}
