//! Numbers, shapes and tables for people.

use std::fmt;
use std::io::{self, Write};

/// A shape as Python writes it: `()`, `(3,)`, `(2, 3)`.
pub struct Tuple<'a>(pub &'a [usize]);

impl fmt::Display for Tuple<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.0.iter().map(usize::to_string).collect();
        let comma = if extents.len() == 1 { "," } else { "" };
        f.pad(&format!("({}{comma})", extents.join(", ")))
    }
}

/// A time with four digits.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let decimals = match value {
        v if v < 10.0 => 3,
        v if v < 100.0 => 2,
        v if v < 1000.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// A number of bytes in powers of ten, as rates are given.
pub fn bytes(bytes: usize) -> String {
    match bytes as f64 {
        b if b < 1e3 => format!("{bytes} B"),
        b if b < 1e6 => format!("{:.1} kB", b / 1e3),
        b if b < 1e9 => format!("{:.1} MB", b / 1e6),
        b => format!("{:.1} GB", b / 1e9),
    }
}

/// The width that the widest of the texts needs.
pub fn widest(texts: impl Iterator<Item = String>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

/// A table written row by row, since rows take their time to come.
pub struct Table<const COLUMNS: usize> {
    columns: [Column; COLUMNS],
}

/// A column: its title, and how wide it is at least.
pub struct Column {
    title: &'static str,
    width: usize,
    align: Align,
}

enum Align {
    Left,
    Right,
}

impl Column {
    /// For words.
    pub fn left(title: &'static str, width: usize) -> Self {
        Self::new(title, width, Align::Left)
    }

    /// For numbers.
    pub fn right(title: &'static str, width: usize) -> Self {
        Self::new(title, width, Align::Right)
    }

    fn new(title: &'static str, width: usize, align: Align) -> Self {
        Self {
            title,
            width: width.max(title.chars().count()),
            align,
        }
    }
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// A table of these columns.
    pub fn new(columns: [Column; COLUMNS]) -> Self {
        Self { columns }
    }

    /// Writes the titles.
    pub fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        self.row(
            out,
            self.columns
                .each_ref()
                .map(|column| column.title.to_owned()),
        )
    }

    /// Writes a row, at once.
    pub fn row(&self, out: &mut dyn Write, cells: [String; COLUMNS]) -> io::Result<()> {
        let cells: Vec<String> = self
            .columns
            .iter()
            .zip(cells)
            .map(|(column, cell)| match column.align {
                Align::Left => format!("{cell:<width$}", width = column.width),
                Align::Right => format!("{cell:>width$}", width = column.width),
            })
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_written_as_python_tuples() {
        let text = |shape: &[usize]| Tuple(shape).to_string();
        assert_eq!(text(&[]), "()");
        assert_eq!(text(&[3]), "(3,)");
        assert_eq!(text(&[2, 0, 5]), "(2, 0, 5)");
    }

    #[test]
    fn times_have_four_digits() {
        let cases = [
            (0.0, "0.000 µs"),
            (83.456e-6, "83.46 µs"),
            (1.5e-3, "1.500 ms"),
            (123.45e-3, "123.5 ms"),
            (12.0, "12.00 s"),
            (1234.4, "1234 s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn bytes_are_in_powers_of_ten() {
        let cases = [(999, "999 B"), (1500, "1.5 kB"), (8_589_934_592, "8.6 GB")];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_blanks() {
        let table = Table::new([
            Column::left("name", 6),
            Column::right("n", 3),
            Column::left("x", 9),
        ]);
        let mut text = Vec::new();
        table.head(&mut text).unwrap();
        for row in [["µ", "1", "a"], ["longer than it", "1000", ""]] {
            table.row(&mut text, row.map(str::to_owned)).unwrap();
        }
        let expected = "name      n  x\nµ         1  a\nlonger than it  1000\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
