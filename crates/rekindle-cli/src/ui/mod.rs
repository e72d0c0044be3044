//! What people see: standard output for what was asked for, standard error for everything said
//! about it. Colour where a terminal shows it, and nowhere else.

pub mod duration;
pub mod live;
pub mod page;
pub mod spans;
pub mod stream;
pub mod style;
pub mod table;
pub mod text;
pub mod time;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use crate::cli::{Colour, Global};
use crate::secrets::masks;

pub use text::{fit, printable, width};

/// How wide output is where there is no terminal.
const PLAIN_WIDTH: usize = 100;

/// Where the program speaks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ui(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    json: bool,
    quiet: bool,
    out: ColorChoice,
    err: ColorChoice,
    /// Whether somebody watches standard error and can be asked on standard input.
    watched: bool,
    asked: bool,
}

impl Ui {
    /// As the global flags, the environment and the terminal say.
    pub fn new(global: &Global) -> Self {
        let chosen = match global.color {
            Colour::Auto => None,
            Colour::Always => Some(ColorChoice::Always),
            Colour::Never => Some(ColorChoice::Never),
        };
        let err = chosen.unwrap_or_else(|| AutoStream::choice(&io::stderr()));
        let watched = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self(Arc::new(Inner {
            json: global.json,
            quiet: global.quiet,
            out: chosen.unwrap_or_else(|| AutoStream::choice(&io::stdout())),
            err,
            watched,
            asked: watched && io::stdin().is_terminal() && !global.no_input,
        }))
    }

    /// Whether programs read the output.
    pub fn is_json(&self) -> bool {
        self.0.json
    }

    /// Whether only what was asked for is said.
    pub fn is_quiet(&self) -> bool {
        self.0.quiet
    }

    /// Whether somebody watches.
    pub fn is_watched(&self) -> bool {
        self.0.watched && !self.0.quiet && !self.0.json
    }

    /// Whether standard output is coloured.
    pub fn has_colour(&self) -> bool {
        !matches!(self.0.out, ColorChoice::Never)
    }

    /// Whether somebody can be asked.
    pub fn can_ask(&self) -> bool {
        self.0.asked && !self.0.json
    }

    /// How wide the output is.
    pub fn width(&self) -> usize {
        match terminal_size::terminal_size_of(io::stdout()).or_else(|| terminal_size::terminal_size_of(io::stderr())) {
            Some((terminal_size::Width(columns), _)) => usize::from(columns).max(20),
            None => PLAIN_WIDTH,
        }
    }

    /// How many lines can be drawn again on standard error.
    pub fn height(&self) -> usize {
        match terminal_size::terminal_size_of(io::stderr()) {
            Some((_, terminal_size::Height(rows))) if rows > 1 => usize::from(rows) - 1,
            _ => usize::MAX,
        }
    }

    /// How wide a table may be: where no terminal reads, nothing is cut.
    pub fn table_width(&self) -> usize {
        if io::stdout().is_terminal() { self.width() } else { usize::MAX }
    }

    /// A line of what was asked for.
    pub fn line(&self, text: impl AsRef<str>) -> io::Result<()> {
        let mut out = AutoStream::new(io::stdout().lock(), self.0.out);
        writeln!(out, "{}", masks().text(text.as_ref()))
    }

    /// What was asked for, as JSON.
    pub fn json<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
        writeln!(out)
    }

    /// One line of JSON among many.
    pub fn json_line<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, value).map_err(io::Error::from)?;
        writeln!(out)?;
        out.flush()
    }

    /// Something said about it. Whoever closed standard error wants to hear nothing.
    pub fn note(&self, text: impl AsRef<str>) {
        let mut err = AutoStream::new(io::stderr().lock(), self.0.err);
        let _ = writeln!(err, "{}", masks().text(text.as_ref()));
    }

    /// The same, unless told to be quiet.
    pub fn remark(&self, text: impl AsRef<str>) {
        if !self.0.quiet && !self.0.json {
            self.note(text);
        }
    }

    /// What helps.
    pub fn hint(&self, text: impl AsRef<str>) {
        self.note(format!("{}hint:{} {}", style::HINT, style::RESET, printable(text.as_ref())));
    }

    /// Text with movements of the cursor, for a terminal on standard error. Colours are taken out
    /// where they are not wanted; movements are not.
    pub fn draw_raw(&self, text: &str) {
        let plain = matches!(self.0.err, ColorChoice::Never);
        let mut err = io::stderr().lock();
        let text = if plain { text::without_colours(text) } else { text.to_owned() };
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }

    /// Text without a line's end on standard error.
    pub fn draw(&self, bytes: &str) {
        let mut err = AutoStream::new(io::stderr().lock(), self.0.err);
        let _ = err.write_all(masks().text(bytes).as_bytes());
        let _ = err.flush();
    }

    /// An error for programs.
    pub fn error_json(&self, value: &serde_json::Value) {
        let _ = writeln!(io::stderr().lock(), "{}", masks().text(&value.to_string()));
    }

    /// Asks for a line; nothing if nobody can be asked or the input has ended.
    pub fn ask(&self, question: &str) -> Option<String> {
        if !self.can_ask() {
            return None;
        }
        self.draw(&format!("{question} "));
        let mut answer = String::new();
        match io::stdin().read_line(&mut answer) {
            Ok(read) if read > 0 => Some(answer.trim().to_owned()),
            _ => None,
        }
    }

    /// Asks for a line that is not shown while it is typed; nothing if nobody can be asked.
    pub fn ask_hidden(&self, question: &str) -> Option<String> {
        if !self.can_ask() {
            return None;
        }
        let _hidden = Hidden::begin()?;
        self.draw(&format!("{question} "));
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        // The end of the line was not shown either.
        self.draw("\n");
        read.ok().filter(|read| *read > 0).map(|_| answer.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Asks a yes-or-no question; no if nobody can be asked.
    pub fn confirm(&self, question: &str) -> bool {
        if !self.can_ask() {
            return false;
        }
        self.draw(&format!("{question} [y/N] "));
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }
}

/// Keeps what is typed on standard input from being shown, as long as it is held.
struct Hidden(rustix::termios::Termios);

impl Hidden {
    fn begin() -> Option<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin()).ok()?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).ok()?;
        Some(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Flush, &self.0);
    }
}
