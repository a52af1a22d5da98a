//! Names the tests that were skipped, since cargo counts them as passed: cargo runs this program
//! after that of `all.rs`, whatever tests it was asked for.

use std::io::Write as _;

fn main() {
    // Both programs have the same parent, which is cargo (`skip` in tests/common/harness.rs).
    let file =
        format!("{}/skipped-{}", env!("CARGO_TARGET_TMPDIR"), std::os::unix::process::parent_id());
    let Ok(lines) = std::fs::read_to_string(&file) else { return };
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    let list = lines.join("\n    ");
    // Nothing depends on what becomes of these.
    let _ = writeln!(std::io::stdout(), "\nskipped:\n    {list}\n");
    let _ = std::fs::remove_file(file);
}
