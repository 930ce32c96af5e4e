//! Aligned tables: words to the left, numbers to the right, two spaces between columns.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::cli::output::Style;

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table being built.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    /// Characters to a line of words.
    longest: usize,
}

/// Between columns.
const GAP: &str = "  ";

impl Table {
    /// A table with these columns; no heading line when every title is empty.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
            longest: usize::MAX,
        }
    }

    /// The same with words of more than `longest` characters on several lines.
    #[must_use]
    pub fn wrapped(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert!(N <= self.columns.len(), "a row has more cells than columns");
        let columns = self.columns.iter().zip(cells);
        let lines: Vec<Vec<String>> = columns
            .map(|((_, align), cell)| match align {
                Align::Left if cell.chars().count() > self.longest => {
                    let lines = textwrap::wrap(&cell, self.longest);
                    lines.into_iter().map(Cow::into_owned).collect()
                }
                _ => vec![cell],
            })
            .collect();
        let height = lines.iter().map(Vec::len).max().unwrap_or(0);
        let line = |at: usize| {
            let of = |cell: &Vec<String>| cell.get(at).cloned().unwrap_or_default();
            lines.iter().map(of).collect()
        };
        self.rows.extend((0..height).map(line));
    }

    /// No rows yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, every line indented and ended.
    pub fn render(&self, indent: usize, style: Style) -> String {
        let widths = self.widths();
        let mut text = String::new();
        if self.columns.iter().any(|(title, _)| !title.is_empty()) {
            let titles: Vec<String> = self
                .columns
                .iter()
                .map(|(title, _)| (*title).to_owned())
                .collect();
            let line = self.line(&titles, &widths);
            let _ = writeln!(text, "{:indent$}{}", "", style.heading(&line));
        }
        for row in &self.rows {
            let _ = writeln!(text, "{:indent$}{}", "", self.line(row, &widths));
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let cell_width =
            |row: &Vec<String>, at: usize| row.get(at).map_or(0, |c| c.chars().count());
        self.columns
            .iter()
            .enumerate()
            .map(|(at, (title, _))| {
                let widest = self
                    .rows
                    .iter()
                    .map(|row| cell_width(row, at))
                    .max()
                    .unwrap_or(0);
                widest.max(title.chars().count())
            })
            .collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let shown: Vec<String> = self
            .columns
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(at, ((_, align), &width))| {
                let cell = cells.get(at).map_or("", String::as_str);
                match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                }
            })
            .collect();
        shown.join(GAP).trim_end().to_owned()
    }
}

/// Name and value pairs under each other.
pub fn pairs(rows: &[(&str, String)], indent: usize) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left)]);
    for (name, value) in rows {
        table.row([(*name).to_owned(), value.clone()]);
    }
    table.render(indent, Style::PLAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let mut table = Table::new(&[("Model", Align::Left), ("Size", Align::Right)]);
        table.row(["tiny".to_owned(), "9.1 MiB".to_owned()]);
        table.row(["größer".to_owned(), "12.25 GiB".to_owned()]);
        assert_eq!(
            table.render(2, Style::PLAIN),
            "  Model        Size\n  tiny      9.1 MiB\n  größer  12.25 GiB\n"
        );
    }

    #[test]
    fn long_words_go_on_below_and_numbers_stand_with_their_first_line() {
        let columns = [("Candidate", Align::Left), ("t/s", Align::Right)];
        let mut table = Table::new(&columns).wrapped(16);
        table.row([
            "micro-batch 256, flash attention on".to_owned(),
            "120".to_owned(),
        ]);
        table.row(["poll 0".to_owned(), "99".to_owned()]);
        assert_eq!(
            table.render(0, Style::PLAIN),
            "Candidate         t/s\nmicro-batch 256,  120\nflash attention\non\npoll 0             99\n"
        );
    }

    #[test]
    fn a_table_without_titles_has_no_heading_line() {
        assert_eq!(
            pairs(
                &[("CPU", "i7".to_owned()), ("Memory", "16 GiB".to_owned())],
                0
            ),
            "CPU     i7\nMemory  16 GiB\n"
        );
    }
}
