//! The figures of the documents: measures all of them into `benches/results`, draws the plots, and
//! puts the tables of the results into the documents. A table of a document is replaced by the one
//! of the results that has the same head.

use std::env;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use plotters::prelude::*;

use crate::disk::SUMMARY_TITLE as DISK_TITLE;
use crate::waiting::SUMMARY_TITLE as WAITING_TITLE;

/// The files of results, each with the arguments that measure it: 13 minutes in all, without the
/// builds.
const RESULTS: [(&str, &str); 8] = [
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
    ("waiting", "waiting --only axum,json-server --rounds 2"),
];

/// Dark enough for white: blue, orange, green, red, violet, gray.
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(230, 120, 0),
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

/// Draws the plots, and updates the tables of the documents.
pub(crate) fn show() -> Result<()> {
    let read = |(name, _)| {
        fs::read_to_string(results(name)).with_context(|| results(name).display().to_string())
    };
    let texts = RESULTS.map(read).into_iter().collect::<Result<Vec<_>>>()?;
    let tables: Vec<Vec<&str>> = texts.iter().flat_map(|text| parse(text)).collect();
    draw_rates(&tables)?;
    draw_disk(&tables)?;
    draw_waiting(&tables)?;
    for path in ["README.md", "docs/performance.md"].map(|path| root().join(path)) {
        let old = fs::read_to_string(&path)?;
        let mut new = old.clone();
        for shown in parse(&old) {
            if let Some(table) = tables.iter().find(|table| cells(table[0]) == cells(shown[0])) {
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
            .find(|table| cells(table[0])[0] == DISK_TITLE)
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
        .find(|table| cells(table[0])[0] == WAITING_TITLE)
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
