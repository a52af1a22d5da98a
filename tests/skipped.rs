//! Names the tests that were skipped, since cargo counts them as passed, and the slowest: cargo runs
//! this program after that of `all.rs`, whatever tests it was asked for.

use std::collections::HashSet;
use std::io::Write as _;

/// The lines that the tests have noted, in descending order, each once (`note` in
/// tests/common/harness.rs).
fn noted(kind: &str) -> Vec<String> {
    // Both programs have the same parent, which is cargo.
    let cargo = std::os::unix::process::parent_id();
    let file = format!("{}/{kind}-{cargo}", env!("CARGO_TARGET_TMPDIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(file);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.reverse();
    lines
}

fn main() {
    let (skipped, mut slowest) = (noted("skipped"), noted("times"));
    // A test may have several threads of its name.
    let mut names = HashSet::new();
    slowest.retain(|line| names.insert(line.rsplit(' ').next().map(str::to_owned)));
    slowest.truncate(5);
    for (title, lines) in [
        ("skipped; .ci/run, as root on Debian, installs what they need, and runs them", skipped),
        ("slowest", slowest),
    ] {
        if !lines.is_empty() {
            // Nothing depends on what becomes of it.
            let _ = writeln!(std::io::stdout(), "\n{title}:\n    {}", lines.join("\n    "));
        }
    }
}
