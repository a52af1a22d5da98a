//! Numbers as text, and Markdown tables that grow row by row. Measures nothing.

use std::io::{self, Write};

/// A table that has begun.
#[derive(Debug)]
pub(crate) struct Table {
    /// How wide each column is.
    widths: Vec<usize>,
    /// How many columns, the first ones, are of words; the others are of numbers.
    words: usize,
}

impl Table {
    /// Prints the titles, which come with the least width of their column; the first columns are of words, the others of numbers.
    pub(crate) fn begin(titles: &[(&str, usize)], words: usize) -> Self {
        let widths = titles.iter().map(|(title, width)| title.chars().count().max(*width)).collect();
        let table = Self { widths, words };
        table.row(&titles.iter().map(|(title, _)| (*title).to_owned()).collect::<Vec<_>>());
        let rule = |(column, width): (usize, &usize)| if column < words { "-".repeat(*width) } else { "-".repeat(width - 1) + ":" };
        table.row(&table.widths.iter().enumerate().map(rule).collect::<Vec<_>>());
        table
    }

    /// Prints a row, at once: a comparison takes long.
    pub(crate) fn row(&self, cells: &[String]) {
        let pad = |(column, (cell, width)): (usize, (&String, &usize))| {
            if column < self.words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = cells.iter().zip(&self.widths).enumerate().map(pad).collect();
        println!("| {} |", cells.join(" | "));
        // Whoever reads the table has gone; the next println tells.
        let _ = io::stdout().flush();
    }
}

/// The middle of some numbers, or the mean of the two in the middle; not a number if there are none.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// A number with three significant digits or, from 100 up, as a whole one in groups of three; a dash if it is none.
pub(crate) fn number(number: f64) -> String {
    match number {
        _ if !number.is_finite() => "–".to_owned(),
        0.0 => "0".to_owned(),
        ..0.1 => format!("{number:.4}"),
        ..10.0 => format!("{number:.2}"),
        ..100.0 => format!("{number:.1}"),
        _ => grouped(number.round() as u64),
    }
}

/// The least and the greatest of some numbers.
pub(crate) fn range(numbers: impl IntoIterator<Item = f64>) -> String {
    let (least, most) = numbers.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), n| (least.min(n), most.max(n)));
    format!("{}–{}", number(least), number(most))
}

/// A whole number in groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([7.0]), 7.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn numbers_are_as_long_as_they_mean_something() {
        let cases = [
            (0.0123, "0.0123"),
            (0.5, "0.50"),
            (9.876, "9.88"),
            (98.76, "98.8"),
            (987.6, "988"),
            (1_234_567.8, "1,234,568"),
            (f64::INFINITY, "–"),
        ];
        for (given, expected) in cases {
            assert_eq!(number(given), expected);
        }
        assert_eq!(range([2.0, 0.5, 98.76]), "0.50–98.8");
    }
}
