//! The figures of the documents: measures all of them into `benches/results`, draws the plots, and
//! puts the tables of the results into the documents. A table of a document is replaced by the one
//! of the results that has the same title.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use plotters::prelude::*;

use crate::conditions;
use crate::disk::SUMMARY_TITLE as DISK;
use crate::latency::SUMMARY_TITLE as LATENCY;
use crate::losses::losses;
use crate::server::Programs;
use crate::stalled::SUMMARY_TITLE as STALLED;
use crate::table::Summary;
use crate::waiting::SUMMARY_TITLE as WAITING;

/// The files of results, each with the program that measures it, below `benches`, and its
/// arguments. The last one needs those before it.
const RESULTS: [(&str, &str); 14] = [
    (
        "rates",
        "compare rates --connections 32 --seconds 3 --only tiny-http,tiny-http-64,oxhttp,axum,axum-bytes,actix,nginx",
    ),
    (
        "connections",
        "compare rates --connections 1,2,4,8,64,256 --workloads read --only tiny-http,oxhttp,axum,actix,nginx",
    ),
    (
        "threads",
        "compare threads --connections 32 --seconds 3 --workloads read --only colors-2,axum-1,actix-1",
    ),
    ("wrk", "compare wrk --seconds 3 --workloads read --only axum,actix,nginx"),
    (
        "long-list",
        "compare rates --colors-count 100000 --connections 32 --workloads read,update --only tiny-http",
    ),
    (
        "latency",
        "compare latency --seconds 3 --rates 1000,50000 --only tiny-http,oxhttp,axum,actix,nginx",
    ),
    ("writers", "compare writers --seconds 2 --colors-count 148"),
    ("isolation", "compare isolation --only axum,actix --colors-count 100000"),
    ("disk", "compare disk --seconds 2"),
    ("stalled", "compare stalled --only tiny-http,tiny-http-64,oxhttp,axum,actix"),
    ("waiting", "compare waiting --only axum"),
    ("etcd", "etcd.py ../target/release/colors"),
    ("musl", "musl.py"),
    ("comparison", "compare comparison"),
];

/// Titles of tables: of the rates, of what docs/performance.md shows of them, and of what README
/// shows.
const RATES: &str = "32 connections, 148 colors";
const LARGE: &str = "148 colors";
const SHORT: &str = "at a glance";

/// What README shows, of three tables.
const SHORT_ROWS: [&str; 6] = [
    "1,000/s: p50 ms",
    "50,000/s: p99 ms",
    "reads, 1,000/s",
    "lists, 1,000/s",
    "MiB",
    "half a content: clients until others wait",
];
const SHORT_SERVERS: [&str; 6] =
    ["colors", "tiny_http", "oxhttp", "axum", "actix-web", "nginx, files"];

/// Between these lines, README has the list that [`losses`] makes.
const MARKS: [&str; 2] =
    ["<!-- `make figures` writes this list -->\n\n", "\n\n<!-- the end of that list -->"];

/// Dark enough for white: blue, orange, brown, green, red, violet, gray.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 90, 181),
    RGBColor(230, 120, 0),
    RGBColor(130, 80, 20),
    RGBColor(20, 140, 70),
    RGBColor(200, 30, 40),
    RGBColor(130, 80, 180),
    RGBColor(110, 110, 110),
];

const DOCUMENTS: [&str; 2] = ["README.md", "docs/performance.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn results(name: &str) -> PathBuf {
    root().join(format!("benches/results/{name}.txt"))
}

