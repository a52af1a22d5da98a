//! The figures of the documents: measures all of them into `benches/results`, draws the plots, and
//! puts the tables of the results into the documents. A table of a document is replaced by the one
//! of the results that has the same title.

use std::env;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use plotters::prelude::*;

use crate::disk::SUMMARY_TITLE as DISK;
use crate::stalled::{CLOSED, COUNT, SUMMARY_TITLE as STALLED};
use crate::table::Summary;
use crate::waiting::SUMMARY_TITLE as WAITING;

/// The files of results, each with the arguments that measure it: some 21 minutes in all, without
/// the builds. The last one needs those before it.
const RESULTS: [(&str, &str); 10] = [
    ("rates", "rates"),
    ("connections", "rates --connections 2,8,64 --workloads read"),
    (
        "long-list",
        "rates --colors-count 100000 --connections 32 --workloads read,update --only tiny-http",
    ),
    ("latency", "latency --only axum --seconds 2"),
    ("writers", "writers --colors-count 148,100000 --seconds 2"),
    ("isolation", "isolation --only axum --colors-count 100000 --seconds 2"),
    ("disk", "disk --seconds 2"),
    ("stalled", "stalled"),
    ("waiting", "waiting --only axum,json-server --rounds 2"),
    ("comparison", "comparison"),
];

/// Those of the large table of docs/performance.md.
const SERVERS: [&str; 7] =
    ["colors", "tiny_http", "tiny_http 64", "axum", "nginx, files", "Redis", "SQLite"];

/// Those that send a client each change, so that it need not poll: colors by `Prefer: wait`, Redis
/// by notifications of its keys.
const NOTIFYING: [&str; 2] = ["colors", "Redis"];

/// What README shows of that table.
const SHORT_ROWS: [&str; 4] =
    ["reads/s", "MiB", "stalled clients until others wait", "tells of a change"];
const SHORT_SERVERS: [&str; 3] = ["colors", "tiny_http", "axum"];

/// Titles of tables.
const RATES: &str = "32 connections, 148 colors";
const WRITERS: &str = "durable changes/s";

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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn results(name: &str) -> PathBuf {
    root().join(format!("benches/results/{name}.txt"))
}

pub(crate) fn measure() -> Result<()> {
    fs::create_dir_all(root().join("benches/results"))?;
    for (name, arguments) in RESULTS {
        let new = results(name).with_extension("new");
        let mut compare = Command::new(env::current_exe()?);
        compare.args(arguments.split(' ')).stdout(File::create(&new)?);
        ensure!(compare.status()?.success(), "compare {arguments} failed");
        fs::rename(new, results(name))?;
    }
    Ok(())
}

/// The tables of a text: the lines of each.
fn parse(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let runs = lines.chunk_by(|a, b| a.starts_with('|') == b.starts_with('|'));
    runs.filter(|run| run[0].starts_with('|')).map(<[&str]>::to_vec).collect()
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// The numbers in the column of this title, each behind the first cell of its row.
fn column<'a>(table: &[&'a str], title: &str) -> Vec<(&'a str, f64)> {
    let Some(column) = cells(table[0]).iter().position(|cell| *cell == title) else {
        return Vec::new();
    };
    let number = |row: &&'a str| {
        let cells = cells(row);
        Some((cells[0], cells[column].replace(',', "").parse().ok()?))
    };
    table[2..].iter().filter_map(number).collect()
}

/// All results that there are.
fn results_text() -> Result<String> {
    let mut text = String::new();
    for (name, _) in RESULTS {
        match fs::read_to_string(results(name)) {
            Ok(results) => text += &results,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| results(name).display().to_string()),
        }
    }
    Ok(text)
}

