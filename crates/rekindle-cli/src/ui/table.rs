//! Tables without frames: columns padded to what stands in them, one column cut if all is too wide.

use super::style;
use super::text::{shorten, width};

/// Rows under a header.
#[derive(Debug)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// The column that gives way when there is no room.
    elastic: usize,
}

/// One cell: plain text and how it looks.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: anstyle::Style,
}

impl Cell {
    /// Plain text.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self { text: super::text::one_line(text.as_ref()), style: anstyle::Style::new() }
    }

    /// With a style.
    pub fn styled(text: impl AsRef<str>, style: anstyle::Style) -> Self {
        Self { style, ..Self::new(text) }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

impl Table {
    /// With these columns; the last one gives way.
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new(), elastic: header.len().saturating_sub(1) }
    }

    /// The column that gives way instead.
    #[must_use]
    pub fn elastic(mut self, column: usize) -> Self {
        self.elastic = column;
        self
    }

    /// One more row.
    pub fn row<I>(&mut self, cells: I)
    where
        I: IntoIterator,
        I::Item: Into<Cell>,
    {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines, each at most `columns` wide as far as that can be.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let mut widths: Vec<usize> = self.header.iter().map(|name| width(name)).collect();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                widths[column] = widths[column].max(width(&cell.text));
            }
        }
        self.give_way(&mut widths, columns);
        let header: Vec<Cell> = self.header.iter().map(|name| Cell::styled(name, style::DIM)).collect();
        std::iter::once(&header).chain(&self.rows).map(|row| line(row, &widths)).collect()
    }

    fn give_way(&self, widths: &mut [usize], columns: usize) {
        let total: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let mut over = total.saturating_sub(columns);
        // First the elastic column, then whichever is widest.
        let mut column = self.elastic;
        while over > 0 && widths[column] > 4 {
            let given = over.min(widths[column] - 4);
            widths[column] -= given;
            over -= given;
            column = (0..widths.len()).max_by_key(|column| widths[*column]).unwrap_or(0);
        }
    }
}

fn line(row: &[Cell], widths: &[usize]) -> String {
    let mut line = String::new();
    for (column, cell) in row.iter().enumerate() {
        let text = shorten(&cell.text, widths[column]);
        let padding = widths[column] - width(&text);
        line.push_str(&format!("{}{text}{}", cell.style.render(), cell.style.render_reset()));
        if column + 1 < row.len() {
            line.push_str(&" ".repeat(padding + 2));
        }
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_give_way() {
        let mut table = Table::new(&["ID", "TITLE"]);
        table.row(["ses_1", "a rather long title"]);
        table.row(["x", "y"]);
        let plain: Vec<_> = table.lines(16).iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        assert_eq!(plain, ["ID     TITLE", "ses_1  a rather…", "x      y"]);
    }
}