pub(crate) fn measure(rounds: u32) -> Result<()> {
    let conditions = conditions()?;
    ensure!(
        !conditions.contains(" and changes"),
        "commit first: all figures are to be those of one commit"
    );
    Programs::build(None, None)?;
    fs::create_dir_all(root().join("benches/results"))?;
    for (name, line) in RESULTS {
        let began = Instant::now();
        let new = results(name).with_extension("new");
        let mut output = File::create(&new)?;
        let mut words = line.split(' ');
        let program = words.next().expect("a split gives at least one");
        let mut command = if program == "compare" {
            let mut compare = Command::new(env::current_exe()?);
            compare.args(["--rounds", &rounds.to_string()]);
            compare
        } else {
            write!(output, "`{line}`\n{conditions}")?;
            Command::new(root().join("benches").join(program))
        };
        command.args(words).current_dir(root().join("benches")).stdout(output);
        ensure!(command.status()?.success(), "{line} failed");
        fs::rename(new, results(name))?;
        eprintln!("{name} took {} s", began.elapsed().as_secs());
    }
    Ok(())
}

/// The tables of a text: the lines of each.
pub(crate) fn parse(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let runs = lines.chunk_by(|a, b| a.starts_with('|') == b.starts_with('|'));
    runs.filter(|run| run[0].starts_with('|')).map(<[&str]>::to_vec).collect()
}

pub(crate) fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// The number at the begin of a cell.
fn number(cell: &str) -> Option<f64> {
    cell.split(' ').next()?.replace(',', "").parse().ok()
}

/// The numbers in the column of this title, each behind the first cell of its row.
fn column<'a>(table: &[&'a str], title: &str) -> Vec<(&'a str, f64)> {
    let Some(column) = cells(table[0]).iter().position(|cell| *cell == title) else {
        return Vec::new();
    };
    let rows = table[2..].iter().map(|row| cells(row));
    rows.filter_map(|cells| Some((cells[0], number(cells[column])?))).collect()
}

fn table_of<'a>(tables: &'a [Vec<&'a str>], title: &str) -> Result<&'a [&'a str]> {
    let table = tables.iter().find(|table| cells(table[0])[0] == title);
    table.map(Vec::as_slice).with_context(|| format!("no table has the title {title:?}"))
}

/// All results that there are, with their names.
fn all_results() -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for (name, _) in RESULTS {
        match fs::read_to_string(results(name)) {
            Ok(text) => all.push((name, text)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| results(name).display().to_string()),
        }
    }
    Ok(all)
}

fn tables_of<'a>(results: &'a [(&str, String)]) -> Vec<Vec<&'a str>> {
    results.iter().flat_map(|(_, text)| parse(text)).collect()
}

/// The commit and the machine of all other results, which has to be one.
fn common_conditions() -> Result<String> {
    let mut all = Vec::new();
    for (name, _) in &RESULTS[..RESULTS.len() - 1] {
        let text = fs::read_to_string(results(name)).with_context(|| format!("results/{name}"))?;
        all.push(text.lines().skip(1).take(2).collect::<Vec<_>>().join("\n"));
    }
    // A run may take past midnight.
    let is_one = all.iter().all(|one| one.split(", 20").next() == all[0].split(", 20").next());
    ensure!(is_one, "measured on several commits: {all:?}");
    Ok(all.remove(0))
}

/// Prints the tables that are put together from the results of other parts: the large one of
/// docs/performance.md, and the small one of README.
pub(crate) fn compare() -> Result<()> {
    let results = all_results()?;
    let tables = tables_of(&results);
    println!("From the other files:\n{}", common_conditions()?);
    let rates = table_of(&tables, RATES)?;
    summary_of(&[rates]).print(LARGE);
    let all = summary_of(&[table_of(&tables, LATENCY)?, rates, table_of(&tables, STALLED)?]);
    let mut short = Summary::new();
    for row in SHORT_ROWS {
        for server in SHORT_SERVERS {
            short.add(row, server, all.cell(row, server).to_owned());
        }
    }
    short.print(SHORT);
    Ok(())
}

/// All cells of these tables.
fn summary_of(tables: &[&[&str]]) -> Summary {
    let mut summary = Summary::new();
    for table in tables {
        let servers = &cells(table[0])[1..];
        for row in &table[2..] {
            let cells = cells(row);
            for (server, cell) in servers.iter().zip(&cells[1..]) {
                summary.add(cells[0], server, (*cell).to_owned());
            }
        }
    }
    summary
}

