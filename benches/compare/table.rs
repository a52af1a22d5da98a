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

/// Three significant digits; a dash if it is not finite.
pub(crate) fn number(number: f64) -> String {
    rounded(number, 0.0)
}

/// The median of some runs, with no more digits than their spread allows.
pub(crate) fn figure(runs: impl IntoIterator<Item = f64>) -> String {
    let runs: Vec<f64> = runs.into_iter().collect();
    rounded(median(runs.iter().copied()), unit_of(&runs))
}

/// The same, with the least and the most if there is a figure.
pub(crate) fn spread(runs: impl IntoIterator<Item = f64>) -> String {
    let runs: Vec<f64> = runs.into_iter().collect();
    let unit = unit_of(&runs);
    if !median(runs.iter().copied()).is_finite() {
        return rounded(f64::NAN, unit);
    }
    let ends = [0.0, 1.0].map(|part| rounded(percentile(part, runs.iter().copied()), unit));
    format!("{} ({}–{})", rounded(median(runs), unit), ends[0], ends[1])
}

/// What the last digit may be one of: to round to it moves no figure by more than a quarter of the
/// distance between the least and the most. Two digits if there was a single run.
fn unit_of(runs: &[f64]) -> f64 {
    if let [single] = runs {
        return power_of_ten(*single) / 10.0;
    }
    let [least, most] = [0.0, 1.0].map(|part| percentile(part, runs.iter().copied()));
    power_of_ten((most - least) / 2.0)
}

/// The highest power of ten that is not above this number; 0 for 0.
fn power_of_ten(number: f64) -> f64 {
    if number > 0.0 { 10_f64.powf(number.log10().floor()) } else { 0.0 }
}

/// Rounds to units, but to three digits at most, and three behind the point; and to one at least.
fn rounded(number: f64, unit: f64) -> String {
    if !number.is_finite() || number == 0.0 {
        return if number == 0.0 { "0" } else { "–" }.to_owned();
    }
    let first = power_of_ten(number);
    let unit = unit.clamp(first / 100.0, first).max(0.001);
    let decimals = (-unit.log10().round()).max(0.0) as usize;
    let text = format!("{:.decimals$}", (number / unit).round() * unit);
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let groups = whole.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",") + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_no_more_digits_than_its_spread_allows() {
        assert_eq!(spread([46_615.0, 46_100.0, 47_212.0]), "46,600 (46,100–47,200)");
        assert_eq!(spread([46_615.0, 31_000.0, 58_000.0]), "50,000 (30,000–60,000)");
        assert_eq!(spread([0.357, 0.241, 6.8]), "0.4 (0.2–7)");
        assert_eq!(spread([0.0431, 0.0428, 0.0452]), "0.043 (0.043–0.045)");
        assert_eq!(spread([1.0, 1.0, 1.0]), "1.00 (1.00–1.00)");
        assert_eq!(spread([f64::NAN, f64::NAN]), "–");
        assert_eq!(figure([33.31, 33.29, 34.9]), "33.3");
        assert_eq!(figure([33.31, 21.29, 44.9]), "30");
        assert_eq!(figure([0.0, 0.0]), "0");
        assert_eq!(figure([1.234]), "1.2");
    }

    #[test]
    fn a_number_has_three_digits() {
        let cases = [(0.004, "0.004"), (9.876, "9.88"), (98.76, "98.8"), (987.6, "988")];
        let large = [(9_876.0, "9,880"), (1_234_567.0, "1,230,000")];
        for (value, text) in cases.into_iter().chain(large) {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(f64::NAN), "–");
    }
}
