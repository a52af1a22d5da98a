//! Markdown tables that are printed row by row, and their numbers as text. Measures nothing.

/// The titles of the columns, each as wide as its column; and how many of them, the first ones, are
/// words and aligned to the left.
pub(crate) struct Table(Vec<&'static str>, usize);

impl Table {
    pub(crate) fn begin(titles: &'static str, words: usize) -> Self {
        let table = Self(titles.split(" | ").collect(), words);
        table.row(table.0.iter().map(|title| title.trim().to_owned()));
        let rule = |(column, width): (usize, usize)| {
            "-".repeat(width - 1) + if column < words { "-" } else { ":" }
        };
        table.row(table.0.iter().map(|title| title.chars().count()).enumerate().map(rule));
        table
    }

    pub(crate) fn row(&self, cells: impl IntoIterator<Item = String>) {
        let pad = |(column, (cell, title)): (usize, (String, &&str))| {
            let width = title.chars().count();
            if column < self.1 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = cells.into_iter().zip(&self.0).enumerate().map(pad).collect();
        println!("| {} |", cells.join(" | "));
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