/// Draws the plots, and updates the tables of the documents and README's list.
pub(crate) fn show() -> Result<()> {
    let results = all_results()?;
    let tables = tables_of(&results);
    draw_rates(&tables)?;
    draw_times(&tables)?;
    draw_disk(&tables)?;
    draw_waiting(&tables)?;
    for path in DOCUMENTS.map(|path| root().join(path)) {
        let old = fs::read_to_string(&path)?;
        fs::write(path, updated(&old, &results))?;
    }
    Ok(())
}

/// A document with the tables of the results, and with the list of what colors loses.
fn updated(document: &str, results: &[(&str, String)]) -> String {
    let tables = tables_of(results);
    let mut new = document.to_owned();
    for shown in parse(document) {
        if let Ok(table) = table_of(&tables, cells(shown[0])[0]) {
            new = new.replace(&shown.join("\n"), &table.join("\n"));
        }
    }
    if let Some((before, rest)) = new.split_once(MARKS[0])
        && let Some((_, after)) = rest.split_once(MARKS[1])
    {
        new = [before, MARKS[0], &losses(&results[..results.len() - 1]), MARKS[1], after].concat();
    }
    new
}

/// The figures in this row of the tables of rates, by the number of connections: of the servers
/// that were measured with several.
fn by_connections<'a>(tables: &[Vec<&'a str>], row: &str) -> Result<Vec<Line<'a>>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for table in tables {
        let titles = cells(table[0]);
        let connections = titles[0].strip_suffix(" connections, 148 colors");
        let Some(connections) = connections.and_then(|number| number.parse::<f64>().ok()) else {
            continue;
        };
        let figures = table.iter().map(|row| cells(row)).find(|cells| cells[0] == row);
        let figures = figures.with_context(|| format!("no row has the title {row:?}"))?;
        for (server, cell) in titles[1..].iter().zip(&figures[1..]) {
            let figure = number(cell).with_context(|| format!("no figure of {server}"))?;
            let point = (connections.log2(), figure);
            match lines.iter_mut().find(|line| line.0 == *server) {
                Some(line) => line.1.push(point),
                None => lines.push((server, vec![point])),
            }
        }
    }
    lines.retain(|line| line.1.len() > 1);
    Ok(lines)
}

/// Reads of one color per second, by the number of connections.
fn draw_rates(tables: &[Vec<&str>]) -> Result<()> {
    let lines = by_connections(tables, "reads, 1,000/s")?;
    Plot {
        file: "docs/rates.svg",
        titles: ["connections", "reads of one color, 1,000/s"],
        x: 0.0..8.0,
        y: 0.0..highest(&lines) * 1.05,
        x_label: &|x| format!("{}", x.exp2()),
        y_label: &|y| format!("{y}"),
    }
    .draw(lines)
}

/// How long 99 of 100 of these reads take at most.
fn draw_times(tables: &[Vec<&str>]) -> Result<()> {
    let mut lines = by_connections(tables, "read: p99 ms")?;
    lines.iter_mut().flat_map(|line| &mut line.1).for_each(|point| point.1 = point.1.log10());
    Plot {
        file: "docs/times.svg",
        titles: ["connections", "p99 of a read of one color, ms"],
        x: 0.0..8.0,
        y: -2.0..highest(&lines).ceil(),
        x_label: &|x| format!("{}", x.exp2()),
        // only powers of 10
        y_label: &|y| if y.fract() == 0.0 { 10_f64.powf(*y).to_string() } else { String::new() },
    }
    .draw(lines)
}

