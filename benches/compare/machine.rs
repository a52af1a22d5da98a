//! When and where a comparison was made. Measures nothing.

use std::env;
use std::fs;
use std::process::Command;
use std::thread;

use crate::programs;

/// Prints the date, the machine and the command, to be quoted with the tables.
pub(crate) fn describe() {
    let mut date = Command::new("date");
    date.args(["-u", "+%F"]);
    let date = programs::output(date).unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("unknown", |(_, model)| model);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let options: Vec<String> = env::args().skip(1).collect();
    println!("{}, {cores} cores of {model}, Linux {}, `compare {}`", date.trim(), kernel.trim(), options.join(" "));
    println!();
}
