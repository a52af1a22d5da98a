//! Markdown tables that are printed row by row, and their numbers as text. Measures nothing.

/// The width of each column; and how many of them, the first ones, are words and aligned to the
/// left.
pub(crate) struct Table(Vec<usize>, usize);

impl Table {
    /// Prints the titles, each as wide as its column.
    pub(crate) fn begin(titles: &str, words: usize) -> Self {
        let titles: Vec<&str> = titles.split(" | ").collect();
        let table = Self(titles.iter().map(|title| title.chars().count()).collect(), words);
        table.row(titles.iter().map(|title| title.trim().to_owned()));
        let rule = |(column, width): (usize, &usize)| {
            "-".repeat(width + 1) + if column < words { "-" } else { ":" }
        };
        println!("|{}|", table.0.iter().enumerate().map(rule).collect::<Vec<_>>().join("|"));
        table
    }

    pub(crate) fn row(&self, cells: impl IntoIterator<Item = String>) {
        let pad = |(column, (cell, &width)): (usize, (String, &usize))| {
            if column < self.1 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = cells.into_iter().zip(&self.0).enumerate().map(pad).collect();
        println!("| {} |", cells.join(" | "));
    }
}

/// A table in which the documents show figures, made of cells: each has the title of its row, that
/// of its column, and its text.
pub(crate) struct Summary(Vec<[String; 3]>);

impl Summary {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, row: &str, column: &str, cell: String) {
        self.0.push([row.to_owned(), column.to_owned(), cell]);
    }

    /// Empty if there is none.
    pub(crate) fn cell(&self, row: &str, column: &str) -> &str {
        let cell = self.0.iter().find(|cell| cell[0] == row && cell[1] == column);
        cell.map_or("", |cell| &cell[2])
    }

    /// Prints rows and columns in the order in which they were first named.
    pub(crate) fn print(&self, title: &str) {
        let in_order = |part: usize| {
            let mut names: Vec<&str> = Vec::new();
            for cell in &self.0 {
                if !names.contains(&&*cell[part]) {
                    names.push(&cell[part]);
                }
            }
            names
        };
        let (rows, columns) = (in_order(0), in_order(1));
        let width = |text: &str| text.chars().count();
        let first = rows.iter().map(|row| width(row)).max().unwrap_or_default();
        let mut titles = format!("{title:<first$}");
        for column in &columns {
            let widest =
                rows.iter().map(|row| width(self.cell(row, column))).max().unwrap_or_default();
            titles += &format!(" | {column:>widest$}");
        }
        println!();
        let table = Table::begin(&titles, 1);
        for row in rows {
            let cells = columns.iter().map(|column| self.cell(row, column));
            table.row([row].into_iter().chain(cells).map(str::to_owned));
        }
    }
}

/// The middle one, or the mean of the two in the middle; NaN if there are none.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// The number that this part of them is not above; NaN if there are none.
pub(crate) fn percentile(part: f64, numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Three significant digits or, from 100 up, a whole number; a dash if it is not finite.
pub(crate) fn number(number: f64) -> String {
    match number {
        _ if !number.is_finite() => "–".to_owned(),
        ..10.0 => format!("{number:.2}"),
        ..100.0 => format!("{number:.1}"),
        ..1000.0 => format!("{number:.0}"),
        _ => format!("{},{:03}", number.round() as u64 / 1000, number.round() as u64 % 1000),
    }
}

pub(crate) fn range(numbers: impl IntoIterator<Item = f64>) -> String {
    let (least, most) = numbers
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), n| (least.min(n), most.max(n)));
    format!("{}–{}", number(least), number(most))
}