/// Times of reads beside a writer, by the time of a sync.
fn draw_disk(tables: &[Vec<&str>]) -> Result<()> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut delays = Vec::new();
    let table = table_of(tables, DISK)?;
    for title in ["colors: p50 ms", "colors: p99 ms", "Redis: p50 ms", "Redis: p99 ms"] {
        let points = column(table, title);
        delays = points.iter().map(|(delay, _)| delay.trim_end_matches(" ms")).collect();
        let points = (0..).zip(points).map(|(x, (_, ms))| (f64::from(x), ms.log10()));
        lines.push((title.trim_end_matches(" ms"), points.collect()));
    }
    Plot {
        file: "docs/disk.svg",
        titles: ["each sync of the disk takes so much longer, ms", "time of a read, ms"],
        x: 0.0..3.0,
        y: -2.0..highest(&lines).ceil(),
        x_label: &|x| if x.fract() == 0.0 { delays[*x as usize].to_owned() } else { String::new() },
        y_label: &|y| format!("{}", 10_f64.powf(*y)),
    }
    .draw(lines)
}

/// Times until all clients have a change, by their number.
fn draw_waiting(tables: &[Vec<&str>]) -> Result<()> {
    let table = table_of(tables, WAITING)?;
    let mut lines: Vec<Line<'_>> = Vec::new();
    for title in &cells(table[0])[1..] {
        let Some(name) = title.strip_suffix(": ms") else { continue };
        let points = column(table, title)
            .into_iter()
            .filter_map(|(clients, ms)| Some((number(clients)?.log10(), ms.log10())));
        lines.push((name, points.collect()));
    }
    Plot {
        file: "docs/waiting.svg",
        titles: ["clients that show one color", "ms until all have its change"],
        x: 0.0..4.0,
        y: -1.0..highest(&lines).ceil(),
        x_label: &|x| format!("{}", 10_f64.powf(*x)),
        y_label: &|y| format!("{}", 10_f64.powf(*y)),
    }
    .draw(lines)
}

/// A name and its points.
type Line<'a> = (&'a str, Vec<(f64, f64)>);

fn highest(lines: &[Line<'_>]) -> f64 {
    lines.iter().flat_map(|line| &line.1).map(|point| point.1).fold(0.0, f64::max)
}

struct Plot<'a> {
    file: &'a str,
    titles: [&'a str; 2],
    x: Range<f64>,
    y: Range<f64>,
    x_label: &'a dyn Fn(&f64) -> String,
    y_label: &'a dyn Fn(&f64) -> String,
}

impl Plot<'_> {
    /// Draws lines by their names, on white, since it is seen on dark pages as well.
    fn draw(self, lines: Vec<Line<'_>>) -> Result<()> {
        let path = root().join(self.file);
        let area = SVGBackend::new(&path, (760, 360)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_horizontally(610);
        let mut chart = ChartBuilder::on(&plot)
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(self.x, self.y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(8)
            .y_labels(8)
            .x_desc(self.titles[0])
            .y_desc(self.titles[1])
            .label_style(("sans-serif", 14))
            .x_label_formatter(self.x_label)
            .y_label_formatter(self.y_label)
            .draw()?;
        for (number, (name, mut points)) in lines.into_iter().enumerate() {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let style = COLORS[number % COLORS.len()].stroke_width(2);
            chart.draw_series(LineSeries::new(points, style).point_size(3))?;
            let y = 30 + 24 * number as i32;
            legend.draw(&PathElement::new([(10, y), (30, y)], style))?;
            legend.draw(&Text::new(name, (36, y - 8), ("sans-serif", 14)))?;
        }
        Ok(area.present()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_show_the_results_and_all_that_colors_loses() {
        let results = all_results().unwrap();
        for path in DOCUMENTS {
            let document = fs::read_to_string(root().join(path)).unwrap();
            assert_eq!(updated(&document, &results), document, "{path}");
            assert_eq!(document.contains(MARKS[0]), path == "README.md", "{path}");
        }
    }

    #[test]
    fn results_name_no_path_of_a_machine() {
        for (name, _) in RESULTS {
            let Ok(text) = fs::read_to_string(results(name)) else { continue };
            let is_path = |word: &&str| word.starts_with('/') && word.matches('/').count() > 2;
            assert_eq!(text.split([' ', '`', '\n']).find(is_path), None, "{name}");
        }
    }
}
