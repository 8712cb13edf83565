//! Aligned columns.

use crate::output::Style;

/// How a column is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Left,
    Right,
    /// Right, and in bold.
    Main,
}

/// A table: a header and rows of as many cells.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with the given columns and header.
    pub fn new(header: &[(&str, Column)]) -> Table {
        let names = header.iter().map(|(name, _)| (*name).to_owned()).collect();
        Table { columns: header.iter().map(|(_, column)| *column).collect(), rows: vec![names] }
    }

    /// Adds a row. Control characters, which a file may put into a name, are shown and not obeyed.
    pub fn row(&mut self, cells: Vec<String>) {
        let shown = |cell: String| {
            cell.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
        };
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// The table as text, two spaces between columns, none at the end of a line.
    pub fn render(&self, style: Style) -> String {
        let width = |n: usize| self.rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for ((cell, &column), &width) in row.iter().zip(&self.columns).zip(&widths) {
                let padding = " ".repeat(width - cell.chars().count());
                let cell = if number == 0 || column == Column::Main { style.bold(cell) } else { cell.clone() };
                line +=
                    &if column == Column::Left { format!("{cell}{padding}  ") } else { format!("{padding}{cell}  ") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}
