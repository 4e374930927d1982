//! The rows of a CSV file, with columns by name.

/// A CSV file without quotes.
pub(crate) struct Table<'a> {
    columns: Vec<&'a str>,
    rows: Vec<Vec<&'a str>>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(csv: &'a str) -> Table<'a> {
        let mut rows = csv.lines().map(|line| line.split(',').collect());
        Table { columns: rows.next().unwrap_or_default(), rows: rows.collect() }
    }

    /// The rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_, 'a>> {
        self.rows.iter().enumerate().map(|(at, cells)| Row { table: self, at, cells })
    }
}

/// A row of a table.
#[derive(Clone, Copy)]
pub(crate) struct Row<'t, 'a> {
    table: &'t Table<'a>,
    at: usize,
    cells: &'t [&'a str],
}

impl<'a> Row<'_, 'a> {
    /// The text in a column.
    pub(crate) fn text(&self, column: &str) -> Result<&'a str, String> {
        let at = self.table.columns.iter().position(|name| *name == column);
        let cell = at.and_then(|at| self.cells.get(at));
        cell.copied().ok_or_else(|| format!("line {}: no column `{column}`", self.at + 2))
    }

    /// The number in a column.
    pub(crate) fn number(&self, column: &str) -> Result<f64, String> {
        let text = self.text(column)?;
        text.parse().map_err(|_| format!("line {}: {column} is `{text}`", self.at + 2))
    }
}

#[test]
fn errors_name_the_line() {
    let table = Table::new("a,b\n1,2\n3\n");
    let read: Vec<_> = table.rows().map(|row| row.number("b")).collect();
    assert_eq!(read, [Ok(2.0), Err("line 3: no column `b`".to_owned())]);
    let table = Table::new("a\nx\n");
    let read: Vec<_> = table.rows().map(|row| row.number("a")).collect();
    assert_eq!(read, [Err("line 2: a is `x`".to_owned())]);
}
