//! The part of a terminal that is drawn again and again: lines that stay are printed above it.

use super::Ui;
use super::text::{shorten, width};

/// A region at the bottom of the terminal. Without a terminal it shows nothing, and lines that
/// stay are printed all the same.
#[derive(Debug)]
pub struct Live {
    ui: Ui,
    shown: usize,
}

impl Live {
    /// Shows nothing yet.
    pub fn new(ui: Ui) -> Self {
        Self { ui, shown: 0 }
    }

    /// Prints a line that stays.
    pub fn keep(&mut self, line: &str) {
        self.clear();
        self.ui.note(line);
    }

    /// Shows `lines` in place of what was shown.
    pub fn show(&mut self, lines: &[String]) {
        if !self.ui.is_watched() {
            return;
        }
        let columns = self.ui.width().saturating_sub(1);
        // Lines that have left the terminal could not be taken back either; the last say most.
        let lines = &lines[lines.len().saturating_sub(self.ui.height())..];
        let mut drawing = self.erasing();
        for line in lines {
            // A line that wraps could not be taken back.
            let line = if width(line) > columns {
                shorten(&anstream::adapter::strip_str(line).to_string(), columns)
            } else {
                line.clone()
            };
            drawing.push_str(&line);
            drawing.push('\n');
        }
        self.shown = lines.len();
        self.ui.draw_raw(&drawing);
    }

    /// Takes away what is shown.
    pub fn clear(&mut self) {
        if self.shown > 0 {
            let erasing = self.erasing();
            self.ui.draw_raw(&erasing);
            self.shown = 0;
        }
    }

    fn erasing(&self) -> String {
        match self.shown {
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r\u{1b}[J"),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}
