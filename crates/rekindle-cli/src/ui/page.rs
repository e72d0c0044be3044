//! A page about one thing: names on the left, what is known on the right, wrapped where it does
//! not fit.

use anstyle::Style;

use super::style;
use super::text::{one_line, width};

/// Names and what is known.
#[derive(Debug, Default)]
pub struct Page(Vec<(&'static str, String, Style)>);

impl Page {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more row. The same name again stands for more of the same.
    pub fn row(&mut self, name: &'static str, text: impl AsRef<str>) {
        self.styled(name, text, Style::new());
    }

    /// One more row, styled.
    pub fn styled(&mut self, name: &'static str, text: impl AsRef<str>, style: Style) {
        self.0.push((name, one_line(text.as_ref()), style));
    }

    /// The lines, each at most `columns` wide as far as words allow.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let left = self.0.iter().map(|(name, ..)| width(name)).max().unwrap_or(0) + 2;
        let mut lines = Vec::new();
        let mut before = "";
        for (name, text, style) in &self.0 {
            let mut shown = if *name == before { "" } else { name };
            before = name;
            for part in wrapped(text, columns.saturating_sub(left).max(16)) {
                let padding = " ".repeat(left - width(shown));
                let (dim, reset) = (style::DIM, style::RESET);
                lines.push(format!("{dim}{shown}{reset}{padding}{}{part}{}", style.render(), style.render_reset()));
                shown = "";
            }
        }
        lines
    }
}

/// `text` in lines of at most `columns`, broken between words.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map(|line| width(line)).unwrap_or(0);
        if line > 0 && line.saturating_add(1).saturating_add(width(word)) > columns {
            lines.push(word.to_owned());
        } else if let Some(last) = lines.last_mut() {
            if line > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_wrapped_between_words() {
        let mut page = Page::new();
        page.row("run", "one two three four five");
        page.row("run", "six");
        page.row("branch", "main");
        let plain: Vec<_> = page.lines(24).iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        assert_eq!(plain, ["run     one two three", "        four five", "        six", "branch  main"]);
        assert_eq!(wrapped("a-word-longer-than-the-line b", 5), ["a-word-longer-than-the-line", "b"]);
    }
}
