//! What colors loses: the figures of the results in which all runs of another server are better than
//! all runs of colors. Measures nothing.

use crate::figures::{cells, parse};

/// How the titles of columns end that compare two others, or that tell nothing to a client.
const NO_FIGURES: [&str; 2] = ["×", "switches/request"];

/// A figure of a server. `row`: what was measured, where a table measures several things.
struct Cell<'a> {
    row: String,
    figure: &'a str,
    server: &'a str,
    text: &'a str,
}

/// What another server wins: the figures, each with the rows.
type Lost<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// A Markdown list with an item for each of these results and all servers that win the same in it.
pub(crate) fn losses(results: &[(&str, String)]) -> String {
    let mut items = Vec::new();
    for (name, text) in results {
        let tables = parse(text);
        // Other tables of such results show some of the same figures.
        let has_raw = tables.iter().any(|table| server_column(table).is_some());
        let tables = tables.iter().filter(|table| !has_raw || server_column(table).is_some());
        let cells: Vec<Cell<'_>> = tables.flat_map(|table| cells_of(table)).collect();
        let mut winners: Vec<(String, String)> = Vec::new();
        for (server, lost) in lost(&cells) {
            let server = if server.contains(',') { format!("\"{server}\"") } else { server.into() };
            let lost = text_of(&lost, &cells);
            match winners.iter_mut().find(|(_, others)| *others == lost) {
                Some((servers, _)) => *servers += &format!(" and {server}"),
                None => winners.push((server, lost)),
            }
        }
        let of_winner = |(servers, lost)| wrapped(&format!("- `{name}`, to {servers}: {lost}"));
        items.extend(winners.into_iter().map(of_winner));
    }
    items.join("\n")
}

/// The column of the servers in a raw table, whose first columns say what was measured. Other tables
/// have a column for each server.
fn server_column(table: &[&str]) -> Option<usize> {
    cells(table[0]).iter().position(|title| *title == "server")
}

fn cells_of<'a>(table: &[&'a str]) -> Vec<Cell<'a>> {
    let titles = cells(table[0]);
    let rows: Vec<_> = table[2..].iter().map(|row| cells(row)).collect();
    let mut all = Vec::new();
    let Some(servers) = server_column(table) else {
        for row in rows {
            for (title, text) in titles.iter().zip(&row).skip(1) {
                all.push(Cell { row: String::new(), figure: row[0], server: title, text });
            }
        }
        return all;
    };
    let varies = |column: &usize| rows.iter().any(|row| row[*column] != rows[0][*column]);
    let varying: Vec<usize> = (0..servers).filter(varies).collect();
    for cells in &rows {
        let parts = varying.iter().map(|column| format!("{} {}", titles[*column], cells[*column]));
        let row = parts.collect::<Vec<_>>().join(", ");
        for (figure, text) in titles.iter().zip(cells).skip(servers + 1) {
            all.push(Cell { row: row.clone(), figure, server: cells[servers], text });
        }
    }
    all
}

/// What each server wins that wins anything.
fn lost<'a>(cells: &'a [Cell<'a>]) -> Vec<(&'a str, Lost<'a>)> {
    let mut all: Vec<(&str, Lost<'_>)> = Vec::new();
    for other in cells.iter().filter(|cell| !is_own(cell)) {
        let same = |own: &&Cell<'_>| own.row == other.row && own.figure == other.figure;
        let Some(own) = cells.iter().filter(|cell| is_own(cell)).find(same) else { continue };
        let (Some(own), Some(range)) = (range(own.text), range(other.text)) else { continue };
        let is_lost = if is_better_if_less(other) { range.1 < own.0 } else { range.0 > own.1 };
        if !is_lost || NO_FIGURES.iter().any(|end| other.figure.ends_with(end)) {
            continue;
        }
        let lost = entry(&mut all, other.server);
        entry(lost, other.figure).push(&other.row);
    }
    all
}

fn is_own(cell: &Cell<'_>) -> bool {
    cell.server.starts_with("colors")
}

/// The value of this name, which is added if it is not there.
fn entry<'a, 'b, V: Default>(all: &'b mut Vec<(&'a str, V)>, name: &'a str) -> &'b mut V {
    let place = all.iter().position(|(other, _)| *other == name).unwrap_or(all.len());
    if place == all.len() {
        all.push((name, V::default()));
    }
    &mut all[place].1
}

/// The figures, each with its rows if not all are lost.
fn text_of(lost: &Lost<'_>, cells: &[Cell<'_>]) -> String {
    let of_figure = |(figure, rows): &(&str, Vec<&str>)| {
        let all = cells.iter().filter(|cell| cell.figure == *figure).map(|cell| &cell.row);
        if all.clone().all(|row| rows.contains(&row.as_str())) {
            return (*figure).to_owned();
        }
        format!("{figure} ({})", rows.join("; "))
    };
    lost.iter().map(of_figure).collect::<Vec<_>>().join("; ")
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
fn is_better_if_less(cell: &Cell<'_>) -> bool {
    let mut words = cell.figure.split(|sign: char| !sign.is_alphabetic());
    words.any(|word| ["ms", "CPU", "MiB", "KiB", "seconds"].contains(&word))
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
