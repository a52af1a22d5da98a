//! What colors loses: the rows of the results in which the figures of another server are better,
//! and all of its runs are better than all of colors. Measures nothing.

use crate::figures::{RATES, SHORT, cells};

/// Tables whose rows another one has as well.
const DOUBLE: [&str; 2] = [RATES, SHORT];

/// A Markdown list with an item for each table and all servers that win the same rows.
pub(crate) fn losses(tables: &[Vec<&str>]) -> String {
    let mut items = Vec::new();
    for table in tables {
        let titles = cells(table[0]);
        // The raw tables have a column of servers, the others one for each server.
        if titles.contains(&"server") || DOUBLE.contains(&titles[0]) {
            continue;
        }
        let mut lost: Vec<(String, String)> = Vec::new();
        for (server, rows) in lost_rows(&titles, &table[2..]) {
            let rows = rows.join("; ");
            let server = if server.contains(',') { format!("\"{server}\"") } else { server.into() };
            match lost.iter_mut().find(|(_, others)| *others == rows) {
                Some((servers, _)) => *servers += &format!(" and {server}"),
                None => lost.push((format!("to {server}"), rows)),
            }
        }
        for (servers, rows) in lost {
            items.push(wrapped(&format!("- {}, {servers}: {rows}", titles[0])));
        }
    }
    items.join("\n")
}

/// Of each server that wins any, the rows.
fn lost_rows<'a>(titles: &[&'a str], rows: &[&'a str]) -> Vec<(&'a str, Vec<String>)> {
    let mut lost: Vec<(&str, Vec<String>)> = Vec::new();
    for (column, title) in titles.iter().enumerate().skip(1) {
        let (server, figure) = server_and_figure(title);
        let is_own = |title: &&str| {
            let (server, other) = server_and_figure(title);
            server.starts_with("colors") && other == figure
        };
        let Some(own) = titles.iter().position(is_own) else { continue };
        if server.starts_with("colors") {
            continue;
        }
        let named =
            |row: &str| if figure.is_empty() { row.into() } else { format!("{row}: {figure}") };
        let is_lost = |cells: &Vec<&str>| {
            let (Some(own), Some(other)) = (range(cells[own]), range(cells[column])) else {
                return false;
            };
            if is_better_if_less(&named(cells[0])) { other.1 < own.0 } else { other.0 > own.1 }
        };
        let of_column: Vec<_> = rows.iter().map(|row| cells(row)).filter(is_lost).collect();
        let names = match of_column.len() {
            0 => continue,
            count if count == rows.len() => vec![named("all rows")],
            _ => of_column.iter().map(|cells| named(cells[0])).collect(),
        };
        match lost.iter_mut().find(|(other, _)| *other == server) {
            Some((_, rows)) => rows.extend(names),
            None => lost.push((server, names)),
        }
    }
    lost
}

/// A column may have one figure of a server, as in `axum: p50 ms`.
fn server_and_figure(title: &str) -> (&str, &str) {
    title.split_once(": ").unwrap_or((title, ""))
}

/// An item of a list, in lines that are as wide as those of the documents.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        let line = lines.last_mut().expect("there is a first one");
        if line.chars().count() + 1 + word.chars().count() > 120 {
            lines.push(format!("  {word}"));
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n")
}

/// Times, processor time and memory.
fn is_better_if_less(row: &str) -> bool {
    let mut words = row.split(|sign: char| !sign.is_alphabetic());
    words.any(|word| ["ms", "CPU", "MiB", "seconds"].contains(&word))
}

/// The least and the most of a cell; `None` if it has no figure.
fn range(cell: &str) -> Option<(f64, f64)> {
    let number = |text: &str| text.replace(',', "").parse::<f64>().ok();
    if let Some(least) = cell.strip_prefix("over ") {
        return Some((number(least)?, f64::INFINITY));
    }
    let Some((_, ends)) = cell.split_once(" (") else {
        let single = number(cell)?;
        return Some((single, single));
    };
    let (least, most) = ends.trim_end_matches(')').split_once('–')?;
    Some((number(least)?, number(most)?))
}
