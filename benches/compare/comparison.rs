//! The table of README: a row for each kind of figure, put together from the results of the other
//! parts, and who tells of a change. Measures nothing.

use anyhow::{Context, Result};

use crate::disk::SUMMARY_TITLE as DISK;
use crate::figures::{cells, parse, results_text};
use crate::stalled::{CLOSED, COUNT, SUMMARY_TITLE as STALLED};
use crate::table::Summary;

const SERVERS: [&str; 7] =
    ["colors", "tiny_http", "tiny_http 64", "axum", "nginx, files", "Redis", "SQLite"];

/// Those that tell a client of a change, so that it need not ask again and again: colors by
/// `Prefer: wait`, Redis by notifications of its keys.
const TELLING: [&str; 2] = ["colors", "Redis"];

const RATES: &str = "32 connections, 148 colors";
const WRITERS: &str = "durable changes/s";

pub(crate) fn print() -> Result<()> {
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
        let tells = if TELLING.contains(&server) { "yes" } else { "no" };
        summary.add("tells of a change", server, tells.to_owned());
    }
    println!(
        "From rates.txt, stalled.txt, writers.txt and disk.txt, which have commit and conditions."
    );
    summary.print("148 colors");
    Ok(())
}
