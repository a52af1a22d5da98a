//! The fourth table: what it costs colors to save each change on a real disk, and what is left after a kill. Has nobody cut the power.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::Args;
use crate::colors::{self, Color};
use crate::disk::{self, FileSystem};
use crate::failure::Failure;
use crate::kills;
use crate::kind::Kind;
use crate::programs::Programs;
use crate::scratch::Scratch;
use crate::servers::Server;
use crate::table::{self, Table};
use crate::writers::{self, Writes};

/// Numbers of concurrent writers; the first is what the others are compared with.
const WRITERS: [usize; 3] = [1, 8, 64];

/// Colors in the list that they share: the product's own seed.
const COUNT: usize = 148;

/// Lengths of the list for one writer.
const COUNTS: [usize; 4] = [148, 1_000, 10_000, 30_000];

/// Saves per round without a server: 20 at the least for a median, and 0.2 s on a disk that takes 10 ms.
const BARE: usize = 20;

/// Measures everything and prints the tables.
pub(crate) fn print(args: &Args, programs: &Programs) -> Result<(), Failure> {
    let scratch = Scratch::on_disk()?;
    println!("Saved on {}.\n", FileSystem::of(scratch.path())?);
    print_writers(args, programs, &scratch)?;
    print_saves(args, programs, &scratch)?;
    if args.kills > 0 {
        kills::print(args, programs, &scratch)?;
    }
    Ok(())
}

/// A product that saves its list, and that list.
struct Saving {
    /// The product.
    server: Server,
    /// The list that it started with.
    colors: Vec<Color>,
    /// Where it saves it.
    file: PathBuf,
}

impl Saving {
    /// Starts the product with a list of this length, in a directory of its own.
    fn start(programs: &Programs, scratch: &Scratch, directory: &str, count: usize) -> Result<Self, Failure> {
        let colors = colors::list(count);
        scratch.directory(directory)?;
        let file = scratch.write(&format!("{directory}/list.json"), &colors::seed(&colors))?;
        Ok(Self { server: Server::start_on(Kind::Colors, programs, &file)?, colors, file })
    }

    /// Has so many writers change it for this time.
    fn load(&self, writers: usize, seconds: u32) -> Result<Writes, Failure> {
        writers::run(&self.server, &self.colors, writers, Duration::from_secs(seconds.into()))
    }
}

/// Prints what concurrent writers get done.
fn print_writers(args: &Args, programs: &Programs, scratch: &Scratch) -> Result<(), Failure> {
    let saving = Saving::start(programs, scratch, "writers", COUNT)?;
    let mut runs = WRITERS.map(|_| Vec::new());
    for round in 1..=args.rounds {
        for (runs, count) in runs.iter_mut().zip(WRITERS) {
            eprintln!("durability, round {round}: {count} writers");
            runs.push(saving.load(count, args.seconds)?);
        }
    }
    println!("Concurrent writers, {COUNT} colors:\n");
    let titles =
        [("writers", 7), ("writes/s", 8), ("min–max", 13), ("rate ×", 6), ("min–max", 11), ("wait ms", 7), ("CPU µs", 6), ("KiB", 6)];
    let table = Table::begin(&titles, 0);
    for (count, writes) in WRITERS.iter().zip(&runs) {
        let rates = || writes.iter().map(Writes::rate);
        let ratios = || rates().zip(&runs[0]).map(|(rate, alone)| rate / alone.rate());
        table.row(&[
            count.to_string(),
            table::number(table::median(rates())),
            table::range(rates()),
            table::number(table::median(ratios())),
            table::range(ratios()),
            table::number(table::median(writes.iter().map(Writes::wait))),
            table::number(table::median(writes.iter().map(Writes::cost))),
            table::number(table::median(writes.iter().map(Writes::kib))),
        ]);
    }
    println!();
    Ok(())
}

/// Prints what a save costs as the list grows.
fn print_saves(args: &Args, programs: &Programs, scratch: &Scratch) -> Result<(), Failure> {
    let start = |count: &usize| Saving::start(programs, scratch, &format!("saves-{count}"), *count);
    let savings = COUNTS.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let mut runs = COUNTS.map(|_| Vec::new());
    for round in 1..=args.rounds {
        for (runs, saving) in runs.iter_mut().zip(&savings) {
            eprintln!("durability, round {round}: {} colors", saving.colors.len());
            runs.push((saving.load(1, args.seconds)?, bare(&saving.file, scratch.path())?));
        }
    }
    println!("One writer, as the list grows:\n");
    let titles =
        [("colors", 6), ("file KiB", 8), ("writes", 6), ("ms per write", 12), ("min–max", 11), ("bare ms", 7), ("CPU µs", 6), ("KiB", 6)];
    let table = Table::begin(&titles, 0);
    for (saving, runs) in savings.iter().zip(&runs) {
        let writes = || runs.iter().map(|(writes, _)| writes);
        table.row(&[
            table::grouped(saving.colors.len() as u64),
            table::number(content(&saving.file)?.len() as f64 / 1024.0),
            table::grouped(writes().map(Writes::count).sum()),
            table::number(table::median(writes().map(Writes::wait))),
            table::range(writes().map(Writes::wait)),
            table::number(table::median(runs.iter().map(|(_, bare)| *bare))),
            table::number(table::median(writes().map(Writes::cost))),
            table::number(table::median(writes().map(Writes::kib))),
        ]);
    }
    println!();
    Ok(())
}

/// Milliseconds that it takes to save what a file has, without a server; median.
fn bare(file: &Path, directory: &Path) -> Result<f64, Failure> {
    let bytes = content(file)?;
    let times = (0..BARE).map(|_| disk::replace(directory, &bytes)).collect::<Result<Vec<_>, _>>()?;
    Ok(table::median(times.iter().map(|time| time.as_secs_f64() * 1e3)))
}

/// What a file has.
fn content(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::File(file.to_owned(), error))
}