/// Prints the large table of docs/performance.md, a row for each kind of figure, put together from
/// the results of the other parts; and the small one of README.
pub(crate) fn compare() -> Result<()> {
    let text = results_text()?;
    let tables = parse(&text);
    let find = |title: &str| {
        let table = tables.iter().find(|table| cells(table[0])[0] == title);
        table.with_context(|| format!("no table has the title {title:?}"))
    };
    let cell = |table: &[&str], row: &str, column: &str| {
        let column = cells(table[0]).iter().position(|title| *title == column)?;
        let row = table.iter().map(|row| cells(row)).find(|cells| cells[0] == row)?;
        Some(row[column].to_owned())
    };
    let mut summary = Summary::new();
    for column in ["reads/s", "lists/s", "updates/s", "CPU µs/read", "MiB"] {
        for server in SERVERS {
            let figure = cell(find(RATES)?, server, column);
            summary.add(column, server, figure.unwrap_or_default());
        }
    }
    for (row, column) in
        [("stalled clients until others wait", COUNT), ("seconds until one is closed", CLOSED)]
    {
        for server in SERVERS {
            let figure = cell(find(STALLED)?, server, column);
            summary.add(row, server, figure.unwrap_or_default());
        }
    }
    for clients in ["1 client", "64 clients"] {
        for server in SERVERS {
            let figure = cell(find(WRITERS)?, &format!("148 colors, {clients}"), server);
            let row = format!("durable changes/s, {clients}");
            summary.add(&row, server, figure.unwrap_or_default());
        }
    }
    for server in SERVERS {
        let figure = cell(find(DISK)?, "50 ms", &format!("{server}: p99 ms"));
        summary.add("read beside slow saves: p99 ms", server, figure.unwrap_or_default());
    }
    for server in SERVERS {
        let notifies = if NOTIFYING.contains(&server) { "yes" } else { "no" };
        summary.add("tells of a change", server, notifies.to_owned());
    }
    println!(
        "From rates.txt, stalled.txt, writers.txt and disk.txt, which have commit and conditions."
    );
    summary.print("148 colors");
    let mut short = Summary::new();
    for row in SHORT_ROWS {
        for server in SHORT_SERVERS {
            short.add(row, server, summary.cell(row, server).to_owned());
        }
    }
    short.print("at a glance");
    Ok(())
}

/// Draws the plots, and updates the tables of the documents.
pub(crate) fn show() -> Result<()> {
    let text = results_text()?;
    let tables = parse(&text);
    draw_rates(&tables)?;
    draw_disk(&tables)?;
    draw_waiting(&tables)?;
    for path in ["README.md", "docs/performance.md", "docs/design.md"].map(|path| root().join(path))
    {
        let old = fs::read_to_string(&path)?;
        let mut new = old.clone();
        for shown in parse(&old) {
            if let Some(table) =
                tables.iter().find(|table| cells(table[0])[0] == cells(shown[0])[0])
            {
                new = new.replace(&shown.join("\n"), &table.join("\n"));
            }
        }
        fs::write(path, new)?;
    }
    Ok(())
}

/// Reads of one color per second, by the number of connections.
fn draw_rates(tables: &[Vec<&str>]) -> Result<()> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for table in tables {
        let title = cells(table[0])[0].split_once(" connections, 148 colors");
        let Some(connections) = title.and_then(|(number, _)| number.parse::<f64>().ok()) else {
            continue;
        };
        for (server, rate) in column(table, "reads/s") {
            let point = (connections.log2(), rate / 1e3);
            match lines.iter_mut().find(|line| line.0 == server) {
                Some(line) => line.1.push(point),
                None => lines.push((server, vec![point])),
            }
        }
    }
    Plot {
        file: "docs/rates.svg",
        titles: ["connections", "reads of one color, 1,000/s"],
        x: 1.0..8.0,
        y: 0.0..highest(&lines) * 1.05,
        x_label: &|x| format!("{}", x.exp2()),
        y_label: &|y| format!("{y}"),
    }
    .draw(lines)
}

/// Times of reads beside a writer, by the time of a sync.
fn draw_disk(tables: &[Vec<&str>]) -> Result<()> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut delays = Vec::new();
    for title in ["colors: median ms", "colors: p99 ms", "Redis: median ms", "Redis: p99 ms"] {
        let table = tables
            .iter()
            .find(|table| cells(table[0])[0] == DISK)
            .context("no figures of slow disks")?;
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
    let table = tables
        .iter()
        .find(|table| cells(table[0])[0] == WAITING)
        .context("no figures of waiting")?;
    let mut lines: Vec<Line<'_>> = Vec::new();
    for title in &cells(table[0])[1..] {
        let Some(name) = title.strip_suffix(": ms") else { continue };
        let points = column(table, title).into_iter().filter_map(|(clients, ms)| {
            Some((clients.replace(',', "").parse::<f64>().ok()?.log10(), ms.log10()))
        });
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
